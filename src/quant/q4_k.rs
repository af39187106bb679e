//! Q4_K: sub-blocks of 32: `w = d·scale·q - dmin·min`.

use super::{Block, F16, GgmlType};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ4K {
    pub d: F16,
    pub dmin: F16,
    pub scales: [u8; 12],
    pub qs: [u8; 128],
}

impl Block for BlockQ4K {
    const TYPE: GgmlType = GgmlType::Q4_K;

    fn dequantize(&self, out: &mut [f32]) {
        let _ = out;
        todo!()
    }
}
