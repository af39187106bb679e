// Activations as they are, for weights that are not offset.
@group(0) @binding(5) var<storage, read> x: array<vec4<f32>>; // [columns · blocks, 8]

// Quads of a block.
const X_QUADS = 8u;

fn x_sum(at: u32, half: u32) -> f32 {
    return 0.0;
}

// Norms are not deferred for these.
fn x_left(block: u32) -> f32 {
    return 0.0;
}
