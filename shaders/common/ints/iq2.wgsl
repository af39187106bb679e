// d·scale·level, a scale for each half
// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    return fma(f.x, i.x, f.y * i.y);
}
