// x[row] = table[token of row]. Needs the text of a format (load, quad).

struct Params {
    // Which tokens lie in this part of the table.
    first: u32,
    count: u32,
    blocks: u32,
    // Quads in a row of x.
    x_stride: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read> rows: array<u32>; // tokens come first
@group(0) @binding(5) var<storage, read_write> x: array<vec4<f32>>; // [rows, x_stride]

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let at = 32u * group.x + thread;
    let token = rows[group.y] - p.first;
    if at < 8u * p.blocks && token < p.count {
        x[group.y * p.x_stride + at] = quad(load(token * p.blocks + at / 8u), at % 8u);
    }
}
