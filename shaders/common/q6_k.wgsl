// w = d·scale·(4·high + low - 32), a scale for each half of a block. Needs signed_scales.wgsl.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]
// Two bits a weight: of byte k of word j, two bits each for weight k of the quads 4j to 4j + 3.
@group(0) @binding(2) var<storage, read> low: array<vec2<u32>>; // [blocks]

// From the high plane alone: a weight is the middle of what the low bits could make it.
override COARSE: bool = false;

struct Raw { high: vec4<u32>, low: vec2<u32>, scales: vec2<f32> }

fn load(block: u32) -> Raw {
    let of_halves = scales_of(block);
    if COARSE {
        return Raw(high[block], vec2<u32>(0u), of_halves);
    }
    return Raw(high[block], low[block], of_halves);
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
