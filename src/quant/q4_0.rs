//! Q4_0: `w = d·(nibble - 8)`; byte j holds weight j low and j+16 high.

use super::{Block, F16, GgmlType};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ4_0 {
    pub d: F16,
    pub qs: [u8; 16],
}

impl Block for BlockQ4_0 {
    const TYPE: GgmlType = GgmlType::Q4_0;

    fn dequantize(&self, out: &mut [f32]) {
        let _ = out;
        todo!()
    }
}
