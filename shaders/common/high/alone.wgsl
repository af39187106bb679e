// w = factor·(number - offset) + summand, the numbers without their LOW_BITS low bits, which lie elsewhere: there they are
// numbers from -2^(LOW_BITS - 1) on, and so much is added here. ZERO: what whole numbers are too large by. Coarse, nothing is
// made elsewhere, and a weight is the middle of what the low bits could make it. Needs LOW_BITS and ZERO, and the texts of a
// plane (Plane, bytes_of) and of scales (Raw, load).

override COARSE: bool = false;

const STEP: f32 = f32(1u << LOW_BITS);
const MIDDLE: f32 = ZERO - 0.5 * STEP;

fn numbers(r: Raw, q: u32) -> vec4<f32> {
    return floats(bytes_of(r.high, q) << LOW_BITS);
}

fn offset() -> f32 {
    if COARSE {
        return MIDDLE + 0.5;
    }
    return MIDDLE;
}
