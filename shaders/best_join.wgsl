// The best of a row, in order, and the logarithm of the sum of all exponentials. Each is the best of some span, which
// is then searched for what comes next in it. Needs the text of rank.

@group(0) @binding(1) var<storage, read> logits: array<u32>; // [rows, n_vocab]
@group(0) @binding(2) var<storage, read> found: array<u32>; // [rows, spans, 3]: the sum; key and id
@group(0) @binding(3) var<storage, read_write> best: array<u32>; // [rows, 1 + 2k]: the logarithm; ids and logits

// The best of each span that is not taken: key and id.
var<workgroup> fronts: array<vec2<u32>, MOST_SPANS>;
var<workgroup> sums: array<f32, 256>;

// Of a thread's spans, every THREADS-th.
fn own_front(thread: u32) -> vec2<u32> {
    var front = vec2(NOTHING, SPAN * thread);
    for (var span = thread; span < p.spans; span += THREADS) {
        if is_better(fronts[span], front) {
            front = fronts[span];
        }
    }
    return front;
}

// Relative to the highest.
fn own_sum(row: u32, thread: u32, highest: f32) -> f32 {
    var sum = 0.0;
    for (var span = thread; span < p.spans; span += THREADS) {
        if is_finite(fronts[span].x) {
            let of_span = bitcast<f32>(unrank(fronts[span].x));
            let relative = exp(max(of_span, highest - 100.0) - highest);
            sum += bitcast<f32>(found[(row * p.spans + span) * 3u]) * relative;
        }
    }
    return sum;
}

// Of all threads' sums; in thread 0.
fn log_sum(highest: u32) -> u32 {
    if !is_finite(highest) {
        return select(0xff800000u, 0x7f800000u, highest > HIGHEST_FINITE);
    }
    var all = 0.0;
    for (var i = 0u; i < THREADS; i++) {
        all += sums[i];
    }
    return bitcast<u32>(bitcast<f32>(unrank(highest)) + log(all));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.x;
    let to = row * (1u + 2u * p.k);
    for (var span = thread; span < p.spans; span += THREADS) {
        let at = (row * p.spans + span) * 3u;
        fronts[span] = vec2(found[at + 1u], found[at + 2u]);
    }
    for (var n = 0u; n < p.k; n++) {
        let winner = best_of_all(own_front(thread), thread);
        if n == 0u {
            if is_finite(winner.x) {
                sums[thread] = own_sum(row, thread, bitcast<f32>(unrank(winner.x)));
            }
            workgroupBarrier();
            if thread == 0u {
                best[to] = log_sum(winner.x);
            }
        }
        if thread == 0u {
            // No token where there are no more.
            best[to + 1u + 2u * n] = select(winner.y, 0xffffffffu, winner.x == NOTHING);
            best[to + 2u + 2u * n] = unrank(winner.x);
        }
        if n + 1u < p.k {
            let span = winner.y / SPAN;
            let first = SPAN * span;
            let taken = vec2(winner.x, winner.y - first);
            let start = row * p.n_vocab + first;
            let next = next_best(start, min(SPAN, p.n_vocab - first), thread, taken);
            workgroupBarrier();
            let front = best_of_all(next, thread);
            if span % THREADS == thread {
                fronts[span] = vec2(front.x, first + front.y);
            }
            workgroupBarrier();
        }
    }
}
