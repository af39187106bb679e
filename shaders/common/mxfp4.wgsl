// w = 2^(e - 128)·value(q), the values of E2M1 doubled to be whole.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]
// One exponent a block, four in a word.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks / 4]

struct Raw { high: vec4<u32>, scale: f32 }

fn load(block: u32) -> Raw {
    let e = (scales[block >> 2u] >> (8u * (block & 3u))) & 255u;
    return Raw(high[block], bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << e, e < 2u)));
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return levels(nibbles(r.high, q));
}

fn offset() -> f32 {
    return 0.0;
}
