// Each half of a block has a scale and a minimum.
const APART = true;
const LIFTS = true;

fn factor(r: Raw, half: u32) -> f32 {
    return r.scales[half];
}

fn summand(r: Raw, half: u32) -> f32 {
    return r.minima[half];
}
