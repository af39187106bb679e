//! Q5_0: `w = d·(q - 16)`, the fifth bits in `qh`.

use super::{Block, F16, GgmlType};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ5_0 {
    pub d: F16,
    pub qh: [u8; 4],
    pub qs: [u8; 16],
}

impl Block for BlockQ5_0 {
    const TYPE: GgmlType = GgmlType::Q5_0;

    fn dequantize(&self, out: &mut [f32]) {
        let _ = out;
        todo!()
    }
}
