//! Q1_0: a bit says whether a weight is `d` or `-d`.

use super::{
    Block, F16, GgmlType,
    groups::{Group, Grouped, dequantize},
};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockQ1_0 {
    pub d: F16,
    pub qs: [u8; 16],
}

impl Grouped for BlockQ1_0 {
    fn group(&self, b: usize) -> Group {
        let bit = |i: usize| self.qs[4 * b + i / 8] >> (i % 8) & 1;
        Group::plain(self.d.to_f32(), std::array::from_fn(|i| 2 * bit(i) as i8 - 1))
    }
}

impl Block for BlockQ1_0 {
    const TYPE: GgmlType = GgmlType::Q1_0;

    fn dequantize(&self, out: &mut [f32]) {
        dequantize(self, out);
    }
}
