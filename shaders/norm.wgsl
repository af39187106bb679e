// h[i] = x[row i] / rms(x[row i]) · weight; row i is i itself, or the i-th output row. Everything is padded with
// zeros to whole blocks. Needs reduce_shared.wgsl and one that says what becomes of a row (norm_plain or
// norm_prepare).

override THREADS: u32 = 8u;

struct Params {
    dim: u32,
    // Quads in a row.
    stride: u32,
    eps: f32,
    // Where the list of rows begins in `rows`, if there is one.
    listed: u32,
    list_at: u32,
    // Always 0, but not a constant for compilers.
    zero: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>; // [stride]
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>; // [rows, stride]
@group(0) @binding(4) var<storage, read_write> h: array<vec4<f32>>; // [rows, stride]

fn normed(start: u32, i: u32, scale: f32) -> vec4<f32> {
    return x[start + i] * scale * weight[i];
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    var row = group.y;
    if p.listed != 0u {
        row = rows[p.list_at + group.y];
    }
    let start = row * p.stride;
    var sums = vec4<f32>(0.0);
    var i = thread;
    // Four loads are under way at once.
    for (; i + 3u * THREADS < p.stride; i += 4u * THREADS) {
        let a = x[start + i];
        let b = x[start + i + THREADS];
        let c = x[start + i + 2u * THREADS];
        let d = x[start + i + 3u * THREADS];
        sums = fma(d, d, fma(c, c, fma(b, b, fma(a, a, sums))));
    }
    for (; i < p.stride; i += THREADS) {
        sums = fma(x[start + i], x[start + i], sums);
    }
    let square = sum_over((sums.x + sums.y) + (sums.z + sums.w), thread);
    let scale = 1.0 / sqrt(square / f32(p.dim) + p.eps);
    put(group.y, start, scale, thread);
}
