// scale·level, the levels a table of small whole numbers: IQ4_NL, IQ4_XS and MXFP4
// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    return f * i;
}
