// scale·q + minimum
alias Factors = vec2<f32>;

fn ints(r: Raw) -> Ints {
    return five_bit_ints(r.high, r.low);
}

fn factors(r: Raw) -> Factors {
    return r.scale_min;
}

// `i`: sums of products of either half, `s`: sums of its activations.
fn value(f: Factors, i: vec2<f32>, s: vec2<f32>) -> f32 {
    if COARSE {
        return fma(f.x, fma(0.5, s.x + s.y, 2.0 * (i.x + i.y)), f.y * (s.x + s.y));
    }
    return fma(f.x, i.x + i.y, f.y * (s.x + s.y));
}
