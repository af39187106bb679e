//! Q2_0: `w = d·(q - 1)`, two bits each.

use super::{
    Block, F16, GgmlType,
    groups::{Group, Grouped, dequantize},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ2_0 {
    pub d: F16,
    pub qs: [u8; 16],
}

impl Grouped for BlockQ2_0 {
    fn group(&self, b: usize) -> Group {
        let bits = |i: usize| self.qs[8 * b + i / 4] >> (i % 4 * 2) & 3;
        Group::plain(self.d.to_f32(), std::array::from_fn(|i| bits(i) as i8 - 1))
    }
}

impl Block for BlockQ2_0 {
    const TYPE: GgmlType = GgmlType::Q2_0;

    fn dequantize(&self, out: &mut [f32]) {
        dequantize(self, out);
    }
}
