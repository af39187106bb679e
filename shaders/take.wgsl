// Copies the first numbers of each part of a row into the same part of another row, and writes zeros behind them.

struct Params {
    // Parts of a row, how much of each is taken, and how much is written.
    parts: u32,
    taken: u32,
    each: u32,
    // Numbers from row to row, where the first part begins in a row, and from one part to the next.
    src_stride: u32,
    src_first: u32,
    src_every: u32,
    dst_stride: u32,
    dst_first: u32,
    dst_every: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> src: array<f32>;
@group(0) @binding(2) var<storage, read_write> dst: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = 64u * group.x + thread;
    let part = i / p.each;
    let n = i % p.each;
    if part < p.parts {
        var x = 0.0;
        if n < p.taken {
            x = src[group.y * p.src_stride + p.src_first + part * p.src_every + n];
        }
        dst[group.y * p.dst_stride + p.dst_first + part * p.dst_every + n] = x;
    }
}
