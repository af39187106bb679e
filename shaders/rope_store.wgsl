// One head of one row: queries and keys are normed where the model wants it and rotated, keys and values stored in
// their cell. The heads of a row are those of the queries, then of the keys, then of the values. Needs a text of
// sums (reduce_*), stored.wgsl and stored_head.wgsl.

override THREADS: u32 = 8u;

struct Params {
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    // Pairs that turn, and whether they are the halves of a head or neighbours.
    turned: u32,
    halves: u32,
    // Numbers in a row of `qkv`, and in a head of `q`.
    qkv_stride: u32,
    head_stride: u32,
    cells: u32,
    // Where the rows' cells begin in `rows`.
    cells_at: u32,
    // Words of a stored key and value.
    key_words: u32,
    value_words: u32,
    // Bit 0: queries are normed, bit 1: keys.
    normed: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> turns: array<vec2<f32>>; // cosine and sine: [rows, turned]
@group(0) @binding(3) var<storage, read> qkv: array<f32>; // [rows, qkv_stride]
@group(0) @binding(4) var<storage, read> q_norm: array<f32>; // [head_dim]
@group(0) @binding(5) var<storage, read> k_norm: array<f32>; // [head_dim]
@group(0) @binding(6) var<storage, read_write> q: array<f32>; // [rows, heads, head_stride]
@group(0) @binding(7) var<storage, read_write> keys: array<u32>; // [kv_heads, cells, key_words]
@group(0) @binding(8) var<storage, read_write> values: array<u32>; // [kv_heads, cells, value_words]

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, me: Lanes) {
    let thread = me.thread;
    let row = group.y;
    let start = row * p.qkv_stride + group.x * p.head_dim;
    let is_query = group.x < p.heads;
    let is_key = !is_query && group.x < p.heads + p.kv_heads;
    var sum = 0.0;
    for (var i = thread; i < p.head_stride; i += THREADS) {
        var x = 0.0;
        if i < p.head_dim {
            x = qkv[start + i];
        }
        head[i] = x;
        sum = fma(x, x, sum);
    }
    if (is_query && (p.normed & 1u) != 0u) || (is_key && (p.normed & 2u) != 0u) {
        let square = sum_over(sum, me);
        let scale = 1.0 / sqrt(square / f32(p.head_dim) + p.eps);
        for (var i = thread; i < p.head_dim; i += THREADS) {
            var weight = q_norm[i];
            if is_key {
                weight = k_norm[i];
            }
            head[i] = head[i] * scale * weight;
        }
    }
    workgroupBarrier();
    if is_query || is_key {
        for (var i = thread; i < p.turned; i += THREADS) {
            let a = select(2u * i, i, p.halves != 0u);
            let b = select(2u * i + 1u, i + p.turned, p.halves != 0u);
            let turn = turns[row * p.turned + i];
            let x = head[a];
            let y = head[b];
            head[a] = fma(x, turn.x, -(y * turn.y));
            head[b] = fma(x, turn.y, y * turn.x);
        }
    }
    workgroupBarrier();
    let cell = rows[p.cells_at + row];
    if is_query {
        for (var i = thread; i < p.head_stride; i += THREADS) {
            q[(row * p.heads + group.x) * p.head_stride + i] = head[i];
        }
    } else if is_key {
        let to = ((group.x - p.heads) * p.cells + cell) * p.key_words;
        for (var i = thread; i < p.key_words; i += THREADS) {
            keys[to + i] = word(i, KEYS);
        }
    } else {
        let to = ((group.x - p.heads - p.kv_heads) * p.cells + cell) * p.value_words;
        for (var i = thread; i < p.value_words; i += THREADS) {
            values[to + i] = word(i, VALUES);
        }
    }
}
