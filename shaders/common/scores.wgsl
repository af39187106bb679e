// How well a key suits the queries of a workgroup. Loads of eight quads are under way at once, or of four that have 32
// numbers each: one after the other they would take most of attention's time. Needs stored.wgsl, capped.wgsl and a text
// that says how many heads there are (head_one or head_four).

// Word `at` of a row of keys.
fn key_word(key: u32, at: u32) -> u32 {
    return keys[key + at / 4u][at % 4u];
}

// Of a block of a key.
fn key_scale(key: u32, block: u32) -> vec2<f32> {
    return scale_in(KEYS, key_word(key, scale_place(KEYS, block)), block);
}

// Adds the products with quad `i` of a key, which is `k`.
fn add_quad(sums: Fours, at: Queries, key: u32, i: u32, k: vec4<u32>) -> Fours {
    if KEYS == IN_F32 {
        return add(sums, at + i, bitcast<vec4<f32>>(k));
    }
    if KEYS == IN_F16 || KEYS == IN_BF16 {
        let first = add(sums, at + 2u * i, vec4<f32>(two_in(KEYS, k.x), two_in(KEYS, k.y)));
        return add(first, at + 2u * i + 1u, vec4<f32>(two_in(KEYS, k.z), two_in(KEYS, k.w)));
    }
    if KEYS >= IN_NIBBLES {
        return add_nibbles(sums, at + 8u * i, key, i, k);
    }
    let scale = key_scale(key, i / 2u).x;
    var s = add(sums, at + 4u * i, scale * four_bytes(k.x));
    s = add(s, at + 4u * i + 1u, scale * four_bytes(k.y));
    s = add(s, at + 4u * i + 2u, scale * four_bytes(k.z));
    return add(s, at + 4u * i + 3u, scale * four_bytes(k.w));
}

// The same where a quad is a block: the lower nibbles of its bytes are the first sixteen numbers.
fn add_nibbles(sums: Fours, at: Queries, key: u32, block: u32, k: vec4<u32>) -> Fours {
    let scale = key_scale(key, block);
    var fifth = 0u;
    if has(KEYS, FIFTH) {
        fifth = key_word(key, fifth_place(block));
    }
    var s = sums;
    for (var j = 0u; j < 4u; j++) {
        s = add(s, at + j, four_nibbles(KEYS, k[j], fifth >> (4u * j), scale));
    }
    for (var j = 0u; j < 4u; j++) {
        s = add(s, at + 4u + j, four_nibbles(KEYS, k[j] >> 4u, fifth >> (16u + 4u * j), scale));
    }
    return s;
}

// Quads of a key that have numbers.
fn quads_of_numbers() -> u32 {
    if KEYS >= IN_NIBBLES {
        return p.head_dim / 32u;
    }
    return select(p.key_words / 4u, p.head_dim / 16u, KEYS == IN_Q8_0);
}

fn score(at: Queries, key: u32) -> Reduced {
    var sums = Fours();
    let quads = quads_of_numbers();
    var i = 0u;
    if KEYS >= IN_NIBBLES {
        // Few heads have more than 128 numbers, and eight took llvmpipe's compiler more than twice as long.
        for (; i + 4u <= quads; i += 4u) {
            let a = keys[key + i];
            let b = keys[key + i + 1u];
            let c = keys[key + i + 2u];
            let d = keys[key + i + 3u];
            sums = add_quad(sums, at, key, i, a);
            sums = add_quad(sums, at, key, i + 1u, b);
            sums = add_quad(sums, at, key, i + 2u, c);
            sums = add_quad(sums, at, key, i + 3u, d);
        }
    } else {
        for (; i + 8u <= quads; i += 8u) {
            let a = keys[key + i];
            let b = keys[key + i + 1u];
            let c = keys[key + i + 2u];
            let d = keys[key + i + 3u];
            let e = keys[key + i + 4u];
            let f = keys[key + i + 5u];
            let g = keys[key + i + 6u];
            let h = keys[key + i + 7u];
            sums = add_quad(sums, at, key, i, a);
            sums = add_quad(sums, at, key, i + 1u, b);
            sums = add_quad(sums, at, key, i + 2u, c);
            sums = add_quad(sums, at, key, i + 3u, d);
            sums = add_quad(sums, at, key, i + 4u, e);
            sums = add_quad(sums, at, key, i + 5u, f);
            sums = add_quad(sums, at, key, i + 6u, g);
            sums = add_quad(sums, at, key, i + 7u, h);
        }
    }
    for (; i < quads; i++) {
        sums = add_quad(sums, at, key, i, keys[key + i]);
    }
    let all = p.scale * total(sums);
    if p.cap > 0.0 {
        return all_capped(all);
    }
    return all;
}
