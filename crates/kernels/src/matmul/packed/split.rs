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

/// So many bits of every weight in the high plane, and so many in the low one: as many as words of 32 weights.
pub struct Bits<const HIGH: usize, const LOW: usize>;

/// One plane.
pub type Bytes = Bits<8, 0>;
pub type Nibbles = Bits<4, 0>;
pub type Twos = Bits<2, 0>;
pub type Ones = Bits<1, 0>;
/// The top bits, and the rest.
pub type NibblesAndNibbles = Bits<4, 4>;
pub type NibblesAndTwo = Bits<4, 2>;
pub type NibblesAndOne = Bits<4, 1>;
pub type TwoAndTwo = Bits<2, 2>;
pub type TwoAndOne = Bits<2, 1>;

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

/// Word j holds `u[j]` and `u[j + 4]`.
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

/// A plane of `N` bits of every weight.
#[inline(always)]
fn pack<W: Word, const N: usize>(u: [W; 8]) -> [W; 8] {
    match N {
        8 => u,
        4 => pack_nibbles(u),
        2 => pack_twos(u),
        1 => pack_ones(u),
        _ => unreachable!("no plane has {N} bits"),
    }
}

/// The inverse of [`pack`].
#[inline(always)]
fn unpack<W: Word, const N: usize>(packed: [W; 8]) -> [W; 8] {
    match N {
        8 => packed,
        4 => nibbles(packed),
        2 => twos(packed),
        1 => ones(packed),
        _ => unreachable!("no plane has {N} bits"),
    }
}

impl<const HIGH: usize, const LOW: usize> Split for Bits<HIGH, LOW> {
    const HIGH: usize = HIGH;
    const LOW: usize = LOW;
    const LOW_BITS: u32 = LOW as u32;
    const HIGH_MAX: u8 = u8::MAX >> (8 - HIGH);

    #[inline(always)]
    fn split<W: Word>(u: [W; 8]) -> ([W; 8], [W; 8]) {
        if LOW == 0 {
            return (pack::<W, HIGH>(u), u);
        }
        let high = each(u, |u| u.shr(Self::LOW_BITS).bits(Self::HIGH_MAX));
        (pack::<W, HIGH>(high), pack::<W, LOW>(each(u, |u| u.bits((1 << LOW) - 1))))
    }
    #[inline(always)]
    fn high<W: Word>(high: [W; 8]) -> [W; 8] {
        unpack::<W, HIGH>(high)
    }
    #[inline(always)]
    fn join<W: Word>(high: [W; 8], low: [W; 8]) -> [W; 8] {
        if LOW == 0 {
            return unpack::<W, HIGH>(high);
        }
        let mut out = high;
        if HIGH == 4 && LOW == 4 {
            // Half of the high nibbles stand where they belong.
            for j in 0..4 {
                out[j] = high[j].shl(4).bits(0xf0).or(low[j].bits(15));
                out[j + 4] = high[j].bits(0xf0).or(low[j].shr(4).bits(15));
            }
            return out;
        }
        let (high, low) = (unpack::<W, HIGH>(high), unpack::<W, LOW>(low));
        for j in 0..8 {
            out[j] = high[j].shl(Self::LOW_BITS).or(low[j]);
        }
        out
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
