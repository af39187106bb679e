//! Q2_K: sub-blocks of 16: `w = d·scale·q - dmin·min`.

use super::{Block, F16, GgmlType};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ2K {
    pub scales: [u8; 16],
    pub qs: [u8; 64],
    pub d: F16,
    pub dmin: F16,
}

impl Block for BlockQ2K {
    const TYPE: GgmlType = GgmlType::Q2_K;

    fn dequantize(&self, out: &mut [f32]) {
        let _ = out;
        todo!()
    }
}
