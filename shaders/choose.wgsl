// The experts that a row goes through and what they weigh, from the router's scores. An expert is chosen if fewer than
// `used` others are better; equal ones go by their numbers. Needs one.wgsl and reduce_shared.wgsl.

override THREADS: u32 = 8u;

const SOFTMAX = 0u;
const SIGMOID = 1u;
const SOFTMAX_OF_CHOSEN = 2u;

// NaN counts as the lowest score, so that every row has a choice.
const LEAST = -3.0e38;

struct Params {
    experts: u32,
    used: u32,
    scores_stride: u32,
    scores_first: u32,
    chosen_stride: u32,
    gating: u32,
    // Added for the choice alone.
    has_bias: u32,
    // By which an expert's weight is multiplied.
    has_factors: u32,
    // The best of so many groups are chosen from; one group is none.
    groups: u32,
    groups_used: u32,
    renormalises: u32,
    scale: f32,
    // Where a row's weights begin.
    weights_at: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> scores: array<f32>; // [rows, scores_stride]
@group(0) @binding(2) var<storage, read> bias: array<f32>; // [experts]
@group(0) @binding(3) var<storage, read> factors: array<f32>; // [experts]
@group(0) @binding(4) var<storage, read_write> chosen: array<f32>; // [rows, chosen_stride]: numbers, weights

var<workgroup> weights: array<f32, 1024>;
var<workgroup> keys: array<f32, 1024>;
var<workgroup> group_keys: array<f32, 512>;
var<workgroup> picked: array<u32, 1024>;

fn is_number(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) <= 0x7f800000u;
}

fn softmax(thread: u32) {
    var largest = LEAST;
    for (var i = thread; i < p.experts; i += THREADS) {
        largest = max(largest, weights[i]);
    }
    largest = max_over(largest, thread);
    var sum = 0.0;
    for (var i = thread; i < p.experts; i += THREADS) {
        let e = exp(weights[i] - largest);
        weights[i] = e;
        sum += e;
    }
    sum = sum_over(sum, thread);
    for (var i = thread; i < p.experts; i += THREADS) {
        weights[i] /= sum;
    }
}

// The sum of the two best of a group.
fn best_two(group: u32, size: u32) -> f32 {
    var best = LEAST;
    var second = LEAST;
    for (var i = group * size; i < (group + 1u) * size; i++) {
        if keys[i] > best {
            second = best;
            best = keys[i];
        } else if keys[i] > second {
            second = keys[i];
        }
    }
    return max(best + second, LEAST);
}

fn sum_of(count: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < count; i++) {
        sum += keys[i];
    }
    return sum;
}

fn divide(by: f32) {
    for (var i = 0u; i < p.used; i++) {
        keys[i] /= by;
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let start = group.y * p.scores_stride + p.scores_first;
    let to = group.y * p.chosen_stride;
    for (var i = thread; i < p.experts; i += THREADS) {
        weights[i] = scores[start + i];
    }
    if p.gating == SOFTMAX {
        softmax(thread);
    }
    for (var i = thread; i < p.experts; i += THREADS) {
        // Not in the loop before: with that Microsoft's older compiler refuses the barriers of the softmax.
        if p.gating == SIGMOID {
            weights[i] = 1.0 / (1.0 + exp(min(-weights[i], 88.0)));
        }
        var key = weights[i];
        if p.has_bias != 0u {
            key += bias[i];
        }
        if !is_number(key) {
            key = LEAST;
        }
        keys[i] = key;
    }
    workgroupBarrier();
    if p.groups > 1u {
        let size = p.experts / p.groups;
        for (var i = thread; i < p.groups; i += THREADS) {
            group_keys[i] = best_two(i, size);
        }
        workgroupBarrier();
        for (var i = thread; i < p.experts; i += THREADS) {
            let mine = i / size;
            var better = 0u;
            for (var other = 0u; other < p.groups; other++) {
                let key = group_keys[other];
                better += u32(key > group_keys[mine] || (key == group_keys[mine] && other < mine));
            }
            if better >= p.groups_used {
                keys[i] = LEAST;
            }
        }
        workgroupBarrier();
    }
    for (var i = thread; i < p.experts; i += THREADS) {
        var better = 0u;
        for (var other = 0u; other < p.experts; other++) {
            better += u32(keys[other] > keys[i] || (keys[other] == keys[i] && other < i));
        }
        if better < p.used {
            picked[better] = i;
        }
    }
    workgroupBarrier();
    if thread != 0u {
        return;
    }
    // From here on they are few.
    for (var i = 0u; i < p.used; i++) {
        keys[i] = weights[picked[i]];
    }
    if p.gating == SOFTMAX_OF_CHOSEN {
        var largest = LEAST;
        for (var i = 0u; i < p.used; i++) {
            largest = max(largest, keys[i]);
        }
        for (var i = 0u; i < p.used; i++) {
            keys[i] = exp(keys[i] - largest);
        }
        divide(sum_of(p.used));
    }
    if p.renormalises != 0u {
        divide(max(sum_of(p.used), 6.1035156e-5));
    }
    for (var i = 0u; i < p.used; i++) {
        var weight = keys[i] * p.scale;
        if p.has_factors != 0u {
            weight *= factors[picked[i]];
        }
        chosen[to + i] = f32(picked[i]);
        chosen[to + p.weights_at + i] = weight;
    }
}
