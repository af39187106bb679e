// One head of one row: queries and keys are normed where the model wants it and rotated, keys and values stored in
// their cell. The heads of a row are those of the queries, then of the keys, then of the values; where they lie apart,
// each kind is a dispatch. Needs reduce_shared.wgsl, stored.wgsl and stored_head.wgsl.

override THREADS: u32 = 8u;

// Of `flags`.
const QUERIES_NORMED = 1u;
const KEYS_NORMED = 2u;
// Less their mean.
const QUERIES_CENTRED = 4u;
const KEYS_CENTRED = 8u;
const NORMED_AFTER = 16u;

// No such place.
const NONE = 0xffffffffu;

struct Params {
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    // Of all heads, the first that is made here.
    first_head: u32,
    // Numbers in a row of `heads_in`, and where that head begins in it.
    in_stride: u32,
    in_first: u32,
    // Pairs that turn, and whether they are the halves of a head or neighbours.
    turned: u32,
    halves: u32,
    // Entries of a row of `turns`, where these pairs begin in it, and where the factor of queries is, if there is one.
    turns_stride: u32,
    turns_at: u32,
    factor_at: u32,
    // Numbers in a head of `q`.
    head_stride: u32,
    cells: u32,
    // Where the rows' cells begin in `rows`.
    cells_at: u32,
    // Words of a stored key and value.
    key_words: u32,
    value_words: u32,
    flags: u32,
    q_eps: f32,
    k_eps: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> turns: array<vec2<f32>>; // cosine and sine: [rows, turns_stride]
@group(0) @binding(3) var<storage, read> heads_in: array<f32>; // [rows, in_stride]
@group(0) @binding(4) var<storage, read> q_norm: array<f32>; // factors and summands: [2, head_dim]
@group(0) @binding(5) var<storage, read> k_norm: array<f32>; // the same
@group(0) @binding(6) var<storage, read_write> q: array<f32>; // [rows, heads, head_stride]
@group(0) @binding(7) var<storage, read_write> keys: array<u32>; // [kv_heads, cells, key_words]
@group(0) @binding(8) var<storage, read_write> values: array<u32>; // [kv_heads, cells, value_words]

fn normalise(is_key: bool, thread: u32) {
    var mean = 0.0;
    if (p.flags & select(QUERIES_CENTRED, KEYS_CENTRED, is_key)) != 0u {
        var sum = 0.0;
        for (var i = thread; i < p.head_dim; i += THREADS) {
            sum += head[i];
        }
        mean = sum_over(sum, thread) / f32(p.head_dim);
        // All have read the sums before the next are written.
        workgroupBarrier();
    }
    var squares = 0.0;
    for (var i = thread; i < p.head_dim; i += THREADS) {
        let x = head[i] - mean;
        squares = fma(x, x, squares);
    }
    let scale = 1.0 / sqrt(sum_over(squares, thread) / f32(p.head_dim) + select(p.q_eps, p.k_eps, is_key));
    for (var i = thread; i < p.head_dim; i += THREADS) {
        let x = (head[i] - mean) * scale;
        if is_key {
            head[i] = x * k_norm[i] + k_norm[p.head_dim + i];
        } else {
            head[i] = x * q_norm[i] + q_norm[p.head_dim + i];
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.y;
    let start = row * p.in_stride + p.in_first + group.x * p.head_dim;
    let at = p.first_head + group.x;
    let is_query = at < p.heads;
    let is_key = !is_query && at < p.heads + p.kv_heads;
    for (var i = thread; i < p.head_stride; i += THREADS) {
        var x = 0.0;
        if i < p.head_dim {
            x = heads_in[start + i];
        }
        head[i] = x;
    }
    let normed = (is_query && (p.flags & QUERIES_NORMED) != 0u) || (is_key && (p.flags & KEYS_NORMED) != 0u);
    let after = (p.flags & NORMED_AFTER) != 0u;
    if normed && !after {
        normalise(is_key, thread);
    }
    workgroupBarrier();
    if is_query || is_key {
        for (var i = thread; i < p.turned; i += THREADS) {
            let a = select(2u * i, i, p.halves != 0u);
            let b = select(2u * i + 1u, i + p.turned, p.halves != 0u);
            let turn = turns[row * p.turns_stride + p.turns_at + i];
            let x = head[a];
            let y = head[b];
            head[a] = fma(x, turn.x, -(y * turn.y));
            head[b] = fma(x, turn.y, y * turn.x);
        }
    }
    workgroupBarrier();
    if normed && after {
        normalise(is_key, thread);
        workgroupBarrier();
    }
    let cell = rows[p.cells_at + row];
    if is_query {
        var factor = 1.0;
        if p.factor_at != NONE {
            factor = turns[row * p.turns_stride + p.factor_at].x;
        }
        for (var i = thread; i < p.head_stride; i += THREADS) {
            q[(row * p.heads + at) * p.head_stride + i] = head[i] * factor;
        }
    } else if is_key {
        let to = ((at - p.heads) * p.cells + cell) * p.key_words;
        for (var i = thread; i < p.key_words; i += THREADS) {
            keys[to + i] = word(i, KEYS);
        }
    } else {
        let to = ((at - p.heads - p.kv_heads) * p.cells + cell) * p.value_words;
        for (var i = thread; i < p.value_words; i += THREADS) {
            values[to + i] = word(i, VALUES);
        }
    }
}
