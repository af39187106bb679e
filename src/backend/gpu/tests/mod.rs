//! Kernels one by one against sums in f64, with the bounds checks of wgpu in the shaders (which programs run
//! without).

use super::{
    device::{Choice, Found, Gpu, choose},
    lab,
    pipelines::Tuning,
    variants::Variants,
};

pub use lab::Random;

mod attention;
mod matmul;
mod rows;

/// Half a unit in the last place of 1.
const U: f64 = 1.0 / (1u64 << 24) as f64;

/// The adapter that tests run on: a hardware one, else the first there is. Without any the test says so and ends,
/// unless `SPEC_RUN_REQUIRE_FIXTURES` asks that it fail.
pub fn adapter(test: &str) -> Option<Found> {
    match choose(&Choice::Any).or_else(|_| choose(&Choice::Named("0".into()))) {
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

/// Ways to make sums over a workgroup: in narrow and in wide ones, and by subgroups where there are any.
fn reductions(test: &str) -> Vec<(Tuning, Variants)> {
    let mut ways = vec![Variants::PLAIN];
    let subgroups = Variants { subgroups: true, ..Variants::PLAIN };
    ways.extend(gpu_with(test, subgroups).map(|gpu| gpu.variants));
    let both = |variants| [(Tuning::SOFTWARE, variants), (Tuning::HARDWARE, variants)];
    ways.into_iter().flat_map(both).collect()
}

/// Numbers on the device.
pub fn numbers(gpu: &Gpu, x: &[f32]) -> wgpu::Buffer {
    lab::numbers(gpu, x).unwrap().buffer.clone()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}
