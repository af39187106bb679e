// A block has a scale and a minimum.
const APART = false;
const LIFTS = true;

fn factor(r: Raw, half: u32) -> f32 {
    return scale_and_min(r).x;
}

fn summand(r: Raw, half: u32) -> f32 {
    return scale_and_min(r).y;
}
