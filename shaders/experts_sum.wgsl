// dst = Σ weight · result of the experts that a row chose, in the order of its choice; or added.

struct Params {
    width: u32,
    used: u32,
    // Numbers from a result to the next, and from row to row.
    result_stride: u32,
    chosen_stride: u32,
    dst_stride: u32,
    dst_first: u32,
    adds: u32,
    // Where a row's weights begin.
    weights_at: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> results: array<f32>; // [rows, used, result_stride]
@group(0) @binding(2) var<storage, read> chosen: array<f32>; // [rows, chosen_stride]: numbers of experts, weights
@group(0) @binding(3) var<storage, read_write> dst: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = 64u * group.x + thread;
    if i < p.width {
        let row = group.y;
        var sum = 0.0;
        for (var place = 0u; place < p.used; place++) {
            let weight = chosen[row * p.chosen_stride + p.weights_at + place];
            sum = fma(results[(row * p.used + place) * p.result_stride + i], weight, sum);
        }
        let at = row * p.dst_stride + p.dst_first + i;
        if p.adds != 0u {
            sum += dst[at];
        }
        dst[at] = sum;
    }
}
