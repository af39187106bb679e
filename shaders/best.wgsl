// The best logit of each span of a row, and the sum of the span's exponentials. Needs one.wgsl, reduce_shared.wgsl and
// rank.wgsl.

@group(0) @binding(1) var<storage, read> logits: array<u32>; // [rows, n_vocab]
@group(0) @binding(2) var<storage, read_write> found: array<u32>; // [rows, spans, 3]: the sum; key and id

// Relative to the highest.
fn own_sum(start: u32, len: u32, thread: u32, highest: f32) -> f32 {
    var sum = 0.0;
    for (var i = thread; i < len; i += THREADS) {
        let bits = logits[start + i];
        if (bits & 0x7f800000u) != 0x7f800000u {
            sum += exp(max(bitcast<f32>(bits), highest - 100.0) - highest);
        }
    }
    return sum;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = SPAN * group.x;
    let start = group.y * p.n_vocab + first;
    let len = min(SPAN, p.n_vocab - first);
    let winner = best_of_all(next_best(start, len, thread, FIRST), thread);
    var own = 0.0;
    if is_finite(winner.x) {
        own = own_sum(start, len, thread, bitcast<f32>(unrank(winner.x)));
    }
    let sum = sum_over(own, thread);
    if thread == 0u {
        let to = (group.y * p.spans + group.x) * 3u;
        found[to] = bitcast<u32>(sum);
        found[to + 1u] = winner.x;
        found[to + 2u] = first + winner.y;
    }
}
