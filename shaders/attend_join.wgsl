// Joins the chunks that attend.wgsl made, in order, for one head of one row. Four are under way at once. Needs
// attention.wgsl, one.wgsl, joint.wgsl and a text that says what becomes of a head (head_plain or head_prepare).

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> chunks: array<f32>; // [group rows, heads, most_chunks, head_stride + 2]
@group(0) @binding(3) var<storage, read> sinks: array<f32>; // [heads]
@group(0) @binding(4) var<storage, read_write> out: array<f32>; // [rows, out_stride]

// Of one number of a head: its maximum, sum and weighted values.
struct Part { top: f32, sum: f32, v: f32 }

fn part_at(at: u32, i: u32) -> Part {
    return Part(chunks[at + p.head_stride], chunks[at + p.head_stride + 1u], chunks[at + i]);
}

fn with_next(all: Part, next: Part) -> Part {
    let joined = joint(all.top, next.top);
    return Part(
        joined.top,
        fma(next.sum, joined.take, all.sum * joined.keep),
        fma(next.v, joined.take, all.v * joined.keep));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x;
    let row = p.first_row + group.z;
    let span_at = p.spans_at + 2u * (rows[p.view_at] * p.view_rows + row);
    let count = (rows[span_at + 1u] + CHUNK - 1u) / CHUNK;
    let stride = p.head_stride + 2u;
    let to = row * p.out_stride + head * p.head_dim;
    let first = (group.z * p.heads + head) * p.most_chunks * stride;
    for (var i = thread; i < p.head_dim; i += THREADS) {
        var all = part_at(first, i);
        var chunk = 1u;
        for (; chunk + 4u <= count; chunk += 4u) {
            let at = first + chunk * stride;
            let a = part_at(at, i);
            let b = part_at(at + stride, i);
            let c = part_at(at + 2u * stride, i);
            let d = part_at(at + 3u * stride, i);
            all = with_next(with_next(with_next(with_next(all, a), b), c), d);
        }
        for (; chunk < count; chunk++) {
            all = with_next(all, part_at(first + chunk * stride, i));
        }
        let share = whole(all.top, all.sum, head);
        let v = head_number(all.v, share);
        out[to + i] = v;
        keep(i, v);
    }
    prepare_head(to / 32u, thread);
}
