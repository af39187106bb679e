// Each half of a block has a scale.
const APART = true;
const LIFTS = false;

fn factor(r: Raw, half: u32) -> f32 {
    return r.scales[half];
}

fn summand(r: Raw, half: u32) -> f32 {
    return 0.0;
}
