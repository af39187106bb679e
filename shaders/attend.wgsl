// Attention of one row, for the heads of one workgroup (head_*). As a whole it walks all chunks; split, each
// workgroup makes one chunk, and attend_join.wgsl joins them. Needs attention.wgsl, joint.wgsl, scores.wgsl, weighted.wgsl
// and a text that says what becomes of a head (head_plain or head_prepare).

override SPLIT: bool = false;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> lists: array<u32>; // cells
@group(0) @binding(3) var<storage, read> q: array<vec4<f32>>; // [rows, heads, head_stride / 4]
@group(0) @binding(4) var<storage, read> keys: array<vec4<u32>>; // [kv_heads, cells, key_words / 4]
@group(0) @binding(5) var<storage, read> values: array<u32>; // [kv_heads, cells, value_words]
@group(0) @binding(6) var<storage, read> sinks: array<f32>; // [heads]
// Whole: [rows, out_stride]. Split: [group rows, heads, most_chunks, head_stride + 2], maximum and sum last.
@group(0) @binding(7) var<storage, read_write> out: array<f32>;

// Takes a chunk's sums of a pair into what the chunks before gave, which is where the result will be: only this thread
// goes there. `at`: of the first head; the next ones are `next` apart.
fn take_in(at: u32, next: u32, has_second: bool, count: u32, sums: Pair, joined: Joint, is_first: bool) {
    for (var h = 0u; h < count; h++) {
        let keep = of_head(joined.keep, h);
        let take = of_head(joined.take, h);
        var x = of_head(sums.x, h);
        var y = of_head(sums.y, h);
        if !is_first {
            x = fma(x, take, out[at + h * next] * keep);
            if has_second {
                y = fma(y, take, out[at + h * next + 1u] * keep);
            }
        }
        out[at + h * next] = x;
        if has_second {
            out[at + h * next + 1u] = y;
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    // The heads that share keys and values, in pieces.
    let pieces = (p.group + AT_ONCE - 1u) / AT_ONCE;
    let kv_head = group.x / pieces;
    let in_group = AT_ONCE * (group.x % pieces);
    let head = kv_head * p.group + in_group;
    let count = min(AT_ONCE, p.group - in_group);
    let row = p.first_row + group.z;
    let span_at = p.spans_at + 2u * (rows[p.view_at] * p.view_rows + row);
    let span = Span(rows[span_at], rows[span_at + 1u]);
    let chunks = (span.len + CHUNK - 1u) / CHUNK;
    var first_chunk = 0u;
    var end_chunk = chunks;
    // Where the first head's numbers go, those of the next, and how many there are.
    var to = row * p.out_stride + head * p.head_dim;
    var next = p.head_dim;
    var len_of_head = p.head_dim;
    if SPLIT {
        first_chunk = group.y;
        end_chunk = min(chunks, group.y + 1u);
        to = ((group.z * p.heads + head) * p.most_chunks + first_chunk) * (p.head_stride + 2u);
        next = p.most_chunks * (p.head_stride + 2u);
        len_of_head = p.head_stride;
    }
    let queries = queries_from((row * p.heads + head) * (p.head_stride / 4u), count - 1u);
    // Pairs are made by a share's threads side by side.
    let pairs = (len_of_head + 1u) / 2u;
    let at_once = THREADS / SHARES;
    let share = thread / at_once;
    let own_pair = thread % at_once;
    var top = Reduced();
    var sum = Reduced();
    for (var chunk = first_chunk; chunk < end_chunk; chunk++) {
        let first = span.first + chunk * CHUNK;
        let len = min(CHUNK, span.len - chunk * CHUNK);
        var largest = Reduced(-3.0e38);
        for (var j = thread; j < len; j += THREADS) {
            let cell = kv_head * p.cells + lists[first + j];
            let s = score(queries, cell * (p.key_words / 4u));
            value_places[j] = cell * p.value_words;
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
        for (var first_pair = 0u; first_pair < pairs; first_pair += at_once) {
            let pair = first_pair + own_pair;
            var s = Pair();
            if pair < pairs {
                s = sums_of_share(share, len, pair);
            }
            if SHARES > 1u {
                let x = over_shares(s.x, thread);
                let y = over_shares(s.y, thread);
                s = Pair(x, y);
            }
            if share == 0u && pair < pairs {
                take_in(to + 2u * pair, next, 2u * pair + 1u < len_of_head, count, s, joined, is_first);
            }
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
    if SPLIT && first_chunk >= end_chunk {
        return;
    }
    for (var h = 0u; h < count; h++) {
        let at = to + h * next;
        if SPLIT {
            if thread == 0u {
                out[at + p.head_stride] = of_head(top, h);
                out[at + p.head_stride + 1u] = of_head(sum, h);
            }
        } else {
            let all = whole(of_head(top, h), of_head(sum, h), head + h);
            if share == 0u {
                for (var pair = own_pair; pair < pairs; pair += at_once) {
                    for (var i = 2u * pair; i < min(2u * pair + 2u, p.head_dim); i++) {
                        let v = head_number(out[at + i], all);
                        out[at + i] = v;
                        keep(i, v);
                    }
                }
            }
            prepare_head(at / 32u, thread);
        }
    }
}
