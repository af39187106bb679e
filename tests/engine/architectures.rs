//! Every architecture and kind of rotation against llama.cpp, on tiny random models; and what happens to a model
//! with something missing.

use crate::common;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use common::{all_logits, context, load};
use spec_run::{
    Batch, Gguf, Model,
    context::KvType,
    gguf::{Value, Writer},
    quant::GgmlType,
};

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

/// Loads a tiny model with one tensor left out and one key changed.
fn broken(name: &str, without: &str, key: &str, value: Value) -> String {
    let gguf = Gguf::open(&tiny(&format!("{name}.gguf"))).unwrap();
    let mut writer = Writer::new();
    for (k, v) in gguf.metadata().iter() {
        writer.set(k, v.clone());
    }
    if !key.is_empty() {
        writer.set(key, value);
    }
    let kept: Vec<_> = gguf.tensors().iter().filter(|t| t.name != without).collect();
    for tensor in &kept {
        writer.tensor(&tensor.name, tensor.ty, &tensor.shape);
    }
    let mut bytes = Vec::new();
    writer.write(&mut bytes, |i, out| out.write(gguf.bytes(kept[i]))).unwrap();
    let gguf = Gguf::from_bytes("broken.gguf", bytes).unwrap();
    Model::load(gguf.into()).err().expect("it must be refused").to_string()
}

/// A norm that other architectures have: leaving it out in silence would give another model's text.
#[test]
fn a_tensor_that_nobody_asked_for_is_refused() {
    let gguf = Gguf::open(&tiny("llama-linear.gguf")).unwrap();
    let mut writer = Writer::new();
    gguf.metadata().iter().for_each(|(key, value)| {
        writer.set(key, value.clone());
    });
    for tensor in gguf.tensors() {
        writer.tensor(&tensor.name, tensor.ty, &tensor.shape);
    }
    writer.tensor("blk.0.attn_norm_2.weight", GgmlType::F32, &[48]);
    let n = gguf.tensors().len();
    let norm = [0; 4 * 48];
    let mut bytes = Vec::new();
    writer
        .write(&mut bytes, |i, out| out.write(if i < n { gguf.bytes(&gguf.tensors()[i]) } else { &norm }))
        .unwrap();
    let gguf = Gguf::from_bytes("extra.gguf", bytes).unwrap();
    let message = Model::load(gguf.into()).err().expect("it must be refused").to_string();
    assert!(message.contains("`blk.0.attn_norm_2.weight`") && message.contains("llama"), "{message}");
}

#[test]
fn what_is_missing_or_misshapen_is_named() {
    let without = |model, tensor| broken(model, tensor, "", Value::Bool(true));
    let with = |model, key, value| broken(model, "", key, value);
    for (message, words) in [
        (without("qwen2", "blk.1.attn_k.bias"), ["blk.1.attn_k.bias", "qwen2"]),
        (without("qwen3", "blk.0.attn_q_norm.weight"), ["blk.0.attn_q_norm.weight", "qwen3"]),
        (without("llama-linear", "output_norm.weight"), ["output_norm.weight", "missing"]),
        (with("llama-linear", "llama.attention.head_count_kv", Value::U32(3)), ["head_count_kv", "3"]),
        (with("llama-linear", "llama.attention.head_count", Value::U32(0)), ["head_count", "0"]),
        (
            with("llama-linear", "llama.feed_forward_length", Value::U32(64)),
            ["blk.0.ffn_gate.weight", "[32, 64]"],
        ),
        (with("llama-linear", "llama.block_count", Value::U32(3)), ["blk.2.attn_norm.weight", "missing"]),
        (with("llama-linear", "llama.block_count", Value::U32(1 << 30)), ["block_count", "layers"]),
        (with("llama-linear", "llama.rope.scaling.type", Value::String("spiral".into())), ["spiral", "yarn"]),
        (
            with("llama-linear", "llama.rope.scaling.factor", Value::F32(f32::NAN)),
            ["rope.scaling.factor", "NaN"],
        ),
        (
            with("llama-linear", "llama.rope.scaling.attn_factor", Value::F32(f32::INFINITY)),
            ["rope.scaling.attn_factor", "inf"],
        ),
        (
            with("llama-linear", "llama.attention.layer_norm_rms_epsilon", Value::F32(-1e-5)),
            ["layer_norm_rms_epsilon", "positive"],
        ),
        (
            with("llama-linear", "llama.attention.layer_norm_rms_epsilon", Value::F32(f32::NAN)),
            ["layer_norm_rms_epsilon", "NaN"],
        ),
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
    let gguf = Gguf::open(&tiny("llama-3-factors.gguf")).unwrap();
    let mut writer = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        writer.set(key, value.clone());
    }
    writer.set("llama.rope.scaling.original_context_length", Value::U32(100));
    let (factors, others): (Vec<_>, Vec<_>) =
        gguf.tensors().iter().partition(|tensor| tensor.name == "rope_freqs.weight");
    let [factors] = factors[..] else { panic!("one tensor of factors") };
    let renamed = named.iter().map(|&(name, times)| (name, factors, times));
    let all: Vec<_> =
        others.into_iter().map(|tensor| (tensor.name.as_str(), tensor, 1.0)).chain(renamed).collect();
    for (name, tensor, _) in &all {
        writer.tensor(name, tensor.ty, &tensor.shape);
    }
    let mut bytes = Vec::new();
    writer
        .write(&mut bytes, |i, out| {
            let (name, tensor, times) = all[i];
            if !name.starts_with("rope") {
                return out.write(gguf.bytes(tensor));
            }
            let numbers =
                gguf.bytes(tensor).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            out.write(&numbers.flat_map(|x| (x * times).to_le_bytes()).collect::<Vec<_>>())
        })
        .unwrap();
    Arc::new(Model::load(Arc::new(Gguf::from_bytes("factors", bytes).unwrap())).unwrap())
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
