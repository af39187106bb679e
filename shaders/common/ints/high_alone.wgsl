// d·(q·2^LOW_BITS - offset): see high/alone.wgsl
// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    return f * fma(-offset(), s.x + s.y, STEP * i);
}
