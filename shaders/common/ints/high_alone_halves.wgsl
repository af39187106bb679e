// scale·(q·2^LOW_BITS - offset), a scale for each half: see high/alone.wgsl
// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    let c = fma(vec2<f32>(-offset()), s, STEP * i);
    return fma(f.x, c.x, f.y * c.y);
}
