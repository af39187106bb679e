//! Q4_1: `w = d·nibble + m`.

use super::{Block, F16, GgmlType};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ4_1 {
    pub d: F16,
    pub m: F16,
    pub qs: [u8; 16],
}

impl Block for BlockQ4_1 {
    const TYPE: GgmlType = GgmlType::Q4_1;

    fn dequantize(&self, out: &mut [f32]) {
        let _ = out;
        todo!()
    }
}
