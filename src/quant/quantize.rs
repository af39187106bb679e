//! Numbers to blocks, for writing files: in blocks of 32 the same bytes as llama.cpp's own reference
//! quantizers, in blocks of 256 a plain rounding with a bounded error.

use super::{Block, F16, GgmlType, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0};

/// A block format that can be written. `x` has `TYPE.block_len()` finite values.
pub trait Quantize: Block {
    fn quantize(x: &[f32]) -> Self;
}

/// Appends `x` to `out` as whole blocks of `ty`. None, with `out` as it was, if `ty` is not
/// [`GgmlType::writable`] or `x` is not whole blocks of it.
#[must_use]
pub fn quantize(ty: GgmlType, x: &[f32], out: &mut Vec<u8>) -> Option<()> {
    use GgmlType as T;
    fn blocks<B: Quantize>(x: &[f32], out: &mut Vec<u8>) {
        for x in x.chunks_exact(B::TYPE.block_len()) {
            out.extend_from_slice(bytemuck::bytes_of(&B::quantize(x)));
        }
    }
    out.reserve(ty.row_bytes(x.len())?);
    match ty {
        T::F32 => out.extend(x.iter().flat_map(|x| x.to_le_bytes())),
        T::F16 => out.extend(x.iter().flat_map(|&x| F16::from_f32(x).0)),
        T::BF16 => out.extend(x.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes())),
        T::Q4_0 => blocks::<q4_0::BlockQ4_0>(x, out),
        T::Q4_1 => blocks::<q4_1::BlockQ4_1>(x, out),
        T::Q5_0 => blocks::<q5_0::BlockQ5_0>(x, out),
        T::Q5_1 => blocks::<q5_1::BlockQ5_1>(x, out),
        T::Q8_0 => blocks::<q8_0::BlockQ8_0>(x, out),
        T::Q4_K => blocks::<q4_k::BlockQ4K>(x, out),
        T::Q5_K => blocks::<q5_k::BlockQ5K>(x, out),
        T::Q6_K => blocks::<q6_k::BlockQ6K>(x, out),
        _ => return None,
    }
    Some(())
}

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
pub(super) fn nibbles(q: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| q[j] & 15 | q[j + 16] << 4)
}

/// The fifth bits of 32 values; bit j of the little-endian word is that of value j.
pub(super) fn fifth_bits(q: &[u8; 32]) -> [u8; 4] {
    let word = q.iter().enumerate().fold(0u32, |word, (j, &q)| word | ((q >> 4) as u32) << j);
    word.to_le_bytes()
}
