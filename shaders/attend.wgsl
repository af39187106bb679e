// Attention of one head of one row. As a whole it walks all chunks; split, each workgroup makes one chunk, and
// attend_join.wgsl joins them. Needs attention.wgsl and a text of sums (reduce_*).

override SPLIT: bool = false;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> lists: array<u32>; // cells
@group(0) @binding(3) var<storage, read> q: array<vec4<f32>>; // [rows, heads, head_stride / 4]
@group(0) @binding(4) var<storage, read> keys: array<vec4<u32>>; // [kv_heads, cells, key_words / 4]
@group(0) @binding(5) var<storage, read> values: array<u32>; // [kv_heads, cells, value_words]
// Whole: [rows, out_stride]. Split: [rows, heads, most_chunks, head_stride + 2], maximum and sum last.
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

var<workgroup> weights: array<f32, 256>;
var<workgroup> chunk_cells: array<u32, 256>;
// Pairs of the head.
var<workgroup> sums: array<vec2<f32>, 256>;

fn score(query: u32, key: u32) -> f32 {
    var acc = vec4<f32>(0.0);
    if p.key_halves != 0u {
        for (var i = 0u; i < p.key_words / 4u; i++) {
            let k = keys[key + i];
            acc = fma(q[query + 2u * i], vec4<f32>(unpack2x16float(k.x), unpack2x16float(k.y)), acc);
            acc = fma(q[query + 2u * i + 1u], vec4<f32>(unpack2x16float(k.z), unpack2x16float(k.w)), acc);
        }
    } else {
        for (var i = 0u; i < p.key_words / 4u; i++) {
            acc = fma(q[query + i], bitcast<vec4<f32>>(keys[key + i]), acc);
        }
    }
    return ((acc.x + acc.y) + (acc.z + acc.w)) * p.scale;
}

fn value_pair(at: u32, pair: u32) -> vec2<f32> {
    if p.value_halves != 0u {
        return unpack2x16float(values[at + pair]);
    }
    return vec2<f32>(bitcast<f32>(values[at + 2u * pair]), bitcast<f32>(values[at + 2u * pair + 1u]));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, me: Lanes) {
    let thread = me.thread;
    let head = group.x;
    let row = group.z;
    let kv_head = head / p.group;
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
    var top = 0.0;
    var sum = 0.0;
    for (var chunk = first_chunk; chunk < end_chunk; chunk++) {
        let first = span.first + chunk * CHUNK;
        let len = min(CHUNK, span.len - chunk * CHUNK);
        var largest = -3.0e38;
        for (var j = thread; j < len; j += THREADS) {
            let cell = lists[first + j];
            let s = score(query, (kv_head * p.cells + cell) * (p.key_words / 4u));
            chunk_cells[j] = (kv_head * p.cells + cell) * p.value_words;
            weights[j] = s;
            largest = max(largest, s);
        }
        largest = max_over(largest, me);
        var part = 0.0;
        for (var j = thread; j < len; j += THREADS) {
            let e = exp(weights[j] - largest);
            weights[j] = e;
            part += e;
        }
        let chunk_sum = sum_and_sync(part, me);
        let joined = joint(top, largest);
        let is_first = chunk == first_chunk;
        for (var i = thread; i < pairs; i += THREADS) {
            var v = vec2<f32>(0.0);
            for (var j = 0u; j < len; j++) {
                v = fma(vec2<f32>(weights[j]), value_pair(chunk_cells[j], i), v);
            }
            if !is_first {
                v = fma(v, vec2<f32>(joined.take), sums[i] * joined.keep);
            }
            sums[i] = v;
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
    if SPLIT {
        if first_chunk < end_chunk {
            let at = ((row * p.heads + head) * p.most_chunks + first_chunk) * (p.head_stride + 2u);
            for (var i = thread; i < pairs; i += THREADS) {
                out[at + 2u * i] = sums[i].x;
                out[at + 2u * i + 1u] = sums[i].y;
            }
            if thread == 0u {
                out[at + p.head_stride] = top;
                out[at + p.head_stride + 1u] = sum;
            }
        }
        return;
    }
    let at = row * p.out_stride + head * p.head_dim;
    for (var i = thread; i < pairs; i += THREADS) {
        let result = sums[i] / sum;
        if 2u * i < p.head_dim {
            out[at + 2u * i] = result.x;
        }
        if 2u * i + 1u < p.head_dim {
            out[at + 2u * i + 1u] = result.y;
        }
    }
}
