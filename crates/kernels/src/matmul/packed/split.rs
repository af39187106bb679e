//! How the integers of 32 columns lie in a packed row: 8 words of 4 weights each, a byte a weight, squeezed
//! into words of a high plane (the top bits of every weight) and of a low plane (the rest).
//!
//! Written once over [`Word`], which is a `u32` of one row, or a vector with a lane for each of several rows.
#![allow(clippy::needless_range_loop)] // Indices keep several arrays in step.

/// Four bytes side by side, in one lane or in many.
pub trait Word: Copy {
    fn zero(self) -> Self;
    /// Shifts of the 32-bit lane; bits cross from byte to byte, so a mask follows.
    fn shl(self, n: u32) -> Self;
    fn shr(self, n: u32) -> Self;
    /// `mask` on every byte.
    fn bits(self, mask: u8) -> Self;
    fn or(self, other: Self) -> Self;
}

impl Word for u32 {
    #[inline(always)]
    fn zero(self) -> u32 {
        0
    }
    #[inline(always)]
    fn shl(self, n: u32) -> u32 {
        self << n
    }
    #[inline(always)]
    fn shr(self, n: u32) -> u32 {
        self >> n
    }
    #[inline(always)]
    fn bits(self, mask: u8) -> u32 {
        self & u32::from_ne_bytes([mask; 4])
    }
    #[inline(always)]
    fn or(self, other: u32) -> u32 {
        self | other
    }
}

/// A way to split weights into planes. `u[j]` holds the weights of columns `4·j..4·j+4`, as unsigned numbers.
pub trait Split: 'static {
    /// Words of each plane for 32 columns of a row.
    const HIGH: usize;
    const LOW: usize;
    /// Bits of a weight that are in the low plane.
    const LOW_BITS: u32;
    /// The largest number that a high plane holds.
    const HIGH_MAX: u8;
    /// Bits of a weight in both.
    const BITS: u32 = Self::HIGH_MAX.count_ones() + Self::LOW_BITS;

    /// The planes of `u`: of each array, the first `HIGH` or `LOW` words.
    fn split<W: Word>(u: [W; 8]) -> ([W; 8], [W; 8]);

    /// The high bits alone, shifted down.
    fn high<W: Word>(high: [W; 8]) -> [W; 8];

    /// The inverse of `split`.
    fn join<W: Word>(high: [W; 8], low: [W; 8]) -> [W; 8];
}

/// 4 bits, one plane: word j holds `u[j]` and `u[j + 4]`.
pub struct Nibbles;
/// 8 bits, one plane.
pub struct Bytes;
/// 5 bits: the top 4, and 1.
pub struct NibblesAndOne;
/// 6 bits: the top 4, and 2.
pub struct NibblesAndTwo;
/// 8 bits: the top 4, and 4.
pub struct NibblesAndNibbles;
/// 4 bits: the top 2, and 2.
pub struct TwoAndTwo;
/// 3 bits: the top 2, and 1.
pub struct TwoAndOne;
/// 2 bits, one plane.
pub struct Twos;
/// 1 bit, one plane.
pub struct Ones;
/// N words, one plane, of which only the format knows what they mean.
pub struct Opaque<const N: usize>;

#[inline(always)]
fn each<W: Word>(u: [W; 8], f: impl Fn(W) -> W) -> [W; 8] {
    let mut out = u;
    for w in &mut out {
        *w = f(*w);
    }
    out
}

#[inline(always)]
fn pack_nibbles<W: Word>(u: [W; 8]) -> [W; 8] {
    let mut out = [u[0].zero(); 8];
    for j in 0..4 {
        out[j] = u[j].or(u[j + 4].shl(4));
    }
    out
}

#[inline(always)]
fn nibbles<W: Word>(packed: [W; 8]) -> [W; 8] {
    let mut out = packed;
    for j in 0..4 {
        out[j] = packed[j].bits(15);
        out[j + 4] = packed[j].shr(4).bits(15);
    }
    out
}

/// Two bits of every weight: word i holds those of `u[4·i..4·i+4]`.
#[inline(always)]
fn pack_twos<W: Word>(u: [W; 8]) -> [W; 8] {
    let mut out = [u[0].zero(); 8];
    for j in 0..8 {
        out[j / 4] = out[j / 4].or(u[j].shl(2 * (j as u32 % 4)));
    }
    out
}

#[inline(always)]
fn twos<W: Word>(packed: [W; 8]) -> [W; 8] {
    let mut out = packed;
    for j in 0..8 {
        out[j] = packed[j / 4].shr(2 * (j as u32 % 4)).bits(3);
    }
    out
}

/// One bit of every weight: bit j of each byte of the word belongs to `u[j]`.
#[inline(always)]
fn pack_ones<W: Word>(u: [W; 8]) -> [W; 8] {
    let mut out = [u[0].zero(); 8];
    for j in 0..8 {
        out[0] = out[0].or(u[j].shl(j as u32));
    }
    out
}

#[inline(always)]
fn ones<W: Word>(packed: [W; 8]) -> [W; 8] {
    let mut out = packed;
    for j in 0..8 {
        out[j] = packed[0].shr(j as u32).bits(1);
    }
    out
}

#[inline(always)]
fn join<W: Word>(high: [W; 8], bits: u32, low: [W; 8]) -> [W; 8] {
    let mut out = high;
    for j in 0..8 {
        out[j] = high[j].shl(bits).or(low[j]);
    }
    out
}

impl Split for Nibbles {
    const HIGH: usize = 4;
    const LOW: usize = 0;
    const LOW_BITS: u32 = 0;
    const HIGH_MAX: u8 = 15;

    #[inline(always)]
    fn split<W: Word>(u: [W; 8]) -> ([W; 8], [W; 8]) {
        (pack_nibbles(u), u)
    }
    #[inline(always)]
    fn high<W: Word>(high: [W; 8]) -> [W; 8] {
        nibbles(high)
    }
    #[inline(always)]
    fn join<W: Word>(high: [W; 8], _: [W; 8]) -> [W; 8] {
        nibbles(high)
    }
}

impl Split for Bytes {
    const HIGH: usize = 8;
    const LOW: usize = 0;
    const LOW_BITS: u32 = 0;
    const HIGH_MAX: u8 = 255;

    #[inline(always)]
    fn split<W: Word>(u: [W; 8]) -> ([W; 8], [W; 8]) {
        (u, u)
    }
    #[inline(always)]
    fn high<W: Word>(high: [W; 8]) -> [W; 8] {
        high
    }
    #[inline(always)]
    fn join<W: Word>(high: [W; 8], _: [W; 8]) -> [W; 8] {
        high
    }
}

impl Split for NibblesAndOne {
    const HIGH: usize = 4;
    const LOW: usize = 1;
    const LOW_BITS: u32 = 1;
    const HIGH_MAX: u8 = 15;

    #[inline(always)]
    fn split<W: Word>(u: [W; 8]) -> ([W; 8], [W; 8]) {
        (pack_nibbles(each(u, |u| u.shr(1).bits(15))), pack_ones(each(u, |u| u.bits(1))))
    }
    #[inline(always)]
    fn high<W: Word>(high: [W; 8]) -> [W; 8] {
        nibbles(high)
    }
    #[inline(always)]
    fn join<W: Word>(high: [W; 8], low: [W; 8]) -> [W; 8] {
        join(nibbles(high), 1, ones(low))
    }
}

impl Split for NibblesAndTwo {
    const HIGH: usize = 4;
    const LOW: usize = 2;
    const LOW_BITS: u32 = 2;
    const HIGH_MAX: u8 = 15;

    #[inline(always)]
    fn split<W: Word>(u: [W; 8]) -> ([W; 8], [W; 8]) {
        (pack_nibbles(each(u, |u| u.shr(2).bits(15))), pack_twos(each(u, |u| u.bits(3))))
    }
    #[inline(always)]
    fn high<W: Word>(high: [W; 8]) -> [W; 8] {
        nibbles(high)
    }
    #[inline(always)]
    fn join<W: Word>(high: [W; 8], low: [W; 8]) -> [W; 8] {
        join(nibbles(high), 2, twos(low))
    }
}

impl Split for NibblesAndNibbles {
    const HIGH: usize = 4;
    const LOW: usize = 4;
    const LOW_BITS: u32 = 4;
    const HIGH_MAX: u8 = 15;

    #[inline(always)]
    fn split<W: Word>(u: [W; 8]) -> ([W; 8], [W; 8]) {
        (pack_nibbles(each(u, |u| u.shr(4).bits(15))), pack_nibbles(each(u, |u| u.bits(15))))
    }
    #[inline(always)]
    fn high<W: Word>(high: [W; 8]) -> [W; 8] {
        nibbles(high)
    }
    #[inline(always)]
    fn join<W: Word>(high: [W; 8], low: [W; 8]) -> [W; 8] {
        let mut out = high;
        for j in 0..4 {
            out[j] = high[j].shl(4).bits(0xf0).or(low[j].bits(15));
            out[j + 4] = high[j].bits(0xf0).or(low[j].shr(4).bits(15));
        }
        out
    }
}

impl Split for TwoAndTwo {
    const HIGH: usize = 2;
    const LOW: usize = 2;
    const LOW_BITS: u32 = 2;
    const HIGH_MAX: u8 = 3;

    #[inline(always)]
    fn split<W: Word>(u: [W; 8]) -> ([W; 8], [W; 8]) {
        (pack_twos(each(u, |u| u.shr(2).bits(3))), pack_twos(each(u, |u| u.bits(3))))
    }
    #[inline(always)]
    fn high<W: Word>(high: [W; 8]) -> [W; 8] {
        twos(high)
    }
    #[inline(always)]
    fn join<W: Word>(high: [W; 8], low: [W; 8]) -> [W; 8] {
        join(twos(high), 2, twos(low))
    }
}

impl Split for TwoAndOne {
    const HIGH: usize = 2;
    const LOW: usize = 1;
    const LOW_BITS: u32 = 1;
    const HIGH_MAX: u8 = 3;

    #[inline(always)]
    fn split<W: Word>(u: [W; 8]) -> ([W; 8], [W; 8]) {
        (pack_twos(each(u, |u| u.shr(1).bits(3))), pack_ones(each(u, |u| u.bits(1))))
    }
    #[inline(always)]
    fn high<W: Word>(high: [W; 8]) -> [W; 8] {
        twos(high)
    }
    #[inline(always)]
    fn join<W: Word>(high: [W; 8], low: [W; 8]) -> [W; 8] {
        join(twos(high), 1, ones(low))
    }
}

impl Split for Twos {
    const HIGH: usize = 2;
    const LOW: usize = 0;
    const LOW_BITS: u32 = 0;
    const HIGH_MAX: u8 = 3;

    #[inline(always)]
    fn split<W: Word>(u: [W; 8]) -> ([W; 8], [W; 8]) {
        (pack_twos(u), u)
    }
    #[inline(always)]
    fn high<W: Word>(high: [W; 8]) -> [W; 8] {
        twos(high)
    }
    #[inline(always)]
    fn join<W: Word>(high: [W; 8], _: [W; 8]) -> [W; 8] {
        twos(high)
    }
}

impl Split for Ones {
    const HIGH: usize = 1;
    const LOW: usize = 0;
    const LOW_BITS: u32 = 0;
    const HIGH_MAX: u8 = 1;

    #[inline(always)]
    fn split<W: Word>(u: [W; 8]) -> ([W; 8], [W; 8]) {
        (pack_ones(u), u)
    }
    #[inline(always)]
    fn high<W: Word>(high: [W; 8]) -> [W; 8] {
        ones(high)
    }
    #[inline(always)]
    fn join<W: Word>(high: [W; 8], _: [W; 8]) -> [W; 8] {
        ones(high)
    }
}

impl<const N: usize> Split for Opaque<N> {
    const HIGH: usize = N;
    const LOW: usize = 0;
    const LOW_BITS: u32 = 0;
    const HIGH_MAX: u8 = 255;

    #[inline(always)]
    fn split<W: Word>(u: [W; 8]) -> ([W; 8], [W; 8]) {
        (u, u)
    }
    #[inline(always)]
    fn high<W: Word>(high: [W; 8]) -> [W; 8] {
        high
    }
    #[inline(always)]
    fn join<W: Word>(high: [W; 8], _: [W; 8]) -> [W; 8] {
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value of a weight at every place comes back, whole and by its high bits.
    fn round_trip<S: Split>(bits: u32) {
        for start in 0..1u32 << bits {
            let value = |i: u32| ((start + 37 * i) % (1 << bits)) as u8;
            let u: [u32; 8] = std::array::from_fn(|j| {
                u32::from_le_bytes(std::array::from_fn(|i| value(4 * j as u32 + i as u32)))
            });
            let (mut high, mut low) = S::split(u);
            // What a plane does not hold must not matter.
            high[S::HIGH..].fill(0xdead_beef);
            low[S::LOW..].fill(0xdead_beef);
            assert_eq!(S::join(high, low), u);
            assert_eq!(S::high(high), u.map(|w| (w >> S::LOW_BITS).bits((0xff_u32 >> S::LOW_BITS) as u8)));
            assert!(S::high(high).iter().all(|w| w.to_le_bytes().iter().all(|&b| b <= S::HIGH_MAX)));
        }
    }

    #[test]
    fn nothing_is_lost() {
        round_trip::<Nibbles>(4);
        round_trip::<Ones>(1);
        round_trip::<Twos>(2);
        round_trip::<TwoAndOne>(3);
        round_trip::<TwoAndTwo>(4);
        round_trip::<NibblesAndOne>(5);
        round_trip::<NibblesAndTwo>(6);
        round_trip::<NibblesAndNibbles>(8);
        round_trip::<Bytes>(8);
    }
}
