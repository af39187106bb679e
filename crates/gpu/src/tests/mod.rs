//! Kernels one by one against sums in f64, with the bounds checks of wgpu in the shaders (which programs run
//! without).

use super::{
    device::{AdapterChoice, Found, Gpu, choose},
    harness,
    proof::U,
    stored::row_of,
    tuning::Tuning,
    variants::Variants,
};
use crate::kv_type::KvType;

pub use harness::{Random, store};

mod attention;
mod experts;
mod halves;
// Apple has no Vulkan.
#[cfg(not(target_vendor = "apple"))]
mod isa;
mod matmul;
mod mixers;
mod per_head;
mod prepared;
mod rows;
mod small;
mod stored;
mod unscaled;
mod waits;
mod whole;

/// The adapter that tests run on: a hardware one, else the first there is. Without any the test says so and ends,
/// unless `SPEC_RUN_REQUIRE_FIXTURES` asks that it fail.
pub fn adapter(test: &str) -> Option<Found> {
    match choose(&AdapterChoice::Any).or_else(|_| choose(&AdapterChoice::Named("0".into()))) {
        Ok(found) => Some(found),
        Err(e) => {
            assert!(std::env::var_os("SPEC_RUN_REQUIRE_FIXTURES").is_none(), "{test}: {e}");
            eprintln!("NOT RUN: {test}: {e}");
            None
        }
    }
}

/// One of several choices for the `i`-th case, or all of them where `SPEC_RUN_EVERY_SHADER` asks for it, as `.ci/full` does. It is
/// for kernels of the same texts with other constants: a driver that is a program takes half a second to compile each.
pub fn chosen_in_turn<T: Copy>(i: usize, choices: &[&[T]]) -> Vec<T> {
    match std::env::var_os("SPEC_RUN_EVERY_SHADER") {
        Some(_) => choices.concat(),
        None => choices[i % choices.len()].to_vec(),
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
        eprintln!("NOT RUN: {test}: {e}");
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
    harness::numbers(gpu, x).unwrap().buffer.clone()
}

/// The numbers of a stored head.
fn taken(ty: KvType, words: &[u32], dim: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; dim];
    ty.take(&row_of(ty, words, dim), &mut numbers);
    numbers
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}
