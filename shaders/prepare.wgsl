// Prepares rows of activations for products. Needs sum_block.wgsl or round_block.wgsl.

struct Params {
    blocks: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [rows, blocks, 8]

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let in_row = 32u * group.x + thread;
    if in_row >= p.blocks {
        return;
    }
    let block = group.y * p.blocks + in_row;
    let at = 8u * block;
    prepare_block(block, Block(x[at], x[at + 1u], x[at + 2u], x[at + 3u], x[at + 4u], x[at + 5u], x[at + 6u], x[at + 7u]), 0.0);
}
