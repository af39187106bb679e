//! What `run_layers` means: a skipped sublayer is as if the file did not have it, and a cell that was written
//! under a mask is not attended to where it has no key.

use crate::common;
use std::sync::Arc;

use common::{all_logits, bits, context, embedded_model, masked_logits, parts::Parts, tokens};
use spec_run::{Batch, Error, Model, RunLayers, mask::LayerBits};

/// The embedded model written anew without one layer, the later ones renumbered.
fn without_layer(model: &Model, gone: usize) -> Arc<Model> {
    let n_layer = model.n_layer();
    let mut parts = Parts::of(&model.gguf).with("llama.block_count", n_layer as u32 - 1);
    parts.tensors.retain(|tensor| !tensor.name.starts_with(&format!("blk.{gone}.")));
    for tensor in &mut parts.tensors {
        for layer in gone + 1..n_layer {
            if let Some(rest) = tensor.name.strip_prefix(&format!("blk.{layer}.")) {
                tensor.name = format!("blk.{}.{rest}", layer - 1);
                break;
            }
        }
    }
    parts.model("without a layer")
}

#[test]
fn skipping_a_layer_is_a_file_without_it() {
    let model = embedded_model();
    let text = tokens(24, 1, model.n_vocab());
    for gone in [0, 7, 15] {
        let mask = RunLayers::all(16).skip_attn(gone).skip_mlp(gone);
        let masked = masked_logits(&mut context(&model, |_| {}), &text, &mask);
        let shorter = without_layer(&model, gone);
        assert_eq!(shorter.n_layer(), 15);
        assert!(masked == all_logits(&mut context(&shorter, |_| {}), &text), "layer {gone}");
        assert!(masked != all_logits(&mut context(&model, |_| {}), &text), "layer {gone} does nothing");
    }
}

#[test]
fn explicit_steps_reorder_and_repeat_layers() {
    let model = embedded_model();
    let text = tokens(12, 2, model.n_vocab());
    let in_order: Vec<usize> = (0..16).collect();
    let mut swapped = in_order.clone();
    swapped.swap(5, 6);
    let mut repeated = in_order.clone();
    repeated.insert(9, 8);
    let mut context = context(&model, |c| c.extra_slots = 1);
    let plain = all_logits(&mut context, &text);
    let steps =
        |layers: &[usize]| RunLayers::from_steps(16, layers.iter().map(|&l| (l, LayerBits::FULL))).unwrap();
    assert!(masked_logits(&mut context, &text, &steps(&in_order)) == plain);
    let swapped = masked_logits(&mut context, &text, &steps(&swapped));
    assert!(swapped != plain);
    let repeated = steps(&repeated);
    let at_once = masked_logits(&mut context, &text, &repeated);
    assert!(at_once != plain && at_once != swapped);
    // Each repetition has its own keys and values: step by step gives the same as all at once.
    context.remove(0);
    for (pos, &token) in text.iter().enumerate() {
        context.decode(&Batch::prompt(&[token], pos as u32, 0).with_layers(repeated.clone())).unwrap();
        assert_eq!(bits(context.logits(0)), at_once[pos], "position {pos}");
    }
}

#[test]
fn a_repeat_without_room_for_its_keys_is_refused() {
    let model = embedded_model();
    let mut context = context(&model, |_| {});
    let twice = RunLayers::from_steps(16, [0, 0].map(|l| (l, LayerBits::FULL))).unwrap();
    let error = context.decode(&Batch::prompt(&[1], 0, 0).with_layers(twice)).unwrap_err();
    assert!(matches!(error, Error::Mask(_)), "{error}");
    assert!(context.kv().is_empty(0));
}

/// The draft of a speculative loop: a fork that reads the full model's cells and adds masked ones.
#[test]
fn masked_cells_never_leak_into_a_full_pass() {
    let model = embedded_model();
    let text = tokens(30, 3, model.n_vocab());
    let mut context = context(&model, |_| {});
    context.decode(&Batch::prompt(&text[..20], 0, 0)).unwrap();
    context.fork(0, 1);
    let mask = RunLayers::all(16).skip_attn(3).skip_attn(4).skip_mlp(9);
    for (i, &token) in text[20..].iter().enumerate() {
        context.decode(&Batch::prompt(&[token], 20 + i as u32, 1).with_layers(mask.clone())).unwrap();
    }
    context.decode(&Batch::prompt(&text[20..], 20, 0)).unwrap();
    let verified = bits(context.logits(0));
    context.remove(1);
    context.remove(0);
    context.decode(&Batch::prompt(&text, 0, 0)).unwrap();
    assert_eq!(verified, bits(context.logits(0)));
}

#[test]
fn a_cell_without_a_key_in_a_layer_is_not_attended_there() {
    let model = embedded_model();
    let n_vocab = model.n_vocab();
    // One masked token in the middle, on cells that another sequence filled before: what lay in them must
    // not show.
    let run = |dirt: u64| {
        let mut context = context(&model, |_| {});
        context.decode(&Batch::prompt(&tokens(40, dirt, n_vocab), 0, 7)).unwrap();
        context.remove(7);
        let text = tokens(12, 4, n_vocab);
        context.decode(&Batch::prompt(&text[..5], 0, 0)).unwrap();
        let mask = RunLayers::all(16).skip_attn(2).skip_attn(15);
        context.decode(&Batch::prompt(&text[5..6], 5, 0).with_layers(mask)).unwrap();
        context.decode(&Batch::prompt(&text[6..], 6, 0)).unwrap();
        bits(context.logits(0))
    };
    assert_eq!(run(10), run(11));
}

#[test]
fn a_mask_for_another_depth_is_refused() {
    let model = embedded_model();
    let mut context = context(&model, |_| {});
    let error = context.decode(&Batch::prompt(&[1], 0, 0).with_layers(RunLayers::all(12))).unwrap_err();
    assert!(error.to_string().contains("12") && error.to_string().contains("16"), "{error}");
}
