// w = d·scale·(4·high + low - 32), a scale of 8 bits for each half of a block.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]
// Two bits a weight: of byte k of word j, two bits each for weight k of the quads 4j to 4j + 3.
@group(0) @binding(2) var<storage, read> low: array<vec2<u32>>; // [blocks]
// Per super-block of eight: sixteen signed bytes, then d as an f32.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks / 8, 5]

// From the high plane alone: a weight is the middle of what the low bits could make it.
override COARSE: bool = false;

struct Raw { high: vec4<u32>, low: vec2<u32>, scales: vec2<f32> }

fn load(block: u32) -> Raw {
    let at = (block >> 3u) * 5u;
    let d = bitcast<f32>(scales[at + 4u]);
    let bytes = scales[at + ((block & 7u) >> 1u)] >> (16u * (block & 1u));
    let signed = vec2<i32>(i32(bytes << 24u), i32(bytes << 16u)) >> vec2<u32>(24u);
    if COARSE {
        return Raw(high[block], vec2<u32>(0u), d * vec2<f32>(signed));
    }
    return Raw(high[block], low[block], d * vec2<f32>(signed));
}

// The low bits of quad q, a byte each.
fn two_bits(low: vec2<u32>, q: u32) -> u32 {
    return (low[q >> 2u] >> (2u * (q & 3u))) & 0x03030303u;
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    let upper = nibbles(r.high, q) << 2u;
    if COARSE {
        return floats(upper);
    }
    return floats(upper | two_bits(r.low, q));
}

fn offset() -> f32 {
    if COARSE {
        return 30.5;
    }
    return 32.0;
}
