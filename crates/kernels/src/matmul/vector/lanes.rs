//! What the unpacking and the products need of a tier: vectors with one 32-bit lane per weight row.

use super::{
    dot::Dot,
    kinds::Kind,
    points::{self, Eights, Fours},
};
use crate::{matmul::packed::split::Word, simd::Tier};

/// Methods are safe where they touch registers only: a value of the type proves that the machine has the tier.
pub trait Lanes: Tier {
    /// Lanes of a vector: 8 or 16.
    const ROWS: usize;
    /// Whether weights of all 256 values stay signed in the panel (else they get the offset 128).
    const SIGNED_BYTES: bool;
    /// Columns that are worth having in registers at a time: 4 or 8.
    const COLUMNS: usize;
    /// A vector of integers.
    type V: Copy;
    /// A vector of f32.
    type F: Copy;

    /// Up to how many columns are multiplied in two halves, each block unpacked once for both; more go by way of panels.
    #[inline(always)]
    fn few_columns(self) -> usize {
        2 * Self::COLUMNS
    }

    /// All of a panel's products, if the tier has a way of its own for so many columns; else it does nothing and says so.
    ///
    /// # Safety
    /// As [`dot`](super::dot::dot).
    #[inline(always)]
    unsafe fn dot_panel<K: Kind>(self, _: &Dot<K>) -> bool {
        false
    }

    /// 16 bytes of every row, the first at `p`: vector i holds the bytes 4·i..4·i+4 of each row.
    ///
    /// # Safety
    /// 16 bytes are readable at `p + i · stride` for every lane i.
    unsafe fn rows_16_bytes(self, p: *const u8, stride: usize) -> [Self::V; 4];

    /// # Safety
    /// A whole vector is readable at `p`; any alignment.
    unsafe fn load(self, p: *const u8) -> Self::V;
    /// # Safety
    /// A whole vector is writable at `p`; any alignment.
    unsafe fn store(self, p: *mut u8, v: Self::V);
    /// # Safety
    /// A whole vector is readable at `p`.
    unsafe fn load_f32(self, p: *const f32) -> Self::F;
    /// # Safety
    /// A whole vector is writable at `p`.
    unsafe fn store_f32(self, p: *mut f32, v: Self::F);

    /// A half for every lane.
    ///
    /// # Safety
    /// `ROWS` halves are readable at `p`.
    unsafe fn load_halves(self, p: *const u8) -> Self::F;
    /// A byte for every lane.
    ///
    /// # Safety
    /// `ROWS` bytes are readable at `p`.
    unsafe fn load_bytes(self, p: *const u8) -> Self::V;

    /// Fetches a cache line that is needed soon; any address will do.
    fn prefetch(self, p: *const u8);

    /// In every 32-bit lane.
    fn splat(self, x: u32) -> Self::V;
    fn splat_f32(self, x: f32) -> Self::F;
    /// The 16 bytes repeated.
    fn table(self, bytes: &[u8; 16]) -> Self::V;
    /// Looks every byte of `at` (each below 16) up in its part of `table`.
    fn look_up(self, table: Self::V, at: Self::V) -> Self::V;
    /// Byte `i` of each lane in all four bytes of the lane.
    fn spread_byte(self, v: Self::V, i: usize) -> Self::V;

    /// Word `at` of a table, for each lane.
    ///
    /// # Safety
    /// The table goes on so far.
    unsafe fn gather(self, table: *const u32, at: Self::V) -> Self::V;

    /// The points with the numbers whose low bytes are those of `low` and whose further bits are those of `high`: vector k
    /// holds the weights of the k-th of each lane.
    #[inline(always)]
    fn fours<const N: usize>(self, table: &Fours<N>, low: Self::V, high: Self::V) -> [Self::V; 4] {
        points::fours(self, table, low, high)
    }
    /// The same for points of eight weights, two vectors for each.
    #[inline(always)]
    fn eights<const N: usize>(self, table: &Eights<N>, low: Self::V, high: Self::V) -> [Self::V; 8] {
        points::eights(self, table, low, high)
    }
    /// Weights of `offset` and more become so much smaller than it where bit j of their byte of `signs` is set.
    #[inline(always)]
    fn with_signs(self, weights: Self::V, signs: Self::V, j: usize, offset: u8) -> Self::V {
        points::with_signs(self, weights, signs, j, offset)
    }

    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    /// Of unsigned bytes.
    fn min_bytes(self, a: Self::V, b: Self::V) -> Self::V;
    /// Shifts of 32-bit lanes; `n` is a constant below 32.
    fn shl(self, v: Self::V, n: u32) -> Self::V;
    fn shr(self, v: Self::V, n: u32) -> Self::V;
    /// With sign.
    fn sar(self, v: Self::V, n: u32) -> Self::V;
    /// Of 32-bit lanes, as the next two.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// Per lane, the two products of signed 16-bit halves, added.
    fn mul_pairs(self, a: Self::V, b: Self::V) -> Self::V;

    /// The low 16 bits of each lane are a half.
    fn half_to_f32(self, v: Self::V) -> Self::F;
    fn to_f32(self, v: Self::V) -> Self::F;
    fn as_f32(self, v: Self::V) -> Self::F;
    fn mul_f32(self, a: Self::F, b: Self::F) -> Self::F;
    fn neg_f32(self, a: Self::F) -> Self::F;
    /// `a·b + c`, rounded once.
    fn fma_f32(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    /// `acc[c]` + Σ weight · `x[c]` over `4·N` columns. Weights are at most `largest`, or, if `signed`, of at most
    /// that magnitude; both are constants.
    ///
    /// # Safety
    /// `4·N` bytes are readable at each `x`.
    unsafe fn dot<const N: usize, const C: usize>(
        self,
        w: &[Self::V; N],
        x: [*const i8; C],
        acc: [Self::V; C],
        largest: u8,
        signed: bool,
    ) -> [Self::V; C];
}

/// A vector as words of several rows.
#[derive(Clone, Copy)]
pub struct Words<L: Lanes>(pub L, pub L::V);

impl<L: Lanes> Word for Words<L> {
    #[inline(always)]
    fn zero(self) -> Self {
        Words(self.0, self.0.splat(0))
    }
    #[inline(always)]
    fn shl(self, n: u32) -> Self {
        Words(self.0, self.0.shl(self.1, n))
    }
    #[inline(always)]
    fn shr(self, n: u32) -> Self {
        Words(self.0, self.0.shr(self.1, n))
    }
    #[inline(always)]
    fn bits(self, mask: u8) -> Self {
        Words(self.0, self.0.and(self.1, self.0.splat(u32::from_ne_bytes([mask; 4]))))
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        Words(self.0, self.0.or(self.1, other.1))
    }
}
