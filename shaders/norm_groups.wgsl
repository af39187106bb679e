// Any norm, of each group of a row by itself: dst = (src - mean) / deviation · factor + summand, or without the mean
// src / rms. Row i is i itself, or the i-th output row. Needs reduce_shared.wgsl and one that says where rows
// lie (rows_apart or rows_inside).

override THREADS: u32 = 8u;

struct Params {
    // Numbers in a group.
    len: u32,
    // Numbers from row to row, and where the first group begins in a row.
    src_stride: u32,
    src_first: u32,
    dst_stride: u32,
    dst_first: u32,
    eps: f32,
    // From the factors of a group to those of the next, and from factors to summands.
    step: u32,
    summands_at: u32,
    subtracts_mean: u32,
    adds: u32,
    // Where the list of rows begins in `rows`, if there is one.
    listed: u32,
    list_at: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> affine: array<f32>; // factors, summands

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    var row = group.y;
    if p.listed != 0u {
        row = rows[p.list_at + group.y];
    }
    let start = row * p.src_stride + p.src_first + group.x * p.len;
    let to = group.y * p.dst_stride + p.dst_first + group.x * p.len;
    var mean = 0.0;
    if p.subtracts_mean != 0u {
        var sum = 0.0;
        for (var i = thread; i < p.len; i += THREADS) {
            sum += number(start + i);
        }
        mean = sum_over(sum, thread) / f32(p.len);
        // All have read the sums before the next are written.
        workgroupBarrier();
    }
    var squares = 0.0;
    for (var i = thread; i < p.len; i += THREADS) {
        let x = number(start + i) - mean;
        squares = fma(x, x, squares);
    }
    let scale = 1.0 / sqrt(sum_over(squares, thread) / f32(p.len) + p.eps);
    let first = group.x * p.step;
    for (var i = thread; i < p.len; i += THREADS) {
        var x = (number(start + i) - mean) * scale * affine[first + i] + affine[p.summands_at + first + i];
        if p.adds != 0u {
            x += dst[to + i];
        }
        dst[to + i] = x;
    }
}
