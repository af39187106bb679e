//! IQ4_NL: `w = d·KVALUES[nibble]`.

use super::{Block, F16, GgmlType};

/// The levels of IQ4_NL and IQ4_XS: dense near zero, where most weights are.
pub const KVALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockIq4Nl {
    pub d: F16,
    pub qs: [u8; 16],
}

impl Block for BlockIq4Nl {
    const TYPE: GgmlType = GgmlType::IQ4_NL;

    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        let (low, high) = out.split_at_mut(16);
        for ((q, low), high) in self.qs.iter().zip(low).zip(high) {
            *low = d * KVALUES[(q & 15) as usize] as f32;
            *high = d * KVALUES[(q >> 4) as usize] as f32;
        }
    }
}
