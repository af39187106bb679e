// d·(q - 8)
alias Factors = f32;

fn ints(r: Raw) -> Ints {
    return plane_ints(r.high);
}

fn factors(r: Raw) -> Factors {
    return r.scale;
}

// `i`: sums of products of either half, `s`: sums of its activations.
fn value(f: Factors, i: vec2<f32>, s: vec2<f32>) -> f32 {
    return f * fma(-8.0, s.x + s.y, i.x + i.y);
}
