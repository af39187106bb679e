//! Points of grids by their numbers: the weights of many rows at a time, as magnitudes on top of an offset.

use super::lanes::Lanes;

/// Points of four weights, whose levels have three bits.
#[repr(C, align(64))]
pub struct Fours<const N: usize> {
    /// The i-th weights of all points.
    pub bytes: [[u8; N]; 4],
    /// The points, a byte a weight.
    pub words: [u32; N],
}

/// Points of eight weights, whose levels have two bits.
#[repr(C, align(64))]
pub struct Eights<const N: usize> {
    /// What the two bits stand for, again and again.
    pub levels: [u8; 64],
    /// The bits of four weights of all points, and those of the other four.
    pub digits: [[u8; N]; 2],
    /// The points, a byte a weight.
    pub words: [[u32; 2]; N],
}

impl<const N: usize> Fours<N> {
    pub const fn new(points: &[u16; N], levels: &[u8; 8], offset: u8) -> Self {
        let mut table = Fours { bytes: [[0; N]; 4], words: [0; N] };
        let mut at = 0;
        while at < N {
            let mut i = 0;
            while i < 4 {
                let weight = levels[(points[at] >> (3 * i) & 7) as usize] + offset;
                table.bytes[i][at] = weight;
                table.words[at] |= (weight as u32) << (8 * i);
                i += 1;
            }
            at += 1;
        }
        table
    }
}

impl<const N: usize> Eights<N> {
    /// The levels are there with their offset.
    pub const fn new(points: &[u16; N], levels: [u8; 4]) -> Self {
        let mut table = Eights { levels: [0; 64], digits: [[0; N]; 2], words: [[0; 2]; N] };
        let mut i = 0;
        while i < 64 {
            table.levels[i] = levels[i % 4];
            i += 1;
        }
        let mut at = 0;
        while at < N {
            [table.digits[0][at], table.digits[1][at]] = points[at].to_le_bytes();
            let mut i = 0;
            while i < 8 {
                let weight = levels[(points[at] >> (2 * i) & 3) as usize];
                table.words[at][i / 4] |= (weight as u32) << (8 * (i % 4));
                i += 1;
            }
            at += 1;
        }
        table
    }
}

/// The number of point `k` of each lane, below `N`: its low byte, and its byte of `high`, of which only the bits that it can
/// have are looked at.
#[inline(always)]
fn number<L: Lanes, const N: usize>(l: L, low: L::V, high: L::V, k: usize) -> L::V {
    let low = l.and(l.shr(low, 8 * k as u32), l.splat(255));
    if N <= 256 {
        return low;
    }
    let high = if k == 0 { l.shl(high, 8) } else { l.shr(high, 8 * k as u32 - 8) };
    l.or(low, l.and(high, l.splat(N as u32 - 256)))
}

/// [`Lanes::fours`] by words of the table.
#[inline(always)]
pub fn fours<L: Lanes, const N: usize>(l: L, table: &Fours<N>, low: L::V, high: L::V) -> [L::V; 4] {
    let mut out = [low; 4];
    for (k, out) in out.iter_mut().enumerate() {
        // SAFETY: the number is below N.
        *out = unsafe { l.gather(table.words.as_ptr(), number::<L, N>(l, low, high, k)) };
    }
    out
}

/// [`Lanes::eights`] by words of the table.
#[inline(always)]
pub fn eights<L: Lanes, const N: usize>(l: L, table: &Eights<N>, low: L::V, high: L::V) -> [L::V; 8] {
    let mut out = [low; 8];
    let words = table.words.as_ptr().cast::<u32>();
    for k in 0..4 {
        let at = l.shl(number::<L, N>(l, low, high, k), 1);
        // SAFETY: the number is below N, and each has two words.
        unsafe {
            out[2 * k] = l.gather(words, at);
            out[2 * k + 1] = l.gather(words.add(1), at);
        }
    }
    out
}

/// [`Lanes::with_signs`] by operations that every tier has.
#[inline(always)]
pub fn with_signs<L: Lanes>(l: L, weights: L::V, signs: L::V, j: usize, offset: u8) -> L::V {
    let ones = l.and(l.shr(signs, j as u32), l.splat(0x0101_0101));
    let negative = l.sub(l.shl(ones, 8), ones);
    // 255 - w less what 255 is more than twice the offset: no byte borrows from the next.
    let beyond = l.and(negative, l.splat(0x0101_0101 * (255 - 2 * u32::from(offset))));
    l.sub(l.xor(weights, negative), beyond)
}
