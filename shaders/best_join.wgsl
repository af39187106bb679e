// The best of a row from those of its spans, and the logarithm of the sum of all exponentials. Needs the text of rank.

@group(0) @binding(1) var<storage, read> found: array<u32>; // [rows, spans, 1 + 2k]: the sum; keys and ids
@group(0) @binding(2) var<storage, read_write> best: array<u32>; // [rows, 1 + 2k]: the logarithm; ids and logits

// How many of each span are taken. A thread has every THREADS-th span.
var<workgroup> taken: array<u32, MOST_SPANS>;
var<workgroup> sums: array<f32, 256>;

// The best key of a thread's spans that is not taken, with its id.
fn own_best(row: u32, thread: u32) -> vec2<u32> {
    var best = vec2(NOTHING, SPAN * thread);
    for (var span = thread; span < p.spans; span += THREADS) {
        let next = taken[span];
        if next < p.k {
            let at = (row * p.spans + span) * (1u + 2u * p.k) + 1u + 2u * next;
            let candidate = vec2(found[at], found[at + 1u]);
            if is_better(candidate, best) {
                best = candidate;
            }
        }
    }
    return best;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.x;
    for (var span = thread; span < p.spans; span += THREADS) {
        taken[span] = 0u;
    }
    let to = row * (1u + 2u * p.k);
    var own = own_best(row, thread);
    for (var n = 0u; n < p.k; n++) {
        let winner = best_of_all(own, thread);
        if n == 0u {
            var sum = 0.0;
            if is_finite(winner.x) {
                let highest = bitcast<f32>(unrank(winner.x));
                for (var span = thread; span < p.spans; span += THREADS) {
                    let at = (row * p.spans + span) * (1u + 2u * p.k);
                    if is_finite(found[at + 1u]) {
                        let of_span = bitcast<f32>(unrank(found[at + 1u]));
                        sum += bitcast<f32>(found[at]) * exp(max(of_span, highest - 100.0) - highest);
                    }
                }
            }
            sums[thread] = sum;
            workgroupBarrier();
            if thread == 0u {
                var log_sum = select(0xff800000u, 0x7f800000u, winner.x > HIGHEST_FINITE);
                if is_finite(winner.x) {
                    var all = 0.0;
                    for (var i = 0u; i < THREADS; i++) {
                        all += sums[i];
                    }
                    log_sum = bitcast<u32>(bitcast<f32>(unrank(winner.x)) + log(all));
                }
                best[to] = log_sum;
            }
        }
        workgroupBarrier();
        if thread == 0u {
            // No token where there are no more.
            best[to + 1u + 2u * n] = select(winner.y, 0xffffffffu, winner.x == NOTHING);
            best[to + 2u + 2u * n] = unrank(winner.x);
        }
        if winner.x != NOTHING && (winner.y / SPAN) % THREADS == thread {
            taken[winner.y / SPAN] += 1u;
            own = own_best(row, thread);
        }
    }
}
