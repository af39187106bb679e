// w = d·scale·q - dmin·minimum, four bits of scale and of minimum for each half of a block. Weights of two bits
// lie in a plane of four. Needs exact_half.wgsl.
@group(0) @binding(1) var<storage, read> high: array<vec4<u32>>; // [blocks]
// Per super-block of eight: sixteen bytes, then d and dmin.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks / 8, 5]

// Scales as they were read. What is made of them waits until a product needs it, so that a thread does not wait for memory
// before.
struct Raw { high: vec4<u32>, both: u32, word: u32, shift: u32 }

fn load(block: u32) -> Raw {
    let at = (block >> 3u) * 5u;
    return Raw(high[block], scales[at + 4u], scales[at + ((block & 7u) >> 1u)], 16u * (block & 1u));
}

fn scales_of(r: Raw) -> vec2<f32> {
    let bytes = r.word >> r.shift;
    return half(r.both) * vec2<f32>(vec2<u32>(bytes & 15u, (bytes >> 8u) & 15u));
}

fn minima_of(r: Raw) -> vec2<f32> {
    let bytes = r.word >> r.shift;
    return -half(r.both >> 16u) * vec2<f32>(vec2<u32>((bytes >> 4u) & 15u, (bytes >> 12u) & 15u));
}

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return floats(nibbles(r.high, q));
}

fn offset() -> f32 {
    return 0.0;
}
