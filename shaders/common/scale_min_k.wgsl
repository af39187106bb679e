// Scales and minima of 6 bits for the eight blocks of a super-block, as they lie in the file: d, dmin, 12 bytes. Needs
// exact_half.wgsl.
@group(0) @binding(3) var<storage, read> scales: array<vec4<u32>>; // [blocks / 8]

fn scale_min_of(block: u32) -> vec2<f32> {
    let s = scales[block >> 3u];
    let bytes = s.yzw >> vec3<u32>(8u * (block & 3u));
    let is_later = (block & 4u) != 0u;
    let scale = select(bytes.x & 63u, (bytes.z & 15u) | ((bytes.x >> 2u) & 48u), is_later);
    let low = select(bytes.y & 63u, ((bytes.z >> 4u) & 15u) | ((bytes.y >> 2u) & 48u), is_later);
    return vec2<f32>(half(s.x), half(s.x >> 16u)) * vec2<f32>(f32(scale), f32(low));
}
