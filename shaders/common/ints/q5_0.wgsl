// d·(q - 16)
// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    if COARSE {
        return f * fma(-15.5, s.x + s.y, 2.0 * i);
    }
    return f * fma(-16.0, s.x + s.y, i);
}
