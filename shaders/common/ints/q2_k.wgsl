// scale·q - minimum, both for each half
alias Factors = vec4<f32>;

fn ints(r: Raw) -> Ints {
    return plane_ints(r.high);
}

fn factors(r: Raw) -> Factors {
    return vec4<f32>(r.scales, r.minima);
}

// `i`: sums of products of either half, `s`: sums of its activations.
fn value(f: Factors, i: vec2<f32>, s: vec2<f32>) -> f32 {
    let halves = fma(f.xy, i, f.zw * s);
    return halves.x + halves.y;
}
