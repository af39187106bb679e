// A workgroup of attention has up to four heads that share keys and values, each of which is read once for all.
// For each head it does what head_one.wgsl does, in the same order.
alias Reduced = vec4<f32>;
const AT_ONCE = 4u;

fn of_head(x: Reduced, head: u32) -> f32 {
    return x[head];
}

struct Scores { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }

// `at`: where the queries of the heads stand, in quads.
fn add(scores: Scores, at: vec4<u32>, k: vec4<f32>) -> Scores {
    return Scores(
        fma(q[at.x], k, scores.a), fma(q[at.y], k, scores.b), fma(q[at.z], k, scores.c), fma(q[at.w], k, scores.d));
}

// The last of the heads stands in for those beyond it.
fn scores(query: u32, beyond: u32, key: u32) -> Reduced {
    let stride = p.head_stride / 4u;
    var at = vec4<u32>(query) + stride * min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(beyond));
    var s = Scores();
    let quads = select(p.key_words / 4u, p.head_dim / 16u, KEYS == IN_Q8_0);
    for (var i = 0u; i < quads; i++) {
        let k = keys[key + i];
        if KEYS == IN_F32 {
            s = add(s, at, bitcast<vec4<f32>>(k));
            at += 1u;
        } else if KEYS == IN_F16 {
            s = add(s, at, vec4<f32>(unpack2x16float(k.x), unpack2x16float(k.y)));
            s = add(s, at + 1u, vec4<f32>(unpack2x16float(k.z), unpack2x16float(k.w)));
            at += 2u;
        } else {
            let scale = key_scale(key, i);
            s = add(s, at, scale * four_bytes(k.x));
            s = add(s, at + 1u, scale * four_bytes(k.y));
            s = add(s, at + 2u, scale * four_bytes(k.z));
            s = add(s, at + 3u, scale * four_bytes(k.w));
            at += 4u;
        }
    }
    let all = p.scale * vec4<f32>(
        (s.a.x + s.a.y) + (s.a.z + s.a.w),
        (s.b.x + s.b.y) + (s.b.z + s.b.w),
        (s.c.x + s.c.y) + (s.c.z + s.c.w),
        (s.d.x + s.d.y) + (s.d.z + s.d.w));
    if p.cap > 0.0 {
        return vec4<f32>(capped(all.x, p.cap), capped(all.y, p.cap), capped(all.z, p.cap), capped(all.w, p.cap));
    }
    return all;
}
