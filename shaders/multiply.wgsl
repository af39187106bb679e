// dst = f(dst) · g(by), of each row. Needs activation.wgsl.

override F: u32 = 0u;
override G: u32 = 0u;

struct Params {
    f_numbers: vec4<f32>,
    g_numbers: vec4<f32>,
    width: u32,
    // Numbers from row to row, and where they begin in a row.
    dst_stride: u32,
    dst_first: u32,
    by_stride: u32,
    by_first: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> by: array<f32>;
@group(0) @binding(2) var<storage, read_write> dst: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = 64u * group.x + thread;
    if i < p.width {
        let at = group.y * p.dst_stride + p.dst_first + i;
        let factor = activated(G, by[group.y * p.by_stride + p.by_first + i], 1.0, p.g_numbers);
        dst[at] = activated(F, dst[at], 1.0, p.f_numbers) * factor;
    }
}
