// d·(q - 8)
// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    return f * fma(-8.0, s.x + s.y, i);
}
