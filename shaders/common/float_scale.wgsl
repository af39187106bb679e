// One f32 scale a block.
@group(0) @binding(3) var<storage, read> scales: array<f32>; // [blocks]

alias Scale = f32;

fn scale_of(block: u32) -> Scale {
    return scales[block];
}

fn number_of(s: Scale) -> f32 {
    return s;
}
