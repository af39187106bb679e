// A block has one scale.
const APART = false;
const LIFTS = false;

fn factor(r: Raw, half: u32) -> f32 {
    return r.scale;
}

fn summand(r: Raw, half: u32) -> f32 {
    return 0.0;
}
