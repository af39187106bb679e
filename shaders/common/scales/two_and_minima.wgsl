// Each half of a block has a scale and a minimum.
const APART = true;
const LIFTS = true;

fn factor(r: Raw, half: u32) -> f32 {
    return scales_of(r)[half];
}

fn summand(r: Raw, half: u32) -> f32 {
    return minima_of(r)[half];
}
