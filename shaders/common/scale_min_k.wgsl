// Scales and minima of 6 bits for the eight blocks of a super-block, as they lie in the file: d, dmin, 12 bytes.
@group(0) @binding(3) var<storage, read> scales: array<vec4<u32>>; // [blocks / 8]

fn scale_min_of(block: u32) -> vec2<f32> {
    let s = scales[block >> 3u];
    let bytes = s.yzw >> vec3<u32>(8u * (block & 3u));
    var scale = bytes.x & 63u;
    var low = bytes.y & 63u;
    if (block & 4u) != 0u {
        scale = (bytes.z & 15u) | ((bytes.x >> 2u) & 48u);
        low = ((bytes.z >> 4u) & 15u) | ((bytes.y >> 2u) & 48u);
    }
    return unpack2x16float(s.x) * vec2<f32>(f32(scale), f32(low));
}
