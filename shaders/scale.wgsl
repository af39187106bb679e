// rows = rows · by

struct Params {
    width: u32,
    // Numbers from row to row, and where they begin in a row.
    stride: u32,
    first: u32,
    by: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = 64u * group.x + thread;
    if i < p.width {
        x[group.y * p.stride + p.first + i] *= p.by;
    }
}
