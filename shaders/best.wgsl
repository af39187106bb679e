// The best logits of each span of a row, in order, and the sum of the span's exponentials. Needs the text of rank.

@group(0) @binding(1) var<storage, read> logits: array<u32>; // [rows, n_vocab]
@group(0) @binding(2) var<storage, read_write> found: array<u32>; // [rows, spans, 1 + 2k]: the sum; keys and ids

var<workgroup> sums: array<f32, 256>;

// Of a thread's places, every THREADS-th, what comes next after `last`.
fn next_best(start: u32, len: u32, thread: u32, last: vec2<u32>) -> vec2<u32> {
    var best = vec2(NOTHING, thread);
    for (var i = thread; i < len; i += THREADS) {
        let candidate = vec2(rank(logits[start + i]), i);
        if is_better(last, candidate) && is_better(candidate, best) {
            best = candidate;
        }
    }
    return best;
}

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
    let to = (group.y * p.spans + group.x) * (1u + 2u * p.k);
    var own = next_best(start, len, thread, vec2(0xffffffffu, 0u));
    for (var n = 0u; n < p.k; n++) {
        let winner = best_of_all(own, thread);
        if n == 0u {
            sums[thread] = 0.0;
            if is_finite(winner.x) {
                sums[thread] = own_sum(start, len, thread, bitcast<f32>(unrank(winner.x)));
            }
        }
        workgroupBarrier();
        if thread == 0u {
            found[to + 1u + 2u * n] = winner.x;
            found[to + 2u + 2u * n] = first + winner.y;
        }
        if n + 1u < p.k && winner.y % THREADS == thread {
            own = next_best(start, len, thread, winner);
        }
    }
    if thread == 0u {
        var sum = 0.0;
        for (var i = 0u; i < THREADS; i++) {
            sum += sums[i];
        }
        found[to] = bitcast<u32>(sum);
    }
}
