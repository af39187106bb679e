//! Weights in NVFP4, and the factors that stand beside them in files.

use crate::common::{
    all_logits, context,
    families::families,
    fixture,
    in_floats::{f32_cache, floats, relative_error},
    load,
    nvfp4::{as_floats, as_it_is, in_nvfp4, is_matrix, loaded},
    tokens,
};
use spec_run::{
    Gguf, Model, Tokenizer,
    context::Planes,
    eval::perplexity::{PerplexitySettings, Tally, perplexity},
    gguf::TensorInfo,
    quant::GgmlType,
    tokenizer::EncodeOptions,
};
use std::{ops::ControlFlow, sync::Arc};

/// Twice the weights and half of the factor are the same products, to the bit; without a factor they are not.
#[test]
fn factors_count_once_in_every_architecture() {
    for family in families() {
        let name = &family.name;
        let text = tokens(20, 3, family.model.n_vocab());
        let logits = |file: Gguf, planes| {
            let mut context = context(&loaded(file), |config| {
                f32_cache(config);
                config.planes = planes;
            });
            all_logits(&mut context, &text)
        };
        let plain = || in_nvfp4(&family.model, is_matrix, |_| 0, as_it_is);
        let n = plain().tensors().iter().filter(|tensor| tensor.ty == GgmlType::NVFP4).count();
        assert!(n > 5, "{name}: {n} matrices");
        let larger = in_nvfp4(&family.model, is_matrix, |expert| 1 + expert % 3, as_it_is);
        let packed = logits(plain(), Some(Planes::Cheap));
        assert!(logits(plain(), None) == packed, "{name}: packed and in the file");
        assert!(logits(larger, None) == packed, "{name}: twice as large with half of the factors");
        let without = in_nvfp4(&family.model, is_matrix, |_| 0, |end, x| (end != "scale").then_some(x));
        assert!(logits(without, None) != packed, "{name}: without factors");
    }
}

/// What llama.cpp printed behind the 16th window of the file that tests/golden/nvfp4.py writes, which is the model made here.
#[test]
fn perplexity_with_factors_is_llama_cpps() {
    const TEST: &str = "nvfp4::perplexity_with_factors_is_llama_cpps";
    const THEIRS: f64 = 14.6522;
    let Some(source) = fixture(TEST, "models/stories13m-f16.gguf") else { return };
    let Some(text) = fixture(TEST, "text/stories-val.txt") else { return };
    let of_layers = |tensor: &TensorInfo| is_matrix(tensor) && tensor.name.starts_with("blk.");
    let model = loaded(in_nvfp4(&load(&source), of_layers, |_| 0, as_it_is));
    let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
    let options = EncodeOptions { add_special: true, parse_special: false };
    let tokens = tokenizer.encode(&std::fs::read_to_string(text).unwrap(), options);
    let settings = PerplexitySettings { n_ctx: 256, bos: tokenizer.bos(), draft: None, max_chunks: Some(16) };
    let mut context = context(&model, |config| {
        f32_cache(config);
        config.n_ctx = 256;
    });
    let going_on = |_: &_| Ok(ControlFlow::Continue(()));
    let ours = perplexity(&mut context, &tokens, &settings, Tally::default(), going_on).unwrap().ppl();
    println!("NVFP4: {ours:.4}, llama.cpp {THEIRS}");
    assert!((ours / THEIRS - 1.0).abs() < 1e-3, "{ours}, llama.cpp {THEIRS}");
}

fn refused(file: Gguf) -> String {
    Model::load(Arc::new(file)).err().expect("such a factor is refused").to_string()
}

#[test]
fn wrong_factors_are_refused_in_one_line() {
    let Some(source) = fixture("wrong_factors_are_refused_in_one_line", "models/stories13m-f16.gguf") else {
        return;
    };
    let model = load(&source);
    let with = |factors: &[f32]| {
        let of = |end: &str, x: Vec<f32>| Some(if end == "scale" { factors.to_vec() } else { x });
        refused(in_nvfp4(&model, |tensor| tensor.name == "blk.3.ffn_up.weight", |_| 0, of))
    };
    let message = with(&[f32::INFINITY]);
    assert!(message.contains("blk.3.ffn_up.scale") && message.contains("finite"), "{message}");
    let message = with(&[1.0, 2.0]);
    assert!(message.contains("blk.3.ffn_up.scale") && message.contains("[1]"), "{message}");
}

/// Rows are rounded to eight bits for one of them and not for the other.
#[test]
fn weights_are_the_numbers_that_they_stand_for() {
    // Rounding may choose other experts, and in Gemma 4, which does not scale its scores, whom a random head sees.
    let is_smooth = |model: &Model| {
        model.arch != "gemma4" && !model.gguf.tensors().iter().any(|t| t.name.contains("ffn_gate_inp"))
    };
    for family in families().iter().filter(|family| is_smooth(&family.model)) {
        let text = tokens(12, 5, family.model.n_vocab());
        let file = || in_nvfp4(&family.model, is_matrix, |expert| expert % 3, as_it_is);
        let logits = |file| floats(&all_logits(&mut context(&loaded(file), f32_cache), &text));
        let (got, want) = (logits(file()), logits(as_floats(&file())));
        let errors = std::iter::zip(&got, &want).map(|(got, want)| relative_error(got, want));
        let error = errors.fold(0.0, f64::max);
        println!("{}: {error:.4}", family.name);
        assert!(error < 0.1, "{}: {error}", family.name);
    }
}
