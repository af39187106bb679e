// Copies the keys and values of cells and turns the keys by a number of positions. Needs stored.wgsl and
// stored_head.wgsl.

struct Params {
    kv_heads: u32,
    head_dim: u32,
    turned: u32,
    halves: u32,
    cells: u32,
    key_words: u32,
    value_words: u32,
    // The list may be longer than a row of workgroups.
    moves: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> moves: array<vec2<u32>>; // from, to
@group(0) @binding(2) var<storage, read> turns: array<vec2<f32>>; // cosine and sine: [turned]
@group(0) @binding(3) var<storage, read_write> keys: array<u32>; // [kv_heads, cells, key_words]
@group(0) @binding(4) var<storage, read_write> values: array<u32>; // [kv_heads, cells, value_words]

// Takes what word `i` of the key at `start` holds.
fn take(start: u32, i: u32) {
    let word = keys[start + i];
    if KEYS == IN_F32 {
        head[i] = bitcast<f32>(word);
    } else if KEYS == IN_F16 || KEYS == IN_BF16 {
        let two = two_in(KEYS, word);
        head[2u * i] = two.x;
        head[2u * i + 1u] = two.y;
    } else if KEYS >= IN_NIBBLES {
        let block = i / 4u;
        if block < p.head_dim / 32u {
            let scale = scale_in(KEYS, keys[start + scale_place(KEYS, block)], block);
            let at = 32u * block + 4u * (i % 4u);
            var fifth = 0u;
            if has(KEYS, FIFTH) {
                fifth = keys[start + fifth_place(block)] >> (4u * (i % 4u));
            }
            put_four(at, four_nibbles(KEYS, word, fifth, scale));
            put_four(at + 16u, four_nibbles(KEYS, word >> 4u, fifth >> 16u, scale));
        }
    } else if i < p.head_dim / 4u {
        let block = i / 8u;
        put_four(4u * i, scale_in(KEYS, keys[start + scale_place(KEYS, block)], block).x * four_bytes(word));
    }
}

fn put_four(at: u32, four: vec4<f32>) {
    head[at] = four.x;
    head[at + 1u] = four.y;
    head[at + 2u] = four.z;
    head[at + 3u] = four.w;
}

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
        take(key_from, i);
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
        keys[key_to + i] = word(i, KEYS);
    }
    if step.x != step.y {
        let start = (group.z * p.cells + step.x) * p.value_words;
        let to = (group.z * p.cells + step.y) * p.value_words;
        for (var i = thread; i < p.value_words; i += 32u) {
            values[to + i] = values[start + i];
        }
    }
}
