// scale·q + minimum
alias Factors = vec2<f32>;

fn ints(r: Raw) -> Ints {
    return plane_ints(r.high);
}

fn factors(r: Raw) -> Factors {
    return r.scale_min;
}

// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    return fma(f.x, i, f.y * (s.x + s.y));
}
