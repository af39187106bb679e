// How well a key suits the queries of a workgroup. Loads of eight quads are under way at once: one after the other they
// would take most of attention's time. Needs stored.wgsl, capped.wgsl and a text that says how many heads there are
// (head_one or head_four).

// Of the block that quad `i` of a key is in.
fn key_scale(key: u32, i: u32) -> f32 {
    let block = i / 2u;
    return scale_in(keys[key + p.head_dim / 16u + block / 8u][(block / 2u) % 4u], block);
}

// Adds the products with quad `i` of a key, which is `k`.
fn add_quad(sums: Fours, at: Queries, key: u32, i: u32, k: vec4<u32>) -> Fours {
    if KEYS == IN_F32 {
        return add(sums, at + i, bitcast<vec4<f32>>(k));
    }
    if KEYS == IN_F16 {
        let first = add(sums, at + 2u * i, vec4<f32>(halves_in(k.x), halves_in(k.y)));
        return add(first, at + 2u * i + 1u, vec4<f32>(halves_in(k.z), halves_in(k.w)));
    }
    let scale = key_scale(key, i);
    var s = add(sums, at + 4u * i, scale * four_bytes(k.x));
    s = add(s, at + 4u * i + 1u, scale * four_bytes(k.y));
    s = add(s, at + 4u * i + 2u, scale * four_bytes(k.z));
    return add(s, at + 4u * i + 3u, scale * four_bytes(k.w));
}

fn score(at: Queries, key: u32) -> Reduced {
    var sums = Fours();
    let quads = select(p.key_words / 4u, p.head_dim / 16u, KEYS == IN_Q8_0);
    var i = 0u;
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
    for (; i < quads; i++) {
        sums = add_quad(sums, at, key, i, keys[key + i]);
    }
    let all = p.scale * total(sums);
    if p.cap > 0.0 {
        return all_capped(all);
    }
    return all;
}
