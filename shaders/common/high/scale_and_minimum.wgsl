// What is read of a block: a plane, a scale, and a minimum that is added or taken off. Needs scale_min*.wgsl and SIGN.
struct Raw { high: Plane, scale_min: vec2<f32> }

fn load(block: u32) -> Raw {
    return Raw(high[block], scale_min_of(block) * vec2<f32>(1.0, SIGN));
}
