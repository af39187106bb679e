// scale·level, the levels a table of small whole numbers: IQ4_NL, IQ4_XS and MXFP4
alias Factors = f32;

fn level_bytes(bytes: u32) -> u32 {
    return pack4xI8(vec4<i32>(levels(bytes)));
}

fn ints(r: Raw) -> Ints {
    let i = plane_ints(r.high);
    return Ints(
        vec4<u32>(level_bytes(i.first.x), level_bytes(i.first.y), level_bytes(i.first.z), level_bytes(i.first.w)),
        vec4<u32>(level_bytes(i.second.x), level_bytes(i.second.y), level_bytes(i.second.z), level_bytes(i.second.w)));
}

fn factors(r: Raw) -> Factors {
    return r.scale;
}

// `i`: sums of products, `s`: sums of the activations of either half.
fn value(f: Factors, i: Dots, s: vec2<f32>) -> f32 {
    return f * i;
}
