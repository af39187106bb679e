// One f16 scale and one f16 minimum a block, in a word.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks]

fn scale_min_of(block: u32) -> vec2<f32> {
    return unpack2x16float(scales[block]);
}
