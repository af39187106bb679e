// scale·q + minimum
// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    if COARSE {
        return fma(f.x, fma(0.5, s.x + s.y, 2.0 * i), f.y * (s.x + s.y));
    }
    return fma(f.x, i, f.y * (s.x + s.y));
}
