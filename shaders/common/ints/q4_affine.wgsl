// scale·q + minimum
// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    return fma(f.x, i, f.y * (s.x + s.y));
}
