// scale·level, the levels a table of small whole numbers: IQ4_NL, IQ4_XS and MXFP4
alias Factors = f32;

fn factors(r: Raw) -> Factors {
    return r.scale;
}

// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    return f * i;
}
