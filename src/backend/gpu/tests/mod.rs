//! Kernels one by one against sums in f64, with the bounds checks of wgpu in the shaders (which programs run
//! without).

use super::{
    device::{AdapterChoice, Found, Gpu, choose},
    lab,
    pipelines::Tuning,
    variants::Variants,
};
use crate::kv_type::KvType;

pub use lab::Random;

mod attention;
mod experts;
mod halves;
#[cfg(embedded_model)]
mod lost;
mod matmul;
mod mixers;
mod per_head;
mod rounded;
mod rows;
mod small;
mod waits;

/// Half a unit in the last place of 1.
const U: f64 = 1.0 / (1u64 << 24) as f64;

/// The adapter that tests run on: a hardware one, else the first there is. Without any the test says so and ends,
/// unless `SPEC_RUN_REQUIRE_FIXTURES` asks that it fail.
pub fn adapter(test: &str) -> Option<Found> {
    match choose(&AdapterChoice::Any).or_else(|_| choose(&AdapterChoice::Named("0".into()))) {
        Ok(found) => Some(found),
        Err(e) => {
            assert!(std::env::var_os("SPEC_RUN_REQUIRE_FIXTURES").is_none(), "{test}: {e}");
            eprintln!("SKIPPED {test}: {e}");
            None
        }
    }
}

/// A device with checked shaders.
pub fn gpu(test: &str) -> Option<Gpu> {
    gpu_with(test, Variants::PLAIN)
}

/// One that runs a variant. Where the adapter has not what it takes, the test says so.
pub fn gpu_with(test: &str, variants: Variants) -> Option<Gpu> {
    let found = adapter(test)?;
    if let Err(e) = variants.check(&found) {
        eprintln!("SKIPPED {test}: {e}");
        return None;
    }
    let mut gpu = Gpu::open_for(&found, 1 << 30, true, variants).unwrap();
    gpu.variants = variants;
    Some(gpu)
}

/// Narrow workgroups and wide ones.
const TUNINGS: [Tuning; 2] = [Tuning::SOFTWARE, Tuning::HARDWARE];

/// Numbers on the device.
pub fn numbers(gpu: &Gpu, x: &[f32]) -> wgpu::Buffer {
    lab::numbers(gpu, x).unwrap().buffer.clone()
}

/// Has a head hold what it can be stored as; gives the words that it is stored in, zero where there is nothing.
fn store(ty: KvType, head: &mut [f32]) -> Vec<u32> {
    let half = |x: f32| u32::from(half::f16::from_f32(x).to_bits());
    let two = |x: &[f32; 2]| half(x[0]) | half(x[1]) << 16;
    match ty {
        KvType::F32 => bits(head),
        KvType::F16 => {
            head.iter_mut().for_each(|x| *x = half::f16::from_f32(*x).to_f32());
            head.as_chunks().0.iter().map(two).collect()
        }
        KvType::Q8_0 => {
            let mut words = Vec::new();
            let mut scales = Vec::new();
            for block in head.as_chunks_mut::<32>().0 {
                let largest = block.iter().fold(0f32, |m, x| m.max(x.abs()));
                let scale = half::f16::from_f32(largest / 127.0).to_f32();
                let whole = block.map(|x| (x * 127.0 / largest).round_ties_even() as i8);
                words
                    .extend(whole.as_chunks().0.iter().map(|four| u32::from_le_bytes(four.map(|x| x as u8))));
                *block = whole.map(|x| scale * f32::from(x));
                scales.push(scale);
            }
            scales.resize(scales.len().next_multiple_of(2), 0.0);
            words.extend(scales.as_chunks().0.iter().map(two));
            words.resize(words.len().next_multiple_of(4), 0);
            words
        }
    }
}

/// The numbers of a stored head.
fn taken(ty: KvType, words: &[u32], dim: usize) -> Vec<f32> {
    let half = |bits: u32| half::f16::from_bits(bits as u16).to_f32();
    let halves = |words: &[u32]| words.iter().flat_map(|&w| [half(w), half(w >> 16)]).collect::<Vec<_>>();
    match ty {
        KvType::F32 => words.iter().map(|&w| f32::from_bits(w)).collect(),
        KvType::F16 => halves(words),
        KvType::Q8_0 => {
            let (bytes, scales) = words.split_at(dim / 4);
            let whole = bytes.iter().flat_map(|w| w.to_le_bytes()).map(|b| f32::from(b as i8));
            let scales = halves(scales);
            whole.enumerate().map(|(i, x)| scales[i / 32] * x).collect()
        }
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}
