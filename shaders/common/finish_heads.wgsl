// Stores a finished sum of a query, a key or a value: pairs of neighbours are rotated, queries go where attention reads them,
// keys and values to their cells. The operations are those of rope_store.wgsl, and so are the bits. Heads
// have whole groups of eight numbers. Needs product.wgsl, halves.wgsl and stored.wgsl; y: [columns, heads, head_dim].

@group(0) @binding(7) var<storage, read> rows: array<u32>;
@group(0) @binding(8) var<storage, read> turns: array<vec2<f32>>; // cosine and sine: [columns, turns_stride]
@group(0) @binding(9) var<storage, read_write> keys: array<u32>; // [kv_heads, cells, key_words]
@group(0) @binding(10) var<storage, read_write> values: array<u32>; // [kv_heads, cells, value_words]

// No such place.
const NONE = 0xffffffffu;

// The sums of an even row and of the one after it.
fn finish(column: u32, row: u32, sums: vec2<f32>) {
    if row >= p.rows {
        return;
    }
    var x = sums;
    if p.has_bias != 0u {
        x += vec2<f32>(bias_of(column, row), bias_of(column, row + 1u));
    }
    let head = (p.head_row + row) / p.head_dim;
    let i = (p.head_row + row) % p.head_dim;
    let is_query = head < p.heads;
    let is_key = !is_query && head < p.heads + p.kv_heads;
    if (is_query || is_key) && i < 2u * p.turned {
        let turn = turns[column * p.turns_stride + p.turns_at + i / 2u];
        x = vec2<f32>(fma(x.x, turn.x, -(x.y * turn.y)), fma(x.x, turn.y, x.y * turn.x));
    }
    if is_query {
        var factor = 1.0;
        if p.factor_at != NONE {
            factor = turns[column * p.turns_stride + p.factor_at].x;
        }
        let to = (column * p.heads + head) * p.head_dim + i;
        y[to] = x.x * factor;
        y[to + 1u] = x.y * factor;
        return;
    }
    let cell = rows[p.cells_at + column];
    if is_key {
        let to = ((head - p.heads) * p.cells + cell) * p.key_words;
        if KEYS == IN_F16 {
            keys[to + i / 2u] = two_halves_of(x);
        } else {
            keys[to + i] = bitcast<u32>(x.x);
            keys[to + i + 1u] = bitcast<u32>(x.y);
        }
        return;
    }
    let to = ((head - p.heads - p.kv_heads) * p.cells + cell) * p.value_words;
    if VALUES == IN_F16 {
        values[to + i / 2u] = two_halves_of(x);
    } else {
        values[to + i] = bitcast<u32>(x.x);
        values[to + i + 1u] = bitcast<u32>(x.y);
    }
}
