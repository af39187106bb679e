//! A widened model computes what the model does, at another size.

use crate::common;
use std::{ops::ControlFlow, sync::Arc};

use common::{all_logits, context, embedded_model, tokens};
use spec_run::{
    Gguf, Model, embedded,
    eval::perplexity::{PerplexitySettings, Tally, perplexity},
    quant::{GgmlType, dequantize},
};
use spec_run_synth::{Arch, Recipe, Shape, Skippable, Uniform, Widened};

fn widened(model: &Model, factor: u64) -> Arc<Model> {
    let plan = Widened::plan(model, factor).unwrap();
    let mut file = Vec::new();
    plan.write(&mut file, |_| ControlFlow::Continue(())).unwrap();
    Arc::new(Model::load(Arc::new(Gguf::from_bytes("widened", file).unwrap())).unwrap())
}

/// Random weights: what would be invisible in a trained model shows here.
fn random(arch: Arch, mix: &str, tied: bool) -> Arc<Model> {
    let base = Shape::preset("llama-1b").unwrap();
    let shape = Shape {
        arch,
        layers: 3,
        dim: 256,
        ffn: 512,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        vocab: 2100,
        tied,
        ..base
    };
    let recipe = Recipe {
        name: format!("{arch:?} {mix}"),
        shape,
        mix: mix.parse().unwrap(),
        seed: 7,
        skippable: Skippable::default(),
    };
    let mut file = Vec::new();
    let synth = recipe.plan(&embedded::open().unwrap()).unwrap();
    synth.write(&mut file, 2, |_| ControlFlow::Continue(())).unwrap();
    Arc::new(Model::load(Arc::new(Gguf::from_bytes(&recipe.name, file).unwrap())).unwrap())
}

#[test]
fn four_times_the_width_is_the_same_to_the_bit() {
    for (arch, mix, tied) in [
        (Arch::Llama, "q8_0", false),
        (Arch::Llama, "q4_0", true),
        (Arch::Llama, "q4_k_m", false),
        (Arch::Qwen2, "q8_0", true),
        (Arch::Qwen2, "f16", false),
    ] {
        let model = random(arch, mix, tied);
        let wide = widened(&model, 4);
        let [narrow_dims, dims] = [&model, &wide].map(|model| Uniform::of(&model.plan).unwrap());
        assert_eq!((dims.dim, dims.ffn, dims.n_head, dims.n_kv_head), (1024, 2048, 16, 8));
        assert_eq!(
            (dims.head_dim, dims.n_layer, dims.n_vocab),
            (64, narrow_dims.n_layer, narrow_dims.n_vocab)
        );
        let text = tokens(40, 1, dims.n_vocab);
        let logits = |model: &Arc<Model>| all_logits(&mut context(model, |_| {}), &text);
        assert!(logits(&model) == logits(&wide), "{arch:?} {mix}");
    }
}

#[test]
fn twice_the_width_has_the_same_perplexity_but_for_rounding() {
    let model = embedded_model();
    let wide = widened(&model, 2);
    assert!(wide.name.contains("widened 2 times") && wide.fingerprint() != model.fingerprint());
    let text = tokens(128, 3, model.n_vocab());
    let settings = PerplexitySettings { n_ctx: 64, bos: Some(1), draft: None, max_chunks: None };
    let ppl = |model: &Arc<Model>| {
        let mut context = context(model, |c| c.n_ctx = 64);
        perplexity(&mut context, &text, &settings, Tally::default(), |_| Ok(ControlFlow::Continue(())))
            .unwrap()
            .ppl()
    };
    let (narrow, wide) = (ppl(&model), ppl(&wide));
    assert!((wide / narrow - 1.0).abs() < 0.005, "{narrow} against {wide}");
    assert!(wide != narrow, "√2 is rounded, so equality would mean that nothing was widened");
}

#[test]
fn zero_bytes_are_zeros_in_every_format() {
    for &ty in GgmlType::ALL.iter().filter(|ty| ty.readable()) {
        let mut out = vec![1.0f32; ty.block_len()];
        dequantize(ty, &vec![0; ty.block_bytes()], &mut out);
        assert!(out.iter().all(|&x| x == 0.0), "{ty}");
    }
}

#[test]
fn what_cannot_be_widened_is_refused() {
    let model = embedded_model();
    for factor in [0, 1, 65] {
        let error = Widened::plan(&model, factor).err().unwrap().to_string();
        assert!(error.contains("`factor`") && error.contains("2 to 64"), "{error}");
    }
    // Norms on the heads would need an epsilon of their own.
    let error = Widened::plan(&random(Arch::Qwen3, "q8_0", true), 2).err().unwrap().to_string();
    assert!(error.contains("qwen3"), "{error}");
}
