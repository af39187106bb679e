// One f16 scale a block, two in a word. Needs exact_half.wgsl.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks / 2]

fn scale_of(block: u32) -> f32 {
    return half(scales[block >> 1u] >> (16u * (block & 1u)));
}
