// 2^(e - 128)·value, which is whole
alias Factors = f32;

fn value_bytes(n: u32) -> u32 {
    return pack4xI8(vec4<i32>(vec4<f32>(
        value_of(n & 15u), value_of((n >> 8u) & 15u), value_of((n >> 16u) & 15u), value_of(n >> 24u))));
}

fn ints(r: Raw) -> Ints {
    let i = plane_ints(r.high);
    return Ints(
        vec4<u32>(value_bytes(i.first.x), value_bytes(i.first.y), value_bytes(i.first.z), value_bytes(i.first.w)),
        vec4<u32>(value_bytes(i.second.x), value_bytes(i.second.y), value_bytes(i.second.z), value_bytes(i.second.w)));
}

fn factors(r: Raw) -> Factors {
    return r.scale;
}

// `i`: sums of products of either half, `s`: sums of its activations.
fn value(f: Factors, i: vec2<f32>, s: vec2<f32>) -> f32 {
    return f * (i.x + i.y);
}
