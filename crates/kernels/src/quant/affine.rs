//! What the quantizers of the 256-blocks share: sub-blocks whose own scale and minimum are small whole
//! multiples of two halves.

use super::{
    F16,
    rounding::{min_max, reciprocal},
};

const SUBS: usize = 8;
const MOST: f32 = 63.0;

/// `w = d·scale·q - dmin·min` in eight sub-blocks of 32; scales and minima have 6 bits.
pub(super) struct Affine {
    pub d: F16,
    pub dmin: F16,
    pub scales: [u8; SUBS],
    pub mins: [u8; SUBS],
    pub q: [u8; 256],
}

/// Rounds 256 values to `0..=TOP` per sub-block. Minima and scales are rounded up, so that the grid of a
/// sub-block covers all its values, and no error is above half a step. With `low` and `high` the ends of a
/// sub-block (`low` at most 0), a step is at most `(high - low + dmin) / TOP + d`, where `dmin` is the largest
/// `-low` of the block over 63 and `d` the largest `(high - low + dmin) / TOP` over 63, both rounded up to
/// a half. That holds while they stay below the largest half; beyond it values are clipped.
pub(super) fn fit<const TOP: u8>(x: &[f32]) -> Affine {
    let top = f32::from(TOP);
    let (mut low, mut high) = ([0f32; SUBS], [0f32; SUBS]);
    for (sub, x) in x.chunks_exact(32).enumerate() {
        let (min, max) = min_max(x);
        (low[sub], high[sub]) = (if min < 0.0 { -min } else { 0.0 }, max);
    }
    let (dmin, mins) = multiples(&low);
    let spans = std::array::from_fn(|sub| (high[sub] + dmin.to_f32() * f32::from(mins[sub])) / top);
    let (d, scales) = multiples(&spans);
    let mut q = [0; 256];
    for (sub, x) in x.chunks_exact(32).enumerate() {
        let min = dmin.to_f32() * f32::from(mins[sub]);
        let inverse = reciprocal(d.to_f32() * f32::from(scales[sub]));
        for (q, x) in q[32 * sub..].iter_mut().zip(x) {
            // 2^23: adding it rounds to a whole number that stands in the lowest bits.
            *q = (((x + min) * inverse).clamp(0.0, top) + 8_388_608.0).to_bits() as u8;
        }
    }
    Affine { d, dmin, scales, mins, q }
}

/// A half and, for each value (none of them negative), the multiple of it that just reaches the value.
fn multiples(values: &[f32; SUBS]) -> (F16, [u8; SUBS]) {
    let most = values.iter().fold(0.0, |a: f32, &b| if b > a { b } else { a });
    let d = half_at_least(most / MOST);
    let inverse = reciprocal(d.to_f32());
    (d, values.map(|value| steps_to_reach(value, inverse, MOST) as u8))
}

/// The smallest number of steps, whole and at most `most`, that reaches `value`; `inverse` is 1 / step.
pub(super) fn steps_to_reach(value: f32, inverse: f32, most: f32) -> f32 {
    let steps = (value * inverse).clamp(0.0, most);
    let whole = steps as u8 as f32;
    if whole < steps { whole + 1.0 } else { whole }
}

/// `x`, not negative, rounded up to a half; what no half reaches becomes the largest.
pub(super) fn half_at_least(x: f32) -> F16 {
    let nearest = half::f16::from_f32(x);
    let up = if nearest.to_f32() < x { half::f16::from_bits(nearest.to_bits() + 1) } else { nearest };
    F16(if up.is_finite() { up } else { half::f16::MAX }.to_le_bytes())
}
