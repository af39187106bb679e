// A matrix as kernels/src/matmul/packed has it: groups of rows, of which a block's words lie side by side. Needs
// constants: LANES (rows of a group), HEAD (bytes of a block's scales), SUBS (32s of a block), HIGH and LOW (words of 32
// weights in either plane), OFFSET (what whole numbers are too large by), SCALES (one of those below),
// ALONE (it is a low plane, which minimums do not belong to). What bits mean is in
// packed_numbers.wgsl or packed_levels.wgsl.

// What the scales of a block are.
const SCALE: u32 = 0u;
const SCALE_AND_MINIMUM: u32 = 1u;
// Scales and minimums of six bits.
const SIX_BITS_AND_MINIMUM: u32 = 2u;
// Whole scales with a sign, one for either half of 32 weights.
const EIGHT_BITS_OF_HALVES: u32 = 3u;
const POWER_OF_TWO: u32 = 4u;
const SCALES_OF_HALVES: u32 = 5u;
// With a sign.
const SIX_BITS: u32 = 6u;
// Whole scales and minimums of either half.
const FOUR_BITS_OF_HALVES: u32 = 7u;
// Whole scales with a sign, of either half.
const SIX_BITS_OF_HALVES: u32 = 8u;

struct Params {
    rows: u32,
    // Of the format, in a row.
    blocks: u32,
    columns: u32,
    // Words of a group of rows in either plane, and where the planes begin.
    high_words: u32,
    low_words: u32,
    high_at: u32,
    low_at: u32,
    // Where rows begin, and products.
    x_at: u32,
    y_at: u32,
    // Always 0.
    zero: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> w: array<u32>;

const HEAD_WORDS: u32 = LANES * HEAD / 4u;
const HIGH_BLOCK: u32 = HEAD_WORDS + SUBS * HIGH * LANES;
const LOW_BLOCK: u32 = SUBS * LOW * LANES;

// Where 32 weights begin in both planes, and which row of its group it is.
struct At { head: u32, high: u32, low: u32, lane: u32 }

fn at_of(row: u32, block: u32) -> At {
    let group = row / LANES;
    let n = block / SUBS;
    let sub = block % SUBS;
    let head = p.high_at + group * p.high_words + n * HIGH_BLOCK;
    let low = p.low_at + group * p.low_words + n * LOW_BLOCK + sub * LOW * LANES;
    return At(head, head + HEAD_WORDS + sub * HIGH * LANES, low, row % LANES);
}

fn high(a: At, i: u32) -> u32 {
    return w[a.high + i * LANES + a.lane];
}

fn four_high(a: At, first: u32) -> vec4<u32> {
    return vec4<u32>(high(a, first), high(a, first + 1u), high(a, first + 2u), high(a, first + 3u));
}

fn low(a: At, i: u32) -> u32 {
    return w[a.low + i * LANES + a.lane];
}

// Bytes, four a word: 16 weights and 16 more.
struct Numbers { first: vec4<u32>, second: vec4<u32> }

const NIBBLE: vec4<u32> = vec4<u32>(0x0f0f0f0fu);

// What a block of 32 weights has besides its whole numbers: one scale or one for each half, one minimum or one for each half,
// and the halves' scales as whole numbers.
struct About { scales: vec2<f32>, minimums: vec2<f32>, subs: vec2<i32> }

fn scaled(scale: f32) -> About {
    return About(vec2<f32>(scale, 0.0), vec2<f32>(0.0), vec2<i32>(1));
}

// Four bytes of the head.
fn head_word(a: At, i: u32) -> u32 {
    return w[a.head + i * LANES + a.lane];
}

// Two bytes behind so many fours.
fn head_half(a: At, fours: u32) -> f32 {
    let two = w[a.head + fours * LANES + a.lane / 2u];
    return half_of((two >> (16u * (a.lane & 1u))) & 0xffffu);
}

// Exact, below the normal numbers too, which unpack2x16float may take for zero.
fn half_of(bits: u32) -> f32 {
    let exponent = (bits >> 10u) & 31u;
    let mantissa = bits & 1023u;
    var size = f32(mantissa) * 0x1p-24f;
    if exponent == 31u {
        size = bitcast<f32>(0x7f800000u | (mantissa << 13u));
    } else if exponent > 0u {
        size = bitcast<f32>(((exponent + 112u) << 23u) | (mantissa << 13u));
    }
    return select(size, -size, (bits & 0x8000u) != 0u);
}

// One of twelve bytes of scales and minimums.
fn scales_byte(a: At, i: u32) -> u32 {
    return (head_word(a, 1u + i / 4u) >> (8u * (i % 4u))) & 255u;
}

// What a code of NVFP4 means, halved: without the sign it is the top of a half, and the last one is no number.
fn scale_of_code(code: u32) -> f32 {
    return select(half_of((code & 127u) << 7u) * 128.0, 0.0, code == 127u);
}

// One of Q3_K's 16 scales.
fn six_bits(a: At, i: u32) -> i32 {
    let lower = head_word(a, (i & 7u) / 4u) >> (8u * (i & 3u) + 4u * (i / 8u));
    let upper = head_word(a, 2u) >> (8u * (i & 3u) + 2u * (i / 4u));
    return i32((lower & 15u) | ((upper & 3u) << 4u)) - 32;
}

fn about(a: At, sub: u32) -> About {
    if SCALES == SCALE_AND_MINIMUM {
        let two = head_word(a, 0u);
        return About(vec2<f32>(half_of(two & 0xffffu), 0.0), vec2<f32>(half_of(two >> 16u), 0.0), vec2<i32>(1));
    }
    if SCALES == SIX_BITS_AND_MINIMUM {
        let two = head_word(a, 0u);
        var scale = 0u;
        var minimum = 0u;
        if sub < 4u {
            scale = scales_byte(a, sub) & 63u;
            minimum = scales_byte(a, sub + 4u) & 63u;
        } else {
            let lower = scales_byte(a, sub + 4u);
            scale = (lower & 15u) | ((scales_byte(a, sub - 4u) >> 6u) << 4u);
            minimum = (lower >> 4u) | ((scales_byte(a, sub) >> 6u) << 4u);
        }
        return About(
            vec2<f32>(half_of(two & 0xffffu) * f32(scale), 0.0),
            vec2<f32>(-(half_of(two >> 16u) * f32(minimum)), 0.0),
            vec2<i32>(1));
    }
    if SCALES == EIGHT_BITS_OF_HALVES {
        let two = bitcast<i32>(head_word(a, sub / 2u) >> (16u * (sub & 1u)));
        let subs = vec2<i32>((two << 24u) >> 24u, (two << 16u) >> 24u);
        return About(vec2<f32>(head_half(a, 4u), 0.0), vec2<f32>(0.0), subs);
    }
    if SCALES == POWER_OF_TWO {
        let power = (w[a.head + a.lane / 4u] >> (8u * (a.lane & 3u))) & 255u;
        return scaled(bitcast<f32>((max(power, 1u) - 1u) << 23u));
    }
    if SCALES == SCALES_OF_HALVES {
        let two = head_word(a, 0u) >> (16u * sub);
        let scales = vec2<f32>(scale_of_code(two & 255u), scale_of_code((two >> 8u) & 255u));
        return About(scales, vec2<f32>(0.0), vec2<i32>(1));
    }
    if SCALES == SIX_BITS {
        let two = head_word(a, 0u);
        let lower = (head_word(a, 1u) >> (4u * sub)) & 15u;
        let upper = (two >> (16u + 2u * sub)) & 3u;
        return scaled(half_of(two & 0xffffu) * f32(i32(lower | (upper << 4u)) - 32));
    }
    if SCALES == FOUR_BITS_OF_HALVES {
        let two = head_word(a, 4u);
        let four = (head_word(a, sub / 2u) >> (16u * (sub & 1u))) & 0xffffu;
        let minimums = vec2<f32>(f32((four >> 4u) & 15u), f32(four >> 12u));
        return About(
            vec2<f32>(half_of(two & 0xffffu), 0.0),
            -(half_of(two >> 16u) * minimums),
            vec2<i32>(vec2<u32>(four & 15u, (four >> 8u) & 15u)));
    }
    if SCALES == SIX_BITS_OF_HALVES {
        let subs = vec2<i32>(six_bits(a, 2u * sub), six_bits(a, 2u * sub + 1u));
        return About(vec2<f32>(head_half(a, 3u), 0.0), vec2<f32>(0.0), subs);
    }
    return scaled(head_half(a, 0u));
}
