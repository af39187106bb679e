// d·q, signed; coarse, the upper four bits alone, 0 to 15.
fn ints(r: Raw) -> Ints {
    let high = plane_ints(r.high);
    if COARSE {
        return high;
    }
    let low = plane_ints(r.low);
    return Ints(
        ((high.first << vec4<u32>(4u)) | low.first) ^ vec4<u32>(0x80808080u),
        ((high.second << vec4<u32>(4u)) | low.second) ^ vec4<u32>(0x80808080u));
}

// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    if COARSE {
        return f * fma(-120.5, s.x + s.y, 16.0 * i);
    }
    return f * i;
}
