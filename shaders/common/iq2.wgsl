// w = d·scale·level(q), a scale of 8 bits for each half of a block; the levels are 8, 25 and 43, and these below zero.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]
// Per super-block of eight: sixteen bytes, then d as an f32.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks / 8, 5]

struct Raw { high: vec4<u32>, scales: vec2<f32> }

fn load(block: u32) -> Raw {
    let at = (block >> 3u) * 5u;
    let bytes = scales[at + ((block & 7u) >> 1u)] >> (16u * (block & 1u));
    return Raw(high[block], bitcast<f32>(scales[at + 4u]) * vec2<f32>(f32(bytes & 255u), f32((bytes >> 8u) & 255u)));
}

fn level(nibble: u32) -> f32 {
    let size = f32((0x002b1908u >> (8u * (nibble & 3u))) & 255u);
    return select(size, -size, nibble > 7u);
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return levels(nibbles(r.high, q));
}

fn offset() -> f32 {
    return 0.0;
}
