// d·scale·(q - 32), a scale for each half; 0 to 63, coarse the upper four bits alone, 0 to 15.
fn ints(r: Raw) -> Ints {
    let high = plane_ints(r.high);
    if COARSE {
        return high;
    }
    return Ints(
        (high.first << vec4<u32>(2u))
            | vec4<u32>(two_bits(r.low, 0u), two_bits(r.low, 1u), two_bits(r.low, 2u), two_bits(r.low, 3u)),
        (high.second << vec4<u32>(2u))
            | vec4<u32>(two_bits(r.low, 4u), two_bits(r.low, 5u), two_bits(r.low, 6u), two_bits(r.low, 7u)));
}

// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    if COARSE {
        let c = fma(vec2<f32>(-30.5), s, 4.0 * i);
        return fma(f.x, c.x, f.y * c.y);
    }
    let c = fma(vec2<f32>(-32.0), s, i);
    return fma(f.x, c.x, f.y * c.y);
}
