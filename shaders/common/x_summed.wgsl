// Activations in blocks with the sums of these, see sum_block.wgsl. Needs the text of a format's scales (APART).
@group(0) @binding(5) var<storage, read> x: array<vec4<f32>>; // [columns · blocks, 9]

// Quads of a block.
const X_QUADS = 9u;

// What a norm left for products with the block.
fn x_left(block: u32) -> f32 {
    return x[X_QUADS * block + 8u].w;
}

// The sum of a half of the block at `at`, or of all of it where the halves are not told apart.
fn x_sum(at: u32, half: u32) -> f32 {
    let sums = x[at + 8u];
    if APART {
        return sums[half];
    }
    return sums.z;
}
