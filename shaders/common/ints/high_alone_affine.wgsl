// scale·(q·2^LOW_BITS - offset) + minimum: see high/alone.wgsl
// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    return fma(f.x, fma(-offset(), s.x + s.y, STEP * i), f.y * (s.x + s.y));
}
