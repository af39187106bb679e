//! A pass in two parts: rows that were kept on the way to a layer go on from there, and the bits are those of one pass.

use crate::common;
use std::sync::Arc;

use common::{all_logits, bits, context, embedded_model, fixture, load, tokens};
use spec_run::{Batch, Context, Model, RunLayers, context::KvType};

const PROMPT: usize = 20;

/// Sequence 0 holds the first tokens of `text`; the others go up to `layer` on a fork of it, one after another under
/// `mask`, with garbage where the mask runs other layers, and come back with their rows.
fn first_part(context: &mut Context, text: &[u32], mask: &RunLayers, layer: usize, logits: bool) -> Vec<f32> {
    context.remove(0);
    context.decode(&Batch::prompt(&text[..PROMPT], 0, 0)).unwrap();
    context.fork(0, 1);
    let mut hidden = Vec::new();
    for (pos, &token) in text.iter().enumerate().skip(PROMPT) {
        let mut batch = Batch::new().with_layers(mask.clone());
        batch.push(token, pos as u32, 1, logits);
        batch.keep_hidden = Some(layer);
        context.decode(&batch).unwrap();
        hidden.extend_from_slice(context.hidden(0));
    }
    context.fork(1, 0);
    context.remove(1);
    hidden
}

fn second_part(text: &[u32], layer: usize, hidden: Vec<f32>, logits: impl Fn(usize) -> bool) -> Batch {
    let mut batch = Batch::new();
    for (pos, &token) in text.iter().enumerate().skip(PROMPT) {
        batch.push(token, pos as u32, 0, logits(pos));
    }
    batch.resuming(layer, hidden)
}

/// The logits of a token after all of these.
fn one_more(context: &mut Context) -> Vec<u32> {
    context.decode(&Batch::prompt(&[3], context.kv().next_pos(0), 0)).unwrap();
    bits(context.logits(0))
}

#[test]
fn two_parts_are_one_pass() {
    let test = "two_parts_are_one_pass";
    let mut models = vec![embedded_model()];
    for name in ["f16", "q4_0", "q4_k", "q6_k", "iq4_xs"] {
        models.extend(fixture(test, &format!("models/stories13m-{name}.gguf")).map(|path| load(&path)));
    }
    for (seed, model) in (0..).zip(models) {
        let n_layer = model.n_layer();
        let text = tokens(PROMPT + 7, seed, model.n_vocab());
        // Fewer rows at once than there are; another number of threads.
        for (n_ubatch, threads) in [(512, 1), (3, 2)] {
            let mut context = context(&model, |c| {
                (c.n_ubatch, c.threads, c.key_type) = (n_ubatch, threads, KvType::Q8_0);
            });
            let whole = all_logits(&mut context, &text);
            let after = one_more(&mut context);
            for layer in [1, 2, n_layer / 2, n_layer - 1, n_layer] {
                let exit = RunLayers::exit(n_layer, layer);
                let last = n_layer.saturating_sub(2).max(layer);
                let holes = (layer..last).fold(RunLayers::all(n_layer), |mask, l| mask.skip_attn(l));
                let coarse =
                    (layer..n_layer).fold(RunLayers::all(n_layer), |m, l| m.coarse_attn(l).coarse_mlp(l));
                for (mask, logits) in [(exit, false), (holes, true), (coarse, true)] {
                    let hidden = first_part(&mut context, &text, &mask, layer, logits);
                    let wanted = |pos| pos % 3 != 1;
                    let free = context.kv().free_cells();
                    context.decode(&second_part(&text, layer, hidden, wanted)).unwrap();
                    assert_eq!(context.kv().free_cells(), free, "no new cells");
                    for (i, pos) in (PROMPT..text.len()).filter(|&pos| wanted(pos)).enumerate() {
                        let same = bits(context.logits(i)) == whole[pos];
                        assert!(same, "{}, {mask}, from layer {layer}, position {pos}", model.name);
                    }
                    assert!(one_more(&mut context) == after, "{}, {mask}, the cache", model.name);
                }
            }
        }
    }
}

/// Three parts, of two sequences at once, the rows kept anew on the way.
#[test]
fn rows_may_rest_several_times() {
    let model = embedded_model();
    let mut context = context(&model, |_| {});
    let texts = [tokens(9, 5, 2048), tokens(9, 6, 2048)];
    let whole = texts.each_ref().map(|text| all_logits(&mut context, text));
    context.remove(0);
    let mut batch = Batch::new();
    for pos in 0..9 {
        (0..).zip(&texts).for_each(|(seq, text)| batch.push(text[pos], pos as u32, seq, false));
    }
    let all_hidden = |context: &Context| (0..18).flat_map(|i| context.hidden(i).to_vec()).collect::<Vec<_>>();
    let first = Batch { keep_hidden: Some(3), ..batch.clone() }.with_layers(RunLayers::exit(16, 3));
    context.decode(&first).unwrap();
    let second = batch.clone().resuming(3, all_hidden(&context));
    let second = Batch { keep_hidden: Some(11), ..second }.with_layers(RunLayers::exit(16, 11));
    context.decode(&second).unwrap();
    batch.rows.iter_mut().for_each(|row| row.logits = true);
    let hidden = all_hidden(&context);
    context.decode(&batch.resuming(11, hidden)).unwrap();
    for (row, seq) in (0..18).map(|row| (row, row % 2)) {
        assert!(bits(context.logits(row)) == whole[seq][row / 2], "sequence {seq}, position {}", row / 2);
    }
}

/// Also of rows whose logits nobody wants, which the last layer may leave out.
#[test]
fn every_row_is_kept_whoever_asks_for_logits() {
    let model = embedded_model();
    let mut context = context(&model, |_| {});
    let text = tokens(6, 8, 2048);
    for layer in [5, 15, 16] {
        let mut kept = |wanted: fn(usize) -> bool| {
            context.remove(0);
            let mut batch = Batch { keep_hidden: Some(layer), ..Batch::new() };
            (0..6).for_each(|pos| batch.push(text[pos], pos as u32, 0, wanted(pos)));
            context.decode(&batch).unwrap();
            (0..6).map(|i| bits(context.hidden(i))).collect::<Vec<_>>()
        };
        let all = kept(|_| true);
        assert!(kept(|pos| pos == 3) == all && kept(|_| false) == all, "layer {layer}");
    }
}

#[test]
fn what_cannot_be_resumed_is_refused_and_nothing_changes() {
    let model: Arc<Model> = embedded_model();
    let mut context = context(&model, |_| {});
    let text = tokens(PROMPT + 2, 1, 2048);
    let exit = RunLayers::exit(16, 4);
    let hidden = first_part(&mut context, &text, &exit, 4, false);
    let good = second_part(&text, 4, hidden.clone(), |_| true);
    let mut refused = |batch: Batch, because: &str| {
        let message = context.decode(&batch).unwrap_err().to_string();
        assert!(message.contains(because), "{message}");
        assert!(!message.contains('\n'));
    };
    refused(second_part(&text, 5, hidden.clone(), |_| true), "has not been through the first 5 layers");
    refused(second_part(&text, 0, hidden.clone(), |_| true), "layer 0");
    refused(second_part(&text, 17, hidden.clone(), |_| true), "layer 17");
    refused(second_part(&text, 4, hidden[1..].to_vec(), |_| true), "one row for each token");
    refused(good.clone().with_layers(RunLayers::exit(16, 3)), "the first 3");
    refused(Batch { keep_hidden: Some(4), ..good.clone() }, "layer 4");
    let mut twice = good.clone();
    twice.rows[1] = twice.rows[0];
    refused(twice, "twice");
    let mut beyond = good.clone();
    beyond.rows[1].pos += 1;
    refused(beyond, "has not been through");
    let coarse = Batch { keep_hidden: Some(1), ..Batch::prompt(&[1], 22, 0) };
    refused(coarse.with_layers(RunLayers::all(16).coarse_mlp(0)), "the first 0");
    let whole = {
        let mut other = common::context(&model, |_| {});
        all_logits(&mut other, &text)
    };
    context.decode(&good).unwrap();
    assert!((0..2).all(|i| bits(context.logits(i)) == whole[PROMPT + i]));
}
