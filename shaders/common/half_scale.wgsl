// One f16 scale a block, two in a word. Needs exact_half.wgsl.
@group(0) @binding(3) var<storage, read> scales: array<u32>; // [blocks / 2]

// As it was read. What is made of it waits until a product needs it, so that a thread does not wait for memory before.
struct Scale { word: u32, shift: u32 }

fn scale_of(block: u32) -> Scale {
    return Scale(scales[block >> 1u], 16u * (block & 1u));
}

fn number_of(s: Scale) -> f32 {
    return half(s.word >> s.shift);
}
