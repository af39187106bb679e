// The best logits of each span of a row, in order, and the sum of the span's exponentials. Needs the text of rank.

override THREADS: u32 = 8u;

struct Params {
    n_vocab: u32,
    // Spans in a row.
    spans: u32,
    // How many of the best.
    k: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<u32>; // [rows, n_vocab]
@group(0) @binding(2) var<storage, read_write> found: array<u32>; // [rows, spans, 1 + 2k]: the sum; keys and ids

// A thread has every THREADS-th place; what was taken is NOTHING from then on.
var<workgroup> keys: array<u32, SPAN>;
var<workgroup> bests: array<vec2<u32>, 256>;
var<workgroup> sums: array<f32, 256>;

// Of a thread's places.
fn own_best(thread: u32) -> vec2<u32> {
    var best = vec2(NOTHING, thread);
    for (var i = thread; i < SPAN; i += THREADS) {
        let candidate = vec2(keys[i], i);
        if is_better(candidate, best) {
            best = candidate;
        }
    }
    return best;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = SPAN * group.x;
    let start = group.y * p.n_vocab + first;
    for (var i = thread; i < SPAN; i += THREADS) {
        var key = NOTHING;
        if first + i < p.n_vocab {
            key = rank(logits[start + i]);
        }
        keys[i] = key;
    }
    let to = (group.y * p.spans + group.x) * (1u + 2u * p.k);
    var own = own_best(thread);
    for (var n = 0u; n < p.k; n++) {
        bests[thread] = own;
        workgroupBarrier();
        for (var half = THREADS / 2u; half > 0u; half /= 2u) {
            if thread < half && is_better(bests[thread + half], bests[thread]) {
                bests[thread] = bests[thread + half];
            }
            workgroupBarrier();
        }
        let winner = bests[0];
        if n == 0u {
            // While all are there; relative to the highest.
            var sum = 0.0;
            if is_finite(winner.x) {
                let highest = bitcast<f32>(unrank(winner.x));
                for (var i = thread; i < SPAN; i += THREADS) {
                    if is_finite(keys[i]) {
                        sum += exp(max(bitcast<f32>(unrank(keys[i])), highest - 100.0) - highest);
                    }
                }
            }
            sums[thread] = sum;
        }
        workgroupBarrier();
        if thread == 0u {
            found[to + 1u + 2u * n] = winner.x;
            found[to + 2u + 2u * n] = first + winner.y;
        }
        if winner.y % THREADS == thread {
            keys[winner.y] = NOTHING;
            own = own_best(thread);
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
