// scale·q - minimum, both for each half
alias Factors = vec4<f32>;

fn factors(r: Raw) -> Factors {
    return vec4<f32>(r.scales, r.minima);
}

// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    let halves = fma(f.xy, i, f.zw * s);
    return halves.x + halves.y;
}
