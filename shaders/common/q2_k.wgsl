// w = d·scale·q - dmin·minimum, four bits of scale and of minimum for each half of a block. Weights of two bits
// lie in a plane of four. Needs exact_half.wgsl.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]
// Per super-block of eight: sixteen bytes, then d and dmin.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks / 8, 5]

struct Raw { high: vec4<u32>, scales: vec2<f32>, minima: vec2<f32> }

fn load(block: u32) -> Raw {
    let at = (block >> 3u) * 5u;
    let both = scales[at + 4u];
    let d = vec2<f32>(half(both), half(both >> 16u));
    let bytes = scales[at + ((block & 7u) >> 1u)] >> (16u * (block & 1u));
    let scale = vec2<u32>(bytes & 15u, (bytes >> 8u) & 15u);
    let low = vec2<u32>((bytes >> 4u) & 15u, (bytes >> 12u) & 15u);
    return Raw(high[block], d.x * vec2<f32>(scale), -d.y * vec2<f32>(low));
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return floats(nibbles(r.high, q));
}

fn offset() -> f32 {
    return 0.0;
}
