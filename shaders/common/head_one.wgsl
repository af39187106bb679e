// A workgroup of attention has one head.
alias Reduced = f32;
const AT_ONCE = 1u;

fn of_head(x: Reduced, head: u32) -> f32 {
    return x;
}

fn scores(query: u32, beyond: u32, key: u32) -> Reduced {
    var acc = vec4<f32>(0.0);
    if KEYS == IN_F32 {
        for (var i = 0u; i < p.key_words / 4u; i++) {
            acc = fma(q[query + i], bitcast<vec4<f32>>(keys[key + i]), acc);
        }
    } else if KEYS == IN_F16 {
        for (var i = 0u; i < p.key_words / 4u; i++) {
            let k = keys[key + i];
            acc = fma(q[query + 2u * i], vec4<f32>(unpack2x16float(k.x), unpack2x16float(k.y)), acc);
            acc = fma(q[query + 2u * i + 1u], vec4<f32>(unpack2x16float(k.z), unpack2x16float(k.w)), acc);
        }
    } else {
        for (var i = 0u; i < p.head_dim / 16u; i++) {
            let k = keys[key + i];
            let scale = key_scale(key, i);
            acc = fma(q[query + 4u * i], scale * four_bytes(k.x), acc);
            acc = fma(q[query + 4u * i + 1u], scale * four_bytes(k.y), acc);
            acc = fma(q[query + 4u * i + 2u], scale * four_bytes(k.z), acc);
            acc = fma(q[query + 4u * i + 3u], scale * four_bytes(k.w), acc);
        }
    }
    let score = ((acc.x + acc.y) + (acc.z + acc.w)) * p.scale;
    if p.cap > 0.0 {
        return capped(score, p.cap);
    }
    return score;
}
