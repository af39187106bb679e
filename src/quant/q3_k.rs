//! Q3_K: sub-blocks of 16: `w = d·(scale - 32)·(q - 4)`.

use super::{Block, F16, GgmlType};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ3K {
    pub hmask: [u8; 32],
    pub qs: [u8; 64],
    pub scales: [u8; 12],
    pub d: F16,
}

impl Block for BlockQ3K {
    const TYPE: GgmlType = GgmlType::Q3_K;

    fn dequantize(&self, out: &mut [f32]) {
        let _ = out;
        todo!()
    }
}
