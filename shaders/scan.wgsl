// A recurrence along the rows of each sequence, for some columns of a head's matrix S, which depend on no others. A gated
// delta net with queries and keys brought to length 1:
//   S = keep · S; S += k ⊗ (v - Sᵀk) · sigmoid(beta); out = Sᵀq / √rows
// A Mamba 2:
//   S = keep · S; S += k ⊗ v · size; out = Sᵀq + through · v
// LANES threads share a column, and each keeps sixteen of its numbers in registers from row to row. A row's sums are taken
// of S as it was, so that one pass over the lanes is enough for what is written and what comes out. Needs states.wgsl.

override LANES: u32 = 1u;
override GATED_DELTA: bool = true;

const THREADS = 64u;
// Numbers of a workgroup's part of a state: sixteen of each thread.
const PART = 1024u;

struct Params {
    layer: u32,
    heads: u32,
    // Of keys and queries; heads take them in turn, or neighbours share one.
    key_heads: u32,
    in_turn: u32,
    // vec4s of a key, and numbers of a value.
    key_quads: u32,
    columns: u32,
    // Workgroups of a head.
    groups: u32,
    // vec4s in a row of x, where queries and keys begin in it in vec4s, and where values do.
    x_stride: u32,
    q_first: u32,
    k_first: u32,
    v_first: u32,
    step_stride: u32,
    step_first: u32,
    beta_stride: u32,
    beta_first: u32,
    out_stride: u32,
    out_first: u32,
    // Numbers of a slab, where the matrices begin in it and its rows do, how long one of these is, and where its gates begin.
    slab: u32,
    matrices_at: u32,
    rows_at: u32,
    row_len: u32,
    gates_at: u32,
    eps: f32,
    out_scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>; // [rows, x_stride]
@group(0) @binding(3) var<storage, read> steps: array<f32>;
@group(0) @binding(4) var<storage, read> betas: array<f32>;
@group(0) @binding(5) var<storage, read> numbers: array<f32>; // of each head: biases of steps, decays, what goes through
@group(0) @binding(6) var<storage, read_write> states: array<f32>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;

// Of S before the row: q·q, k·k, Sᵀk and Sᵀq; and k·q. Rows take turns, so that none is overwritten while it is read.
var<workgroup> sums: array<vec4<f32>, 128>; // [2, THREADS]
var<workgroup> cross_sums: array<f32, 128>;

fn kept_gate(slab: u32, row: u32, gate: u32) -> u32 {
    return slab * p.slab + p.rows_at + row * p.row_len + p.gates_at + gate;
}

fn step_of(run: Run, n: u32, head: u32) -> f32 {
    if AGAIN {
        return states[kept_gate(run.rows_slab, n, head)];
    }
    return steps[row_of(run, n) * p.step_stride + p.step_first + head];
}

fn beta_of(run: Run, n: u32, head: u32) -> f32 {
    if AGAIN {
        return states[kept_gate(run.rows_slab, n, p.heads + head)];
    }
    return betas[row_of(run, n) * p.beta_stride + p.beta_first + head];
}

// What a state is read and written by; zeros beyond a key.
fn quad(first: u32, i: u32) -> vec4<f32> {
    if i < p.key_quads {
        return x[first + i];
    }
    return vec4<f32>(0.0);
}

fn load(at: u32) -> vec4<f32> {
    return vec4<f32>(states[at], states[at + THREADS], states[at + 2u * THREADS], states[at + 3u * THREADS]);
}

fn store(at: u32, s: vec4<f32>) {
    states[at] = s.x;
    states[at + THREADS] = s.y;
    states[at + 2u * THREADS] = s.z;
    states[at + 3u * THREADS] = s.w;
}

fn add(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

// log(1 + e^x), also where e^x is tiny compared with 1.
fn softplus(x: f32) -> f32 {
    if x > 20.0 {
        return x;
    }
    let e = exp(x);
    if e < 0.01 {
        return e * fma(e, fma(e, fma(e, -0.25, 1.0 / 3.0), -0.5), 1.0);
    }
    return log(1.0 + e);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let run = run_of(group.y, p.layer);
    let head = group.x / p.groups;
    let lane = thread % LANES;
    let column = (group.x % p.groups) * (THREADS / LANES) + thread / LANES;
    let first_lane = thread - lane;
    let key_head = select(head / (p.heads / p.key_heads), head % p.key_heads, p.in_turn != 0u);
    // Beyond the columns the last one is made again, and nothing put out.
    let value = p.v_first + head * p.columns + min(column, p.columns - 1u);
    let part = p.matrices_at + group.x * PART + thread;
    var s0 = vec4<f32>(0.0);
    var s1 = vec4<f32>(0.0);
    var s2 = vec4<f32>(0.0);
    var s3 = vec4<f32>(0.0);
    if run.from_slab != NONE {
        let at = run.from_slab * p.slab + part;
        s0 = load(at);
        s1 = load(at + 4u * THREADS);
        s2 = load(at + 8u * THREADS);
        s3 = load(at + 12u * THREADS);
    }
    for (var n = 0u; n < run.count; n++) {
        let row = row_of(run, n);
        let k_at = row * p.x_stride + p.k_first + key_head * p.key_quads;
        let k0 = quad(k_at, lane);
        let k1 = quad(k_at, lane + LANES);
        let k2 = quad(k_at, lane + 2u * LANES);
        let k3 = quad(k_at, lane + 3u * LANES);
        let q_at = row * p.x_stride + p.q_first + key_head * p.key_quads;
        let q0 = quad(q_at, lane);
        let q1 = quad(q_at, lane + LANES);
        let q2 = quad(q_at, lane + 2u * LANES);
        let q3 = quad(q_at, lane + 3u * LANES);
        let v = x[row * p.x_stride + value / 4u][value % 4u];
        let step = step_of(run, n, head);
        let size = softplus(step + numbers[head]);
        let keep = exp(size * numbers[p.heads + head]);
        let mine = (n & 1u) * THREADS;
        sums[mine + thread] = vec4<f32>(
            add(q3, q3, add(q2, q2, add(q1, q1, add(q0, q0, 0.0)))),
            add(k3, k3, add(k2, k2, add(k1, k1, add(k0, k0, 0.0)))),
            add(s3, k3, add(s2, k2, add(s1, k1, add(s0, k0, 0.0)))),
            add(s3, q3, add(s2, q2, add(s1, q1, add(s0, q0, 0.0)))));
        cross_sums[mine + thread] = add(k3, q3, add(k2, q2, add(k1, q1, add(k0, q0, 0.0))));
        workgroupBarrier();
        var sum = vec4<f32>(0.0);
        var cross = 0.0;
        for (var i = 0u; i < LANES; i++) {
            sum += sums[mine + first_lane + i];
            cross += cross_sums[mine + first_lane + i];
        }
        // What k is multiplied with where it is written, and q where it is read.
        var written = size * v;
        var read_scale = p.out_scale;
        var through = 0.0;
        if GATED_DELTA {
            let beta = beta_of(run, n, head);
            let by_k = 1.0 / max(sqrt(sum.y), p.eps);
            written = (v - keep * (sum.z * by_k)) * (by_k / (1.0 + exp(-beta)));
            read_scale = p.out_scale / max(sqrt(sum.x), p.eps);
        } else {
            through = numbers[2u * p.heads + head];
        }
        s0 = fma(k0, vec4<f32>(written), keep * s0);
        s1 = fma(k1, vec4<f32>(written), keep * s1);
        s2 = fma(k2, vec4<f32>(written), keep * s2);
        s3 = fma(k3, vec4<f32>(written), keep * s3);
        if !AGAIN && lane == 0u && column < p.columns {
            let result = fma(cross, written, keep * sum.w) * read_scale;
            out[row * p.out_stride + p.out_first + head * p.columns + column] = fma(through, v, result);
        }
        // The first workgroup of a head keeps its gates.
        if keeps_rows(run) && group.x % p.groups == 0u && thread == 0u {
            let kept = kept_row(run, n);
            states[kept_gate(run.to_slab, kept, head)] = step;
            if GATED_DELTA {
                states[kept_gate(run.to_slab, kept, p.heads + head)] = beta_of(run, n, head);
            }
        }
    }
    let at = run.to_slab * p.slab + part;
    store(at, s0);
    store(at + 4u * THREADS, s1);
    store(at + 8u * THREADS, s2);
    store(at + 12u * THREADS, s3);
}
