// d·(16·q - 120), or 120.5: see offset()
// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    return f * fma(-offset(), s.x + s.y, 16.0 * i);
}
