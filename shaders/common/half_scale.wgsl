// One f16 scale a block, two in a word.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks / 2]

fn scale_of(block: u32) -> f32 {
    return unpack2x16float(scales[block >> 1u])[block & 1u];
}
