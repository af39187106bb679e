// What is read of a block: a plane, and one scale. Needs half_scale.wgsl.
struct Raw { high: Plane, scale: f32 }

fn load(block: u32) -> Raw {
    return Raw(high[block], scale_of(block));
}
