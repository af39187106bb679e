// What is read of a block: a plane, and a scale for each half. Needs signed_scales.wgsl.
struct Raw { high: Plane, scales: vec2<f32> }

fn load(block: u32) -> Raw {
    let of_halves = scales_of(block);
    return Raw(high[block], of_halves);
}
