//! IQ4_XS: sub-blocks of 32: `w = d·(scale - 32)·KVALUES[nibble]`.

use super::{Block, F16, GgmlType};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq4Xs {
    pub d: F16,
    pub scales_h: [u8; 2],
    pub scales_l: [u8; 4],
    pub qs: [u8; 128],
}

impl Block for BlockIq4Xs {
    const TYPE: GgmlType = GgmlType::IQ4_XS;

    fn dequantize(&self, out: &mut [f32]) {
        let _ = out;
        todo!()
    }
}
