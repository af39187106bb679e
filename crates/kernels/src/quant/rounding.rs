//! What the quantizers of the blocks of 32 share.

/// `1/d`, and 0 for a block of zeros.
pub(super) fn reciprocal(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// The value farthest from zero with its sign; the first of them if there are several.
pub(super) fn farthest_from_zero(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |far: f32, &x| if x.abs() > far.abs() { x } else { far })
}

pub(super) fn min_max(x: &[f32]) -> (f32, f32) {
    x.iter()
        .fold((x[0], x[0]), |(min, max), &x| (if x < min { x } else { min }, if x > max { x } else { max }))
}

/// 32 values of up to five bits as the low nibbles of weights 0-15 and the high ones of 16-31.
pub fn nibbles(q: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| q[j] & 15 | q[j + 16] << 4)
}

/// The fifth bits of 32 values; bit j of the little-endian word is that of value j.
pub fn fifth_bits(q: &[u8; 32]) -> [u8; 4] {
    let word = q.iter().enumerate().fold(0u32, |word, (j, &q)| word | ((q >> 4) as u32) << j);
    word.to_le_bytes()
}
