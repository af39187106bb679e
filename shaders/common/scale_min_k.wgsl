// Scales and minima of 6 bits for the eight blocks of a super-block, as they lie in the file: d, dmin, 12 bytes. Needs
// exact_half.wgsl.
@group(0) @binding(3) var<storage, read> scales: array<vec4<u32>>; // [blocks / 8]

// As it was read. What is made of it waits until a product needs it, so that a thread does not wait for memory before.
struct ScaleMin { words: vec4<u32>, block: u32 }

fn scale_min_of(block: u32) -> ScaleMin {
    return ScaleMin(scales[block >> 3u], block);
}

fn numbers_of(s: ScaleMin) -> vec2<f32> {
    let bytes = s.words.yzw >> vec3<u32>(8u * (s.block & 3u));
    let is_later = (s.block & 4u) != 0u;
    let scale = select(bytes.x & 63u, (bytes.z & 15u) | ((bytes.x >> 2u) & 48u), is_later);
    let low = select(bytes.y & 63u, ((bytes.z >> 4u) & 15u) | ((bytes.y >> 2u) & 48u), is_later);
    return vec2<f32>(half(s.words.x), half(s.words.x >> 16u)) * vec2<f32>(f32(scale), f32(low));
}
