//! IQ4_NL: `w = d·KVALUES[nibble]`.

use super::{Block, F16, GgmlType};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq4Nl {
    pub d: F16,
    pub qs: [u8; 16],
}

impl Block for BlockIq4Nl {
    const TYPE: GgmlType = GgmlType::IQ4_NL;

    fn dequantize(&self, out: &mut [f32]) {
        let _ = out;
        todo!()
    }
}
