//! Seeded random weights, in pieces that do not depend on each other: which thread makes a piece, and when,
//! changes nothing.

use crate::{
    hash::fnv1a,
    quant::{GgmlType, quantize},
    rng::Rng,
};

/// Weights in one piece: whole blocks of every type, and a cache's worth of bytes.
pub(super) const PIECE: u64 = 1 << 17;
/// Weights that lie between generator and quantizer at a time; they stay in the first cache.
const STRIP: usize = 2048;

/// How the weights of a tensor are distributed: bell-shaped around `center`, none farther from it than
/// 3.5 `std`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fill {
    pub center: f32,
    pub std: f32,
    /// Every weight keeps or loses its sign by the toss of a coin.
    pub random_signs: bool,
}

impl Fill {
    pub fn noise(std: f32) -> Self {
        Fill { center: 0.0, std, random_signs: false }
    }

    pub fn around(center: f32, std: f32) -> Self {
        Fill { center, std, random_signs: false }
    }
}

/// The seed of a tensor's pieces: its name counts and not its place in the file.
pub(super) fn tensor_key(seed: u64, name: &str) -> u64 {
    Rng::new(Rng::new(seed).next_u64() ^ fnv1a(name.bytes())).next_u64()
}

/// Piece `index` of a tensor, as it lies in the file. `weights` is [`PIECE`], or less in the last piece, and
/// whole blocks of `ty`, which is writable.
pub(super) fn piece(key: u64, index: u64, weights: usize, ty: GgmlType, fill: Fill) -> Vec<u8> {
    let mut rng = Rng::new(key ^ index);
    let mut out = Vec::with_capacity(ty.row_bytes(weights).unwrap_or(0));
    let mut strip = [0f32; STRIP];
    let mut left = weights;
    while left > 0 {
        let strip = &mut strip[..left.min(STRIP)];
        draw(&mut rng, fill, strip);
        quantize(ty, strip, &mut out).expect("whole blocks of a writable type");
        left -= strip.len();
    }
    out
}

/// A weight is the sum of the four 16-bit parts of a random word: nearly normal, made of exact sums, and so
/// the same on every machine.
fn draw(rng: &mut Rng, fill: Fill, out: &mut [f32]) {
    const PARTS: u64 = 0x0000_ffff_0000_ffff;
    /// Four times the mean of a part.
    const MEAN: i32 = 2 * 0xffff;
    /// Four independent parts, each uniform over 2^16 numbers: variance 4 · 2^32 / 12.
    const STD: f32 = 37_837.23;
    let scale = fill.std / STD;
    for out in out.iter_mut() {
        let word = rng.next_u64();
        let pairs = (word & PARTS) + (word >> 16 & PARTS);
        let sum = (pairs as u32 + (pairs >> 32) as u32) as i32;
        *out = fill.center + scale * (sum - MEAN) as f32;
    }
    if fill.random_signs {
        for out in out.iter_mut().filter(|_| rng.next_u64() >> 63 == 1) {
            *out = -*out;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_bell_shaped_with_the_size_that_was_asked_for() {
        let n = 1 << 20;
        let mut x = vec![0.0; n];
        draw(&mut Rng::new(3), Fill::noise(0.02), &mut x);
        let moment = |power| x.iter().map(|&x| (f64::from(x) / 0.02).powi(power)).sum::<f64>() / n as f64;
        // Standard errors at this n: 0.001, 0.0013, 0.004.
        assert!(moment(1).abs() < 0.005, "mean {}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.007, "variance {}", moment(2));
        // Four uniform numbers have a fourth moment of 3 - 1.2 / 4.
        assert!((moment(4) - 2.7).abs() < 0.02, "fourth moment {}", moment(4));
        assert!(x.iter().all(|x| x.abs() <= 3.5 * 0.02));
    }

    #[test]
    fn neighbours_and_pieces_are_independent() {
        let floats = |piece: Vec<u8>| -> Vec<f64> {
            piece.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect()
        };
        let n = PIECE as usize;
        let make =
            |name, index| floats(piece(tensor_key(1, name), index, n, GgmlType::F32, Fill::noise(1.0)));
        let (a, b, c) = (make("a", 0), make("a", 1), make("b", 0));
        let correlation =
            |x: &[f64], y: &[f64]| std::iter::zip(x, y).map(|(x, y)| x * y).sum::<f64>() / n as f64;
        // Standard error 1 / sqrt(n) = 0.0028.
        for (what, value) in [
            ("pieces", correlation(&a, &b)),
            ("tensors", correlation(&a, &c)),
            ("neighbours", correlation(&a, &a[1..])),
        ] {
            assert!(value.abs() < 0.012, "{what}: {value}");
        }
    }

    #[test]
    fn no_spread_is_exactly_the_center() {
        let mut x = vec![1.0; 100];
        draw(&mut Rng::new(0), Fill::noise(0.0), &mut x);
        assert!(x.iter().all(|x| x.to_bits() == 0));
        draw(&mut Rng::new(0), Fill { center: 1.0, std: 0.0, random_signs: true }, &mut x);
        let negative = x.iter().filter(|&&x| x == -1.0).count();
        assert!((20..80).contains(&negative) && x.iter().all(|x| x.abs() == 1.0));
    }
}
