//! Q6_K: sub-blocks of 16: `w = d·scale·(q - 32)`.

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
        let _ = out;
        todo!()
    }
}
