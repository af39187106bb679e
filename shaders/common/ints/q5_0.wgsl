// d·(q - 16)
alias Factors = f32;

fn ints(r: Raw) -> Ints {
    return five_bit_ints(r.high, r.low);
}

fn factors(r: Raw) -> Factors {
    return r.scale;
}

// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    if COARSE {
        return f * fma(-15.5, s.x + s.y, 2.0 * i);
    }
    return f * fma(-16.0, s.x + s.y, i);
}
