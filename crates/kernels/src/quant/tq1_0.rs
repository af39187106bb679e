//! TQ1_0: weights of -1, 0 and 1, five to a byte as a number below 1 in base three: `w = d·(digit - 1)`.

use super::{
    Block, F16, GgmlType,
    weights::{Weights, ints},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockTq1 {
    /// 32 bytes hold 160 weights, the first digits of all bytes first, then 16 bytes another 80.
    pub qs: [u8; 48],
    /// Four weights in each.
    pub qh: [u8; 4],
    pub d: F16,
}

impl Block for BlockTq1 {
    const TYPE: GgmlType = GgmlType::TQ1_0;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let ints = ints(|i| match 32 * b + i {
            at @ ..160 => digit(self.qs[at % 32], at / 32),
            at @ 160..240 => digit(self.qs[32 + at % 16], (at - 160) / 16),
            at => digit(self.qh[at % 4], (at - 240) / 4),
        });
        Weights::plain(self.d.to_f32(), ints)
    }
}

/// The `n`-th digit behind the point of `byte / 256` in base three, less one.
fn digit(byte: u8, n: usize) -> i8 {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    ((u16::from(byte.wrapping_mul(POWERS[n])) * 3) >> 8) as i8 - 1
}
