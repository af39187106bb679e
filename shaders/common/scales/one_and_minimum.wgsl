// A block has a scale and a minimum.
const APART = false;
const LIFTS = true;

fn factor(r: Raw, half: u32) -> f32 {
    return r.scale_min.x;
}

fn summand(r: Raw, half: u32) -> f32 {
    return r.scale_min.y;
}
