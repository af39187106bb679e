//! Q6_K: sub-blocks of 16: `w = d·scale·(q - 32)`. Of each half of 128 weights, 64 bytes hold the low
//! four bits (low nibbles: the first 64), 32 bytes the high two (bits 0-1: the first 32).

use super::{Block, F16, GgmlType};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ6K {
    pub ql: [u8; 128],
    pub qh: [u8; 64],
    pub scales: [i8; 16],
    pub d: F16,
}

impl Block for BlockQ6K {
    const TYPE: GgmlType = GgmlType::Q6_K;

    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        for (sub, out) in out.chunks_exact_mut(16).enumerate() {
            let scale = d * self.scales[sub] as f32;
            let (half, in_half) = (sub / 8, sub % 8);
            let low = self.ql[half * 64 + in_half % 4 * 16..].iter();
            let high = self.qh[half * 32 + in_half % 2 * 16..].iter();
            let (low_shift, high_shift) = (in_half / 4 * 4, in_half / 2 * 2);
            for ((low, high), out) in low.zip(high).zip(out) {
                let q = low >> low_shift & 15 | (high >> high_shift & 3) << 4;
                *out = scale * (q as i8 - 32) as f32;
            }
        }
    }
}
