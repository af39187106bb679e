// The same numbers, in a way that no compiler sees through: it might join a multiplication with the addition behind it, here
// and not elsewhere, and sums would not be those of what is stored. Needs a parameter that is zero.
fn kept(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4<u32>(p.zero));
}
