//! IQ1_M: points of eight weights of -1, 0 or 1 with eleven bits each, each with an eighth that is added or taken away, and a
//! scale of three bits for each 16: `w = d·(2·scale + 1)·(point ± 1/8)`.

use super::{
    Block, F16, GgmlType,
    grids::{IQ1, eight_ternary},
    weights::{Weights, eights},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq1M {
    pub qs: [u8; 32],
    /// Of each point, in a nibble, three upper bits and the sign of its eighth.
    pub qh: [u8; 16],
    /// Four words of twelve bits of scales; the other four bits of each are a quarter of `d`, the lowest first.
    pub scales: [[u8; 2]; 4],
}

impl BlockIq1M {
    pub fn d(&self) -> F16 {
        let quarters = self.scales.iter().rev();
        F16(quarters.fold(0, |d, word| d << 4 | u16::from_le_bytes(*word) >> 12).to_le_bytes())
    }
}

impl Block for BlockIq1M {
    const TYPE: GgmlType = GgmlType::IQ1_M;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let ints = eights(|l| {
            let nibble = self.qh[2 * b + l / 2] >> (l % 2 * 4) & 15;
            let eighth = if nibble >> 3 == 1 { -1 } else { 1 };
            let at = u16::from(self.qs[4 * b + l]) | u16::from(nibble & 7) << 8;
            eight_ternary(IQ1[usize::from(at)]).map(|x| 8 * x + eighth)
        });
        let scales = u16::from_le_bytes(self.scales[b / 2]) >> (b % 2 * 6);
        let sub = [scales & 7, scales >> 3 & 7].map(|scale| 2 * i32::from(scale) + 1);
        Weights::with_sub_scales(self.d().to_f32() * 0.125, sub, ints)
    }
}
