// What finding the best logits has in common. Logits are taken as integers in the order of the sampler: equal for the
// two zeros, NaN below everything. WGSL promises nothing about infinities and NaN in float arithmetic. Needs `logits`.

override THREADS: u32 = 8u;

struct Params {
    n_vocab: u32,
    // Spans in a row.
    spans: u32,
    // How many of the best.
    k: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

const SPAN: u32 = 1024u;
const MOST_SPANS: u32 = 1024u;

const NOTHING: u32 = 0u;
const NAN: u32 = 1u;
const LOWEST_FINITE: u32 = 0x00800000u;
const HIGHEST_FINITE: u32 = 0xff7fffffu;

fn rank(bits: u32) -> u32 {
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return NAN;
    }
    if bits >= 0x80000001u {
        return ~bits;
    }
    return bits | 0x80000000u;
}

fn unrank(key: u32) -> u32 {
    if key <= NAN {
        return 0x7fc00000u;
    }
    return select(~key, key & 0x7fffffffu, key >= 0x80000000u);
}

fn is_finite(key: u32) -> bool {
    return key >= LOWEST_FINITE && key <= HIGHEST_FINITE;
}

// Key and place: the higher key, among equals the lower place.
fn is_better(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x > b.x || (a.x == b.x && a.y < b.y);
}

// Before all others.
const FIRST: vec2<u32> = vec2<u32>(0xffffffffu, 0u);

// Of a thread's logits among `len` from `start` on, every THREADS-th, what comes next after `last`.
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

var<workgroup> bests: array<vec2<u32>, 256>;

// The best of what each thread has. Before it is called again, all threads must have come by a barrier.
fn best_of_all(own: vec2<u32>, thread: u32) -> vec2<u32> {
    bests[thread] = own;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if thread < half && is_better(bests[thread + half], bests[thread]) {
            bests[thread] = bests[thread + half];
        }
        workgroupBarrier();
    }
    return bests[0];
}
