// Joins the chunks that attend.wgsl made, in order, for one head of one row. Needs attention.wgsl,
// one.wgsl, joint.wgsl and a text that says what becomes of a head (head_plain or head_round).

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> chunks: array<f32>; // [rows, heads, most_chunks, head_stride + 2]
@group(0) @binding(3) var<storage, read> sinks: array<f32>; // [heads]
@group(0) @binding(4) var<storage, read_write> out: array<f32>; // [rows, out_stride]

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x;
    let row = group.z;
    let span_at = p.spans_at + 2u * (rows[p.view_at] * p.view_rows + row);
    let count = (rows[span_at + 1u] + CHUNK - 1u) / CHUNK;
    let stride = p.head_stride + 2u;
    let to = row * p.out_stride + head * p.head_dim;
    let first = (row * p.heads + head) * p.most_chunks * stride;
    for (var i = thread; i < p.head_dim; i += THREADS) {
        var top = chunks[first + p.head_stride];
        var sum = chunks[first + p.head_stride + 1u];
        var v = chunks[first + i];
        for (var chunk = 1u; chunk < count; chunk++) {
            let at = first + chunk * stride;
            let joined = joint(top, chunks[at + p.head_stride]);
            top = joined.top;
            sum = fma(chunks[at + p.head_stride + 1u], joined.take, sum * joined.keep);
            v = fma(chunks[at + i], joined.take, v * joined.keep);
        }
        let all = whole(top, sum, head);
        v = v * all.keep / all.sum;
        out[to + i] = v;
        keep(i, v);
    }
    round_head(to / 32u, thread);
}
