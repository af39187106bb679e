//! NVFP4 on the GPU, whose scales have the factors beside them multiplied in.

use crate::common::{
    all_logits, context,
    families::families,
    gpu::{self, ROUNDING},
    in_floats::{f32_cache, floats, relative_error},
    nvfp4::{as_floats, as_it_is, in_nvfp4, is_matrix, loaded},
    tokens,
};

/// Joined matrices, experts, mixers and a head of its own.
const MODELS: [&str; 4] = ["llama", "qwen3moe", "qwen3next", "falcon-h1"];

#[test]
fn factors_count_once_in_every_product() {
    const TEST: &str = "factors_count_once_in_every_product";
    let Some(device) = gpu::device(TEST) else { return };
    for family in families().iter().filter(|family| MODELS.contains(&family.name.as_str())) {
        let name = &family.name;
        let text = tokens(12, 3, family.model.n_vocab());
        let file = |doublings: fn(usize) -> usize| in_nvfp4(&family.model, is_matrix, doublings, as_it_is);
        let here = |file| all_logits(&mut context(&loaded(file), f32_cache), &text);
        let there = |file| all_logits(&mut gpu::on(&device, &loaded(file), f32_cache), &text);
        let got = there(file(|_| 0));
        assert!(
            there(file(|expert| 1 + expert % 3)) == got,
            "{name}: twice as large with half of the factors"
        );
        let want = here(as_floats(&file(|_| 0)));
        let errors =
            std::iter::zip(floats(&got), floats(&want)).map(|(got, want)| relative_error(&got, &want));
        let error = errors.fold(0.0, f64::max);
        println!("{name}: {error:.2e}");
        assert!(error < ROUNDING, "{name}: {error:e}");
    }
}
