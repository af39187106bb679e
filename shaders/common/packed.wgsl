// A matrix as src/backend/cpu/matmul/packed has it: groups of rows, of which a block's words lie side by side. Needs
// constants: LANES (rows of a group), HEAD (bytes of a block's scales), SUBS (32s of a block), HIGH and LOW (words of 32
// weights in either plane), OFFSET (what whole numbers are too large by), HEADS (what scales are).

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

fn four_high(a: At, first: u32) -> vec4<u32> {
    let at = a.high + first * LANES + a.lane;
    return vec4<u32>(w[at], w[at + LANES], w[at + 2u * LANES], w[at + 3u * LANES]);
}

fn low(a: At, i: u32) -> u32 {
    return w[a.low + i * LANES + a.lane];
}

// Bytes, four a word: 16 weights and 16 more.
struct Numbers { first: vec4<u32>, second: vec4<u32> }

const NIBBLE: vec4<u32> = vec4<u32>(0x0f0f0f0fu);
const SIGN: vec4<u32> = vec4<u32>(0x80808080u);

fn whole_numbers(a: At) -> Numbers {
    if HIGH == 8u {
        return Numbers(four_high(a, 0u) ^ SIGN, four_high(a, 4u) ^ SIGN);
    }
    let words = four_high(a, 0u);
    let four = vec4<u32>(4u);
    let first = words & NIBBLE;
    let second = (words >> four) & NIBBLE;
    if LOW == 1u {
        let one = vec4<u32>(0x01010101u);
        let bits = vec4<u32>(low(a, 0u));
        let shifts = vec4<u32>(0u, 1u, 2u, 3u);
        return Numbers(
            (first << vec4<u32>(1u)) | ((bits >> shifts) & one),
            (second << vec4<u32>(1u)) | ((bits >> (shifts + four)) & one));
    }
    if LOW == 2u {
        let two = vec4<u32>(2u);
        let three = vec4<u32>(0x03030303u);
        let shifts = vec4<u32>(0u, 2u, 4u, 6u);
        return Numbers(
            (first << two) | ((vec4<u32>(low(a, 0u)) >> shifts) & three),
            (second << two) | ((vec4<u32>(low(a, 1u)) >> shifts) & three));
    }
    if LOW == 4u {
        let lows = vec4<u32>(low(a, 0u), low(a, 1u), low(a, 2u), low(a, 3u));
        return Numbers(
            ((first << four) | (lows & NIBBLE)) ^ SIGN,
            ((second << four) | ((lows >> four) & NIBBLE)) ^ SIGN);
    }
    return Numbers(first, second);
}

// What 32 weights have beside whole numbers: a scale, a minimum, and the whole scales of halves.
struct About { scale: f32, minimum: f32, first: i32, second: i32 }

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

fn about(a: At, sub: u32) -> About {
    if HEADS == 1u {
        let two = head_word(a, 0u);
        return About(half_of(two & 0xffffu), half_of(two >> 16u), 1, 1);
    }
    if HEADS == 2u {
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
        return About(half_of(two & 0xffffu) * f32(scale), -(half_of(two >> 16u) * f32(minimum)), 1, 1);
    }
    if HEADS == 3u {
        let two = bitcast<i32>(head_word(a, sub / 2u) >> (16u * (sub & 1u)));
        return About(head_half(a, 4u), 0.0, (two << 24u) >> 24u, (two << 16u) >> 24u);
    }
    return About(head_half(a, 0u), 0.0, 1, 1);
}
