//! MXFP4: `w = 2^(e-128)·VALUES[nibble]`, values doubled to be integers.

use super::{Block, GgmlType};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockMxfp4 {
    pub e: u8,
    pub qs: [u8; 16],
}

impl Block for BlockMxfp4 {
    const TYPE: GgmlType = GgmlType::MXFP4;

    fn dequantize(&self, out: &mut [f32]) {
        let _ = out;
        todo!()
    }
}
