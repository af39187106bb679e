// A scale of 8 bits for each half of a block. Per super-block of eight: sixteen signed bytes, then d as an f32.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks / 8, 5]

fn scales_of(block: u32) -> vec2<f32> {
    let at = (block >> 3u) * 5u;
    let d = bitcast<f32>(scales[at + 4u]);
    let bytes = scales[at + ((block & 7u) >> 1u)] >> (16u * (block & 1u));
    let signed = vec2<i32>(i32(bytes << 24u), i32(bytes << 16u)) >> vec2<u32>(24u);
    return d * vec2<f32>(signed);
}
