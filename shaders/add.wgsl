// dst += src · scale, of each row; maybe by the sigmoid of a number of the row.

struct Params {
    width: u32,
    // Numbers from row to row, and where they begin in a row.
    src_stride: u32,
    src_first: u32,
    dst_stride: u32,
    dst_first: u32,
    scale: f32,
    gated: u32,
    gate_stride: u32,
    gate_first: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> src: array<f32>;
@group(0) @binding(2) var<storage, read> gate: array<f32>;
@group(0) @binding(3) var<storage, read_write> dst: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = 64u * group.x + thread;
    if i < p.width {
        var scale = p.scale;
        if p.gated != 0u {
            scale = scale / (1.0 + exp(min(-gate[group.y * p.gate_stride + p.gate_first], 88.0)));
        }
        let at = group.y * p.dst_stride + p.dst_first + i;
        dst[at] = fma(src[group.y * p.src_stride + p.src_first + i], scale, dst[at]);
    }
}
