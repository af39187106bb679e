//! Random weights for tests of kernels.

use spec_run::quant::GgmlType;
use spec_run_kernels::matmul::Weight;

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// -1..1
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 2f32.powi(23) - 1.0
    }

    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

/// Where the halves of a block stand, and where its quants.
pub fn fields(ty: GgmlType) -> (&'static [usize], std::ops::Range<usize>) {
    match ty {
        GgmlType::Q4_0 | GgmlType::IQ4_NL => (&[0], 2..18),
        GgmlType::Q4_1 => (&[0, 2], 4..20),
        GgmlType::Q5_0 => (&[0], 2..22),
        GgmlType::Q5_1 => (&[0, 2], 4..24),
        GgmlType::Q8_0 => (&[0], 2..34),
        GgmlType::Q2_K => (&[80, 82], 16..80),
        GgmlType::Q3_K => (&[108], 0..96),
        GgmlType::Q4_K => (&[0, 2], 16..144),
        GgmlType::Q5_K => (&[0, 2], 16..176),
        GgmlType::Q6_K => (&[208], 0..192),
        GgmlType::IQ4_XS => (&[0], 8..136),
        GgmlType::MXFP4 => (&[], 1..17),
        GgmlType::NVFP4 => (&[], 4..36),
        GgmlType::IQ1_S => (&[0], 2..34),
        GgmlType::IQ1_M => (&[], 0..48),
        GgmlType::IQ2_XXS | GgmlType::IQ2_XS | GgmlType::IQ2_S | GgmlType::IQ3_XXS => (&[0], 2..66),
        GgmlType::IQ3_S => (&[0], 2..106),
        GgmlType::TQ1_0 => (&[52], 0..52),
        GgmlType::TQ2_0 => (&[64], 0..64),
        GgmlType::Q1_0 | GgmlType::Q2_0 => (&[0], 2..18),
        GgmlType::F16 => (&[0], 0..2),
        other => (&[], 0..other.block_bytes()),
    }
}

/// Blocks of random bytes, everything possible but scales that are not finite or run over.
pub fn wild_blocks(random: &mut Random, ty: GgmlType, blocks: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..blocks * ty.block_bytes()).map(|_| random.next() as u8).collect();
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in fields(ty).0 {
            if block[at + 1] & 0x7c == 0x7c {
                block[at + 1] ^= 0x04;
            }
        }
        match ty {
            GgmlType::MXFP4 => block[0] &= 0x7f,
            // The top of its half stands in the last four bits.
            GgmlType::IQ1_M => block[55] &= 0xbf,
            GgmlType::BF16 | GgmlType::F32 => *block.last_mut().unwrap() &= 0xbf,
            _ => {}
        }
    }
    bytes
}

/// Random quants with scales of about one size, as in real models.
pub fn tame_blocks(random: &mut Random, ty: GgmlType, blocks: usize) -> Vec<u8> {
    let mut bytes = wild_blocks(random, ty, blocks);
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in fields(ty).0 {
            let scale = half::f16::from_f32(
                (random.float() + 2.0) * if random.next() & 1 == 0 { 0.01 } else { -0.01 },
            );
            block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
        match ty {
            GgmlType::MXFP4 => block[0] = 118 + (random.next() % 4) as u8,
            GgmlType::NVFP4 => block[..4].fill_with(|| 8 + (random.next() % 24) as u8),
            GgmlType::IQ1_M => {
                let scale = half::f16::from_f32(0.01 * (random.float() + 2.0)).to_bits();
                for i in 0..4 {
                    let top = &mut block[49 + 2 * i];
                    *top = *top & 15 | ((scale >> (4 * i) & 15) as u8) << 4;
                }
            }
            GgmlType::F32 => block.copy_from_slice(&random.float().to_le_bytes()),
            GgmlType::BF16 => block.copy_from_slice(&half::bf16::from_f32(random.float()).to_le_bytes()),
            _ => {}
        }
    }
    bytes
}

pub fn weight(ty: GgmlType, bytes: &[u8], rows: usize, k: usize) -> Weight<'_> {
    Weight::new(ty, &bytes[..rows * ty.row_bytes(k).unwrap()], rows, k)
}

pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect()
}
