// One f16 scale and one f16 minimum a block, in a word. Needs exact_half.wgsl.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks]

// As it was read. What is made of it waits until a product needs it, so that a thread does not wait for memory before.
alias ScaleMin = u32;

fn scale_min_of(block: u32) -> ScaleMin {
    return scales[block];
}

fn numbers_of(both: ScaleMin) -> vec2<f32> {
    return vec2<f32>(half(both), half(both >> 16u));
}
