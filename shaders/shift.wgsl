// Copies the keys and values of cells and turns the keys by a number of positions.

struct Params {
    kv_heads: u32,
    head_dim: u32,
    turned: u32,
    halves: u32,
    cells: u32,
    key_words: u32,
    value_words: u32,
    key_halves: u32,
    // The list may be longer than a row of workgroups.
    moves: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> moves: array<vec2<u32>>; // from, to
@group(0) @binding(2) var<storage, read> turns: array<vec2<f32>>; // cosine and sine: [turned]
@group(0) @binding(3) var<storage, read_write> keys: array<u32>; // [kv_heads, cells, key_words]
@group(0) @binding(4) var<storage, read_write> values: array<u32>; // [kv_heads, cells, value_words]

var<workgroup> head: array<f32, 512>;

@compute @workgroup_size(32)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = group.y * groups.x + group.x;
    if at >= p.moves {
        return;
    }
    let step = moves[at];
    let key_from = (group.z * p.cells + step.x) * p.key_words;
    let key_to = (group.z * p.cells + step.y) * p.key_words;
    for (var i = thread; i < p.key_words; i += 32u) {
        let word = keys[key_from + i];
        if p.key_halves != 0u {
            let two = unpack2x16float(word);
            head[2u * i] = two.x;
            head[2u * i + 1u] = two.y;
        } else {
            head[i] = bitcast<f32>(word);
        }
    }
    workgroupBarrier();
    for (var i = thread; i < p.turned; i += 32u) {
        let a = select(2u * i, i, p.halves != 0u);
        let b = select(2u * i + 1u, i + p.turned, p.halves != 0u);
        let x = head[a];
        let y = head[b];
        head[a] = fma(x, turns[i].x, -(y * turns[i].y));
        head[b] = fma(x, turns[i].y, y * turns[i].x);
    }
    workgroupBarrier();
    for (var i = thread; i < p.key_words; i += 32u) {
        if p.key_halves != 0u {
            keys[key_to + i] = pack2x16float(vec2<f32>(head[2u * i], head[2u * i + 1u]));
        } else {
            keys[key_to + i] = bitcast<u32>(head[i]);
        }
    }
    if step.x != step.y {
        let start = (group.z * p.cells + step.x) * p.value_words;
        let to = (group.z * p.cells + step.y) * p.value_words;
        for (var i = thread; i < p.value_words; i += 32u) {
            values[to + i] = values[start + i];
        }
    }
}
