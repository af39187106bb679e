//! Q5_K: sub-blocks of 32: `w = d·scale·q - dmin·min`, the fifth bits in `qh`.

use super::{Block, F16, GgmlType};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ5K {
    pub d: F16,
    pub dmin: F16,
    pub scales: [u8; 12],
    pub qh: [u8; 32],
    pub qs: [u8; 128],
}

impl Block for BlockQ5K {
    const TYPE: GgmlType = GgmlType::Q5_K;

    fn dequantize(&self, out: &mut [f32]) {
        let _ = out;
        todo!()
    }
}
