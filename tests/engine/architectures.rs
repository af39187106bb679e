//! Every architecture and kind of rotation against llama.cpp, on tiny random models; and what happens to a model
//! with something missing.

use crate::common;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use common::{
    all_logits, context, load,
    parts::{Part, Parts},
};
use spec_run::{Batch, Gguf, Model, context::KvType, gguf::Value, quant::GgmlType};

fn tiny(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny").join(name)
}

/// Logits by position, by model.
fn golden() -> BTreeMap<String, BTreeMap<usize, Vec<f32>>> {
    serde_json::from_str(&std::fs::read_to_string(tiny("logits.json")).unwrap()).unwrap()
}

#[test]
fn logits_are_llama_cpps() {
    for (name, rows) in golden() {
        let model = load(&tiny(&format!("{name}.gguf")));
        let mut context = context(&model, |c| (c.key_type, c.value_type) = (KvType::F32, KvType::F32));
        let mut batch = Batch::new();
        for position in 0..200u32 {
            // As in make_tiny.py.
            let token = (7 * position + 3) % 64;
            batch.push(token, position, 0, rows.contains_key(&(position as usize)));
        }
        context.decode(&batch).unwrap();
        for (i, (position, row)) in rows.iter().enumerate() {
            for (token, (ours, theirs)) in context.logits(i).iter().zip(row).enumerate() {
                // Sums of up to 48 terms of order one, over two layers, and six digits in the file.
                let off = (ours - theirs).abs();
                assert!(
                    off < 1e-4,
                    "{name}, position {position}, token {token}: {ours}, llama.cpp has {theirs}"
                );
            }
        }
    }
}

fn parts(name: &str) -> Parts {
    Parts::of(&Gguf::open(&tiny(&format!("{name}.gguf"))).unwrap())
}

/// A norm that other architectures have: leaving it out in silence would give another model's text.
#[test]
fn a_tensor_that_nobody_asked_for_is_refused() {
    let mut parts = parts("llama-linear");
    parts.tensors.push(Part::new("blk.0.attn_norm_2.weight", GgmlType::F32, &[48], &[0.0; 48]));
    let message = parts.refused("extra.gguf");
    assert!(message.contains("`blk.0.attn_norm_2.weight`") && message.contains("llama"), "{message}");
}

#[test]
fn what_is_missing_or_misshapen_is_named() {
    let without = |model, tensor| parts(model).without(tensor).refused("broken.gguf");
    let with = |model, key: &str, value: Value| parts(model).with(key, value).refused("broken.gguf");
    let llama = |key: &str, value: Value| with("llama-linear", &format!("llama.{key}"), value);
    for (message, words) in [
        (without("qwen2", "blk.1.attn_k.bias"), ["blk.1.attn_k.bias", "qwen2"]),
        (without("qwen3", "blk.0.attn_q_norm.weight"), ["blk.0.attn_q_norm.weight", "qwen3"]),
        (without("llama-linear", "output_norm.weight"), ["output_norm.weight", "missing"]),
        (llama("attention.head_count_kv", Value::U32(3)), ["head_count_kv", "3"]),
        (llama("attention.head_count", Value::U32(0)), ["head_count", "0"]),
        (llama("feed_forward_length", Value::U32(64)), ["blk.0.ffn_gate.weight", "[32, 64]"]),
        (llama("block_count", Value::U32(3)), ["blk.2.attn_norm.weight", "missing"]),
        (llama("block_count", Value::U32(1 << 30)), ["block_count", "layers"]),
        (llama("rope.scaling.type", "spiral".into()), ["spiral", "yarn"]),
        (llama("rope.scaling.factor", f32::NAN.into()), ["rope.scaling.factor", "NaN"]),
        (llama("rope.scaling.attn_factor", f32::INFINITY.into()), ["rope.scaling.attn_factor", "inf"]),
        (
            llama("attention.layer_norm_rms_epsilon", Value::F32(-1e-5)),
            ["layer_norm_rms_epsilon", "positive"],
        ),
        (llama("attention.layer_norm_rms_epsilon", f32::NAN.into()), ["layer_norm_rms_epsilon", "NaN"]),
        (with("qwen3", "qwen3.attention.key_length", Value::U32(1 << 31)), ["key_length", "2147483648"]),
    ] {
        for word in words {
            assert!(
                message.contains(word) && message.starts_with("broken.gguf: "),
                "`{word}` is not in: {message}"
            );
        }
    }
}

/// The model with factors of its rotation under other names: each of them times a number.
fn with_factors(named: &[(&str, f32)]) -> Arc<Model> {
    const FACTORS: &str = "rope_freqs.weight";
    let mut parts =
        parts("llama-3-factors").with("llama.rope.scaling.original_context_length", Value::U32(100));
    let factors = parts.tensor(FACTORS);
    let (ty, shape, numbers) = (factors.ty, factors.shape.clone(), factors.numbers());
    let mut parts = parts.without(FACTORS);
    for &(name, times) in named {
        let numbers: Vec<f32> = numbers.iter().map(|x| x * times).collect();
        parts.tensors.push(Part::new(name, ty, &shape, &numbers));
    }
    parts.model("factors")
}

#[test]
fn factors_for_long_contexts_hold_beyond_the_original_length() {
    let logits = |model: &Arc<Model>, n_ctx: usize| {
        all_logits(&mut context(model, |c| c.n_ctx = n_ctx as u32), &common::tokens(90, 5, model.n_vocab()))
    };
    let [short, long] = [1.0, 3.0].map(|times| with_factors(&[("rope_freqs.weight", times)]));
    let both = with_factors(&[("rope_factors_short.weight", 1.0), ("rope_factors_long.weight", 3.0)]);
    assert!(logits(&both, 100) == logits(&short, 100));
    assert!(logits(&both, 101) == logits(&long, 101));
    assert!(logits(&short, 100) != logits(&long, 100));
    // No factors at all up to there.
    let plain = with_factors(&[]);
    let long_only = with_factors(&[("rope_factors_long.weight", 3.0)]);
    assert!(logits(&long_only, 100) == logits(&plain, 100));
    assert!(logits(&long_only, 101) == logits(&long, 101));
}
