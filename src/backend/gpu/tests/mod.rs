//! Kernels one by one against sums in f64, with the bounds checks of wgpu in the shaders (which programs run
//! without).

use super::{
    device::{Choice, Gpu, choose},
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

/// A device with checked shaders. Without any adapter the test says so and ends, unless `SPEC_RUN_REQUIRE_FIXTURES`
/// asks that it fail.
pub fn gpu(test: &str) -> Option<Gpu> {
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

/// Numbers on the device.
pub fn numbers(gpu: &Gpu, x: &[f32]) -> wgpu::Buffer {
    lab::numbers(gpu, x).unwrap().buffer.clone()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}
