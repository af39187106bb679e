// A workgroup of attention has one head.
alias Reduced = f32;
const AT_ONCE = 1u;

fn of_head(x: Reduced, head: u32) -> f32 {
    return x;
}

// Where the query stands, in quads.
alias Queries = u32;

fn queries_from(first: u32, beyond: u32) -> Queries {
    return first;
}

// Of a score, the sums of every fourth product.
alias Fours = vec4<f32>;

fn add(sums: Fours, at: Queries, k: vec4<f32>) -> Fours {
    return fma(q[at], k, sums);
}

fn total(sums: Fours) -> Reduced {
    return (sums.x + sums.y) + (sums.z + sums.w);
}

fn all_capped(x: Reduced) -> Reduced {
    return capped(x, p.cap);
}
