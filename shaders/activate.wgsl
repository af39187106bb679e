// g = activation(g) · u, for a gate and an up matrix of different formats. Needs activation.wgsl.

struct Params {
    numbers: vec4<f32>,
    // Numbers in a row.
    count: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> u: array<f32>; // [rows, stride]
@group(0) @binding(2) var<storage, read_write> g: array<f32>; // [rows, stride]

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    // x: pieces of a row, y: rows
    let in_row = 64u * group.x + thread;
    if in_row < p.count {
        let at = group.y * p.count + in_row;
        g[at] = activated(ACTIVATION, g[at], u[at], p.numbers);
    }
}
