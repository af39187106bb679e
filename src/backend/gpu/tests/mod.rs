//! Kernels one by one against sums in f64, with the bounds checks of wgpu in the shaders (which programs run
//! without).

use super::{
    device::{Choice, Gpu, choose},
    pipelines::Tuning,
    variants::Variants,
};
use crate::quant::GgmlType;

mod attention;
mod matmul;
mod rows;

/// Half a unit in the last place of 1.
const U: f64 = 1.0 / (1u64 << 24) as f64;

/// A device with checked shaders. Without any adapter the test says so and ends, unless `SPEC_RUN_REQUIRE_FIXTURES`
/// asks that it fail.
fn gpu(test: &str) -> Option<Gpu> {
    match choose(&Choice::Any).or_else(|_| choose(&Choice::Named("llvmpipe".into()))) {
        Ok(found) => Some(Gpu::open(&found, 1 << 30, true).unwrap()),
        Err(e) => {
            assert!(std::env::var_os("SPEC_RUN_REQUIRE_FIXTURES").is_none(), "{test}: {e}");
            eprintln!("SKIPPED {test}: {e}");
            None
        }
    }
}

/// Whether the device has what a variant needs; if not the test says so.
fn offered(test: &str, variants: Variants) -> bool {
    let found = choose(&Choice::Any).or_else(|_| choose(&Choice::Named("llvmpipe".into()))).unwrap();
    let checked = variants.check(&found);
    if let Err(e) = &checked {
        eprintln!("SKIPPED {test}: {e}");
    }
    checked.is_ok()
}

/// Ways to make sums over a workgroup: in narrow and in wide ones, and by subgroups where there are any.
fn reductions(test: &str) -> Vec<(Tuning, Variants)> {
    let mut ways = vec![Variants::PLAIN];
    let subgroups = Variants { subgroups: true, ..Variants::PLAIN };
    ways.extend(offered(test, subgroups).then_some(subgroups));
    let both = |variants| [(Tuning::SOFTWARE, variants), (Tuning::HARDWARE, variants)];
    ways.into_iter().flat_map(both).collect()
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// -1..1
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 2f32.powi(23) - 1.0
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

/// Where the halves of a block stand.
fn halves(ty: GgmlType) -> &'static [usize] {
    match ty {
        GgmlType::Q4_0 | GgmlType::IQ4_NL | GgmlType::Q5_0 | GgmlType::Q8_0 | GgmlType::IQ4_XS => &[0],
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K => &[0, 2],
        GgmlType::Q2_K => &[80, 82],
        GgmlType::Q3_K => &[108],
        GgmlType::Q6_K => &[208],
        _ => &[],
    }
}

/// Random bits with scales of about 1/100, as in real models.
fn blocks(random: &mut Random, ty: GgmlType, n: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..n * ty.block_bytes()).map(|_| random.next() as u8).collect();
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in halves(ty) {
            let scale = half::f16::from_f32(0.01 * (random.float() + 2.0));
            block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
        match ty {
            GgmlType::MXFP4 => block[0] = 118 + (random.next() % 4) as u8,
            GgmlType::F32 => block.copy_from_slice(&random.float().to_le_bytes()),
            GgmlType::F16 => block.copy_from_slice(&half::f16::from_f32(random.float()).to_le_bytes()),
            GgmlType::BF16 => block.copy_from_slice(&half::bf16::from_f32(random.float()).to_le_bytes()),
            _ => {}
        }
    }
    bytes
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}
