//! Halves.

/// An IEEE half as it lies in the file: little-endian, at any address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct F16(pub [u8; 2]);

impl F16 {
    /// The nearest half.
    pub fn from_f32(x: f32) -> Self {
        F16(half::f16::from_f32(x).to_le_bytes())
    }

    /// Sign, exponent and mantissa.
    pub fn bits(self) -> u16 {
        u16::from_le_bytes(self.0)
    }

    /// Exact, with selects in place of branches, so that loops over it become SIMD on any target.
    /// A NaN comes out quiet with its payload kept, as from the conversion instructions.
    #[inline(always)]
    pub const fn to_f32(self) -> f32 {
        const REBIAS: u32 = (127 - 15) << 23;
        const SMALLEST_NORMAL: f32 = f32::from_bits(REBIAS + (1 << 23));
        let bits = u16::from_le_bytes(self.0) as u32;
        let magnitude = (bits & 0x7fff) << 13;
        let finite = if magnitude < 1 << 23 {
            // The mantissa under the exponent of the smallest normal half, less that half.
            (f32::from_bits(magnitude + REBIAS + (1 << 23)) - SMALLEST_NORMAL).to_bits()
        } else {
            magnitude + REBIAS
        };
        let top = if magnitude >= 31 << 23 { 255 << 23 } else { 0 };
        let quiet = if magnitude > 31 << 23 { 1 << 22 } else { 0 };
        f32::from_bits((bits & 0x8000) << 16 | finite | top | quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_converts_as_ieee_says() {
        for bits in 0..=u16::MAX {
            let ours = F16(bits.to_le_bytes()).to_f32();
            let theirs = half::f16::from_bits(bits).to_f32_const();
            assert_eq!(ours.to_bits(), theirs.to_bits(), "half {bits:#06x}");
        }
    }
}
