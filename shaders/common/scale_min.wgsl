// One f16 scale and one f16 minimum a block, in a word. Needs exact_half.wgsl.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks]

fn scale_min_of(block: u32) -> vec2<f32> {
    let both = scales[block];
    return vec2<f32>(half(both), half(both >> 16u));
}
