// A workgroup of attention has up to four heads that share keys and values, each of which is read once for all.
// For each head it does what head_one.wgsl does, in the same order.
alias Reduced = vec4<f32>;
const AT_ONCE = 4u;

fn of_head(x: Reduced, head: u32) -> f32 {
    return x[head];
}

// Where the queries of the heads stand, in quads.
alias Queries = vec4<u32>;

// The last of the heads stands in for those beyond it.
fn queries_from(first: u32, beyond: u32) -> Queries {
    return vec4<u32>(first) + (p.head_stride / 4u) * min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(beyond));
}

// Of each head's score, the sums of every fourth product.
struct Fours { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }

fn add(sums: Fours, at: Queries, k: vec4<f32>) -> Fours {
    return Fours(
        fma(q[at.x], k, sums.a), fma(q[at.y], k, sums.b), fma(q[at.z], k, sums.c), fma(q[at.w], k, sums.d));
}

fn total(s: Fours) -> Reduced {
    return vec4<f32>(
        (s.a.x + s.a.y) + (s.a.z + s.a.w),
        (s.b.x + s.b.y) + (s.b.z + s.b.w),
        (s.c.x + s.c.y) + (s.c.z + s.c.w),
        (s.d.x + s.d.y) + (s.d.z + s.d.w));
}

fn all_capped(x: Reduced) -> Reduced {
    return vec4<f32>(capped(x.x, p.cap), capped(x.y, p.cap), capped(x.z, p.cap), capped(x.w, p.cap));
}
