//! IQ1_S: points of eight weights of -1, 0 or 1 with eleven bits each, and for each 32 a scale of three bits and an eighth that is
//! added or taken away: `w = d·(2·scale + 1)·(point ± 1/8)`.

use super::{
    Block, F16, GgmlType,
    grids::{IQ1, eight_ternary},
    weights::{Weights, eights},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq1S {
    pub d: F16,
    pub qs: [u8; 32],
    /// Of each 32 weights three upper bits of four points, the scale, and the sign of the eighth.
    pub qh: [[u8; 2]; 8],
}

impl Block for BlockIq1S {
    const TYPE: GgmlType = GgmlType::IQ1_S;

    #[inline(always)]
    fn weights(&self, b: usize) -> Weights {
        let high = u16::from_le_bytes(self.qh[b]);
        let eighth = if high >> 15 == 1 { -1 } else { 1 };
        let ints = eights(|l| {
            let at = u16::from(self.qs[4 * b + l]) | (high >> (3 * l) & 7) << 8;
            eight_ternary(IQ1[usize::from(at)]).map(|x| 8 * x + eighth)
        });
        let scale = i32::from(high >> 12 & 7);
        Weights::with_sub_scales(self.d.to_f32() * 0.125, [2 * scale + 1; 2], ints)
    }
}
