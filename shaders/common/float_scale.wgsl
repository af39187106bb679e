// One f32 scale a block.
@group(0) @binding(3) var<storage, read> scales: array<f32>; // [blocks]

fn scale_of(block: u32) -> f32 {
    return scales[block];
}
