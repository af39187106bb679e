// Attention of one row, for the heads of one workgroup (head_*). As a whole it walks all chunks; split, each
// workgroup makes one chunk, and attend_join.wgsl joins them. Needs attention.wgsl, joint.wgsl, capped.wgsl, stored.wgsl,
// reduce_shared.wgsl and a text that says what becomes of a head (head_plain or head_round).

override SPLIT: bool = false;
// The most pairs of numbers of a head that there is room for.
override MOST_PAIRS: u32 = 256u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> lists: array<u32>; // cells
@group(0) @binding(3) var<storage, read> q: array<vec4<f32>>; // [rows, heads, head_stride / 4]
@group(0) @binding(4) var<storage, read> keys: array<vec4<u32>>; // [kv_heads, cells, key_words / 4]
@group(0) @binding(5) var<storage, read> values: array<u32>; // [kv_heads, cells, value_words]
@group(0) @binding(6) var<storage, read> sinks: array<f32>; // [heads]
// Whole: [rows, out_stride]. Split: [rows, heads, most_chunks, head_stride + 2], maximum and sum last.
@group(0) @binding(7) var<storage, read_write> out: array<f32>;

var<workgroup> weights: array<Reduced, 256>;
var<workgroup> chunk_cells: array<u32, 256>;

// Of each pair of numbers of the heads.
struct Pair { x: Reduced, y: Reduced }
var<workgroup> sums: array<Pair, MOST_PAIRS>;

// Of the block that quad `i` of a key is in.
fn key_scale(key: u32, i: u32) -> f32 {
    let block = i / 2u;
    return scale_in(keys[key + p.head_dim / 16u + block / 8u][(block / 2u) % 4u], block);
}

fn value_pair(at: u32, pair: u32) -> vec2<f32> {
    if VALUES == IN_F32 {
        return vec2<f32>(bitcast<f32>(values[at + 2u * pair]), bitcast<f32>(values[at + 2u * pair + 1u]));
    }
    if VALUES == IN_F16 {
        return unpack2x16float(values[at + pair]);
    }
    let block = pair / 16u;
    let scale = scale_in(values[at + p.head_dim / 4u + block / 2u], block);
    let four = four_bytes(values[at + pair / 2u]);
    return scale * select(four.xy, four.zw, (pair & 1u) != 0u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    // The heads that share keys and values, in pieces.
    let pieces = (p.group + AT_ONCE - 1u) / AT_ONCE;
    let kv_head = group.x / pieces;
    let in_group = AT_ONCE * (group.x % pieces);
    let head = kv_head * p.group + in_group;
    let count = min(AT_ONCE, p.group - in_group);
    let row = group.z;
    let span_at = p.spans_at + 2u * (rows[p.view_at] * p.view_rows + row);
    let span = Span(rows[span_at], rows[span_at + 1u]);
    let chunks = (span.len + CHUNK - 1u) / CHUNK;
    var first_chunk = 0u;
    var end_chunk = chunks;
    if SPLIT {
        first_chunk = group.y;
        end_chunk = min(chunks, group.y + 1u);
    }
    let query = (row * p.heads + head) * (p.head_stride / 4u);
    let pairs = p.head_stride / 2u;
    var top = Reduced();
    var sum = Reduced();
    for (var chunk = first_chunk; chunk < end_chunk; chunk++) {
        let first = span.first + chunk * CHUNK;
        let len = min(CHUNK, span.len - chunk * CHUNK);
        var largest = Reduced(-3.0e38);
        for (var j = thread; j < len; j += THREADS) {
            let cell = lists[first + j];
            let s = scores(query, count - 1u, (kv_head * p.cells + cell) * (p.key_words / 4u));
            chunk_cells[j] = (kv_head * p.cells + cell) * p.value_words;
            weights[j] = s;
            largest = max(largest, s);
        }
        largest = max_over(largest, thread);
        var part = Reduced();
        for (var j = thread; j < len; j += THREADS) {
            let e = exp(weights[j] - largest);
            weights[j] = e;
            part += e;
        }
        let chunk_sum = sum_over(part, thread);
        let joined = joint(top, largest);
        let is_first = chunk == first_chunk;
        for (var i = thread; i < pairs; i += THREADS) {
            var s = Pair();
            for (var j = 0u; j < len; j++) {
                let v = value_pair(chunk_cells[j], i);
                s = Pair(fma(weights[j], Reduced(v.x), s.x), fma(weights[j], Reduced(v.y), s.y));
            }
            if !is_first {
                s = Pair(fma(s.x, joined.take, sums[i].x * joined.keep), fma(s.y, joined.take, sums[i].y * joined.keep));
            }
            sums[i] = s;
        }
        if is_first {
            top = largest;
            sum = chunk_sum;
        } else {
            top = joined.top;
            sum = fma(chunk_sum, joined.take, sum * joined.keep);
        }
        workgroupBarrier();
    }
    // Each thread has its pairs still.
    if SPLIT && first_chunk >= end_chunk {
        return;
    }
    for (var h = 0u; h < count; h++) {
        if SPLIT {
            let at = ((row * p.heads + head + h) * p.most_chunks + first_chunk) * (p.head_stride + 2u);
            for (var i = thread; i < pairs; i += THREADS) {
                out[at + 2u * i] = of_head(sums[i].x, h);
                out[at + 2u * i + 1u] = of_head(sums[i].y, h);
            }
            if thread == 0u {
                out[at + p.head_stride] = of_head(top, h);
                out[at + p.head_stride + 1u] = of_head(sum, h);
            }
        } else {
            let at = row * p.out_stride + (head + h) * p.head_dim;
            let all = whole(of_head(top, h), of_head(sum, h), head + h);
            for (var i = thread; i < pairs; i += THREADS) {
                if 2u * i < p.head_dim {
                    let v = of_head(sums[i].x, h) * all.keep / all.sum;
                    out[at + 2u * i] = v;
                    keep(2u * i, v);
                }
                if 2u * i + 1u < p.head_dim {
                    let v = of_head(sums[i].y, h) * all.keep / all.sum;
                    out[at + 2u * i + 1u] = v;
                    keep(2u * i + 1u, v);
                }
            }
            round_head(at / 32u, thread);
        }
    }
}
