//! The promise of section "Same bits" in ARCHITECTURE.md: a row's logits do not depend on the batch size, the
//! neighbours, the threads, the instruction set, or how the prefix got into the cache.

use crate::common;
use std::{sync::Arc, time::Duration};

use common::{
    all_logits, bits, coarse, context, embedded_model, fixture, load, same_in_batches, tokens, with_logits,
};
use spec_run::{
    Batch, Context, ContextConfig, Model, RunLayers,
    context::{Isa, KvType, Planes},
    quant::GgmlType,
};

/// The embedded model, and where they are, one of each other kind of weights.
fn models(test: &str) -> Vec<Arc<Model>> {
    let mut models = vec![embedded_model()];
    for name in ["stories13m-f16", "stories13m-q4_0", "stories13m-q4_k", "stories13m-q6_k", "stories260K"] {
        models.extend(fixture(test, &format!("models/{name}.gguf")).map(|path| load(&path)));
    }
    models
}

fn n_vocab(model: &Model) -> usize {
    model.n_vocab()
}

/// Feeds `tokens` in pieces and returns the logits after the last.
fn fed_in_pieces(context: &mut Context, tokens: &[u32], piece: usize) -> Vec<u32> {
    context.remove(0);
    for (i, part) in tokens.chunks(piece).enumerate() {
        context.decode(&Batch::prompt(part, (i * piece) as u32, 0)).unwrap();
    }
    bits(context.logits(0))
}

#[test]
fn a_row_is_the_same_in_a_batch_of_any_size() {
    for model in models("a_row_is_the_same_in_a_batch_of_any_size") {
        let text = tokens(64, 1, n_vocab(&model));
        let mut context = context(&model, |_| {});
        let together = all_logits(&mut context, &text);
        for size in [1, 2, 3, 5, 8, 17] {
            same_in_batches(&mut context, &text, size, &together, &model.name);
        }
    }
}

#[test]
fn a_row_does_not_see_its_neighbours() {
    let model = embedded_model();
    let mut context = context(&model, |_| {});
    let (a, b) = (tokens(20, 1, n_vocab(&model)), tokens(33, 2, n_vocab(&model)));
    let alone = [fed_in_pieces(&mut context, &a, 64), fed_in_pieces(&mut context, &b, 64)];
    context.remove(0);
    // Both sequences dealt like cards into one batch, then the cells of a third in between.
    context.decode(&Batch::prompt(&tokens(7, 3, n_vocab(&model)), 0, 9)).unwrap();
    let mut batch = Batch::new();
    for i in 0..a.len().max(b.len()) {
        for (seq, text) in [(4, &a), (5, &b)] {
            if i < text.len() {
                batch.push(text[i], i as u32, seq, i + 1 == text.len());
            }
        }
    }
    context.decode(&batch).unwrap();
    assert_eq!(bits(context.logits(0)), alone[0]);
    assert_eq!(bits(context.logits(1)), alone[1]);
}

#[test]
fn threads_do_not_change_a_bit() {
    for model in models("threads_do_not_change_a_bit") {
        let text = tokens(40, 4, n_vocab(&model));
        let run = |threads| all_logits(&mut context(&model, |c| c.threads = threads), &text);
        let one = run(1);
        for threads in [2, 3] {
            assert!(run(threads) == one, "{}: {threads} threads", model.name);
        }
    }
}

#[test]
fn instruction_sets_do_not_change_a_bit() {
    for model in models("instruction_sets_do_not_change_a_bit") {
        let text = tokens(19, 5, n_vocab(&model));
        let run = |isa| all_logits(&mut context(&model, |c| c.isa = Some(isa)), &text);
        let scalar = run(Isa::Scalar);
        for isa in Isa::available() {
            assert!(run(isa) == scalar, "{}: {isa}", model.name);
        }
    }
}

#[test]
fn packing_weights_does_not_change_a_bit() {
    for model in models("packing_weights_does_not_change_a_bit") {
        for n in [1, 7, 19] {
            let text = tokens(n, 15, n_vocab(&model));
            for isa in Isa::available() {
                let run = |planes| {
                    let set = |c: &mut ContextConfig| (c.isa, c.planes) = (Some(isa), planes);
                    all_logits(&mut context(&model, set), &text)
                };
                let of_file = run(None);
                for planes in [Planes::Never, Planes::Cheap, Planes::All] {
                    assert!(run(Some(planes)) == of_file, "{}: {isa}, {planes:?}, {n} rows", model.name);
                }
            }
        }
    }
}

/// Some matrices packed and others as they lie, a few more after each pass.
#[test]
fn packing_between_passes_does_not_change_a_bit() {
    for model in models("packing_between_passes_does_not_change_a_bit") {
        let text = tokens(60, 18, n_vocab(&model));
        let at_load = all_logits(&mut context(&model, |_| {}), &text);
        let mut context = context(&model, |c| c.pack_later = true);
        let floats = model.gguf.tensors().iter().all(|t| matches!(t.ty, GgmlType::F32 | GgmlType::F16));
        assert_eq!(context.is_packed(), floats, "{}: floats are not packed", model.name);
        let (mut logits, mut passes) = (Vec::new(), 0);
        for (i, part) in text.chunks(3).enumerate() {
            passes += usize::from(!context.is_packed());
            let batch = with_logits(part, 3 * i as u32);
            context.decode(&batch).unwrap();
            logits.extend((0..part.len()).map(|row| bits(context.logits(row))));
            (0..9).for_each(|_| context.pack_more(Duration::ZERO).unwrap());
        }
        assert!(context.is_packed() && (floats || passes > 5), "{}: {passes} passes", model.name);
        assert!(logits == at_load, "{}", model.name);
    }
}

/// High bits alone are another number than all bits, so what is not packed yet must not be taken whole.
#[test]
fn a_coarse_pass_packs_what_waits() {
    let model = embedded_model();
    let n_layer = model.n_layer();
    let text = tokens(9, 19, n_vocab(&model));
    let coarse = |pack_later: bool| {
        let mut context = context(&model, |c| c.pack_later = pack_later);
        let mut batch = Batch::prompt(&text, 0, 0);
        batch.run_layers = Some(RunLayers::all(n_layer).coarse_mlp(2));
        assert!(context.has_planes());
        context.decode(&batch).unwrap();
        bits(context.logits(0))
    };
    assert!(coarse(true) == coarse(false));
}

#[test]
fn a_coarse_row_is_the_same_in_a_batch_of_any_size() {
    let model = embedded_model();
    let n_layer = model.n_layer();
    let coarse = coarse(n_layer);
    let text = tokens(21, 16, n_vocab(&model));
    let mut context = context(&model, |_| {});
    assert!(
        context.has_planes() && context.mask_cost(&coarse) < 0.7,
        "the embedded model's weights have planes"
    );
    let mut run = |mask: &RunLayers, piece: usize| {
        context.remove(0);
        for (i, part) in text.chunks(piece).enumerate() {
            let mut batch = Batch::prompt(part, (i * piece) as u32, 0);
            batch.run_layers = Some(mask.clone());
            context.decode(&batch).unwrap();
        }
        bits(context.logits(0))
    };
    let single = run(&coarse, 1);
    for piece in [2, 3, 5, 21] {
        assert!(run(&coarse, piece) == single, "{piece} rows");
    }
    assert!(run(&RunLayers::all(n_layer), 21) != single, "high bits are not all bits");
}

#[test]
fn a_prefix_is_the_same_however_it_was_built() {
    for model in models("a_prefix_is_the_same_however_it_was_built") {
        for kv in KvType::ALL {
            if kv.check(model.plan.attentions[0].head_dim).is_err() {
                continue;
            }
            let mut context = context(&model, |c| (c.key_type, c.value_type) = (kv, kv));
            let text = tokens(70, 6, n_vocab(&model));
            let prefill = fed_in_pieces(&mut context, &text, 70);
            assert_eq!(fed_in_pieces(&mut context, &text, 1), prefill, "{} {kv}: single steps", model.name);

            // A fork that went another way and came back, on cells that others used before.
            context.remove(0);
            context.decode(&Batch::prompt(&tokens(30, 7, n_vocab(&model)), 0, 3)).unwrap();
            context.decode(&Batch::prompt(&text[..50], 0, 0)).unwrap();
            context.remove(3);
            context.fork(0, 1);
            context.decode(&Batch::prompt(&tokens(9, 8, n_vocab(&model)), 50, 1)).unwrap();
            context.truncate(1, 41).unwrap();
            context.remove(0);
            context.decode(&Batch::prompt(&text[41..], 41, 1)).unwrap();
            assert_eq!(bits(context.logits(0)), prefill, "{} {kv}: fork and truncate", model.name);
        }
    }
}

/// Beyond one chunk of attention: however the text is cut, and whether chunks are dealt to threads or not.
#[test]
fn long_contexts_keep_their_bits() {
    let model = embedded_model();
    let text = tokens(800, 11, n_vocab(&model));
    use KvType::{F16, IQ4_NL, Q4_0, Q5_1, Q8_0};
    for (keys, values) in [(F16, F16), (Q8_0, Q8_0), (Q4_0, Q4_0), (Q5_1, IQ4_NL)] {
        let mut expected: Option<Vec<Vec<u32>>> = None;
        let schedules = [(1, 12), (2, 3), (5, 1), (2, 1), (3, 1), (3, 2), (5, 8), (5, 12)];
        // What a row costs is known of every type, and who takes which chunk depends on that alone.
        let schedules = if keys == F16 { &schedules[..] } else { &schedules[..3] };
        for &(threads, piece) in schedules {
            let mut context = context(&model, |c| {
                (c.n_ctx, c.threads, c.key_type, c.value_type) = (1600, threads, keys, values);
            });
            // On cells that do not lie in order.
            context.decode(&Batch::prompt(&tokens(40, 12, n_vocab(&model)), 0, 9)).unwrap();
            context.decode(&Batch::prompt(&text[..500], 0, 0)).unwrap();
            context.remove(9);
            context.decode(&Batch::prompt(&text[500..788], 500, 0)).unwrap();
            let mut got = Vec::new();
            for (i, part) in text[788..].chunks(piece).enumerate() {
                let mut batch = Batch::new();
                for (j, &token) in part.iter().enumerate() {
                    batch.push(token, (788 + i * piece + j) as u32, 0, true);
                }
                context.decode(&batch).unwrap();
                got.extend((0..part.len()).map(|j| bits(context.logits(j))));
            }
            assert!(
                *expected.get_or_insert_with(|| got.clone()) == got,
                "{keys} {values}, {threads} threads, {piece} rows"
            );
        }
    }
}

/// The last layer runs for the rows whose logits are wanted; which those are changes none of them.
#[test]
fn a_row_is_the_same_whoever_else_asks() {
    for model in models("a_row_is_the_same_whoever_else_asks") {
        let text = tokens(40, 13, n_vocab(&model));
        let mut context = context(&model, |c| c.threads = 2);
        let together = all_logits(&mut context, &text);
        for wanted in [vec![39], vec![0], vec![3, 4, 17, 38], (1..40).collect()] {
            context.remove(0);
            let mut batch = Batch::new();
            for (i, &token) in text.iter().enumerate() {
                batch.push(token, i as u32, 0, wanted.contains(&i));
            }
            context.decode(&batch).unwrap();
            for (i, &row) in wanted.iter().enumerate() {
                assert!(bits(context.logits(i)) == together[row], "{}: row {row} of {wanted:?}", model.name);
            }
        }
    }
}

#[test]
fn a_small_ubatch_changes_nothing() {
    let model = embedded_model();
    let text = tokens(50, 9, n_vocab(&model));
    let whole = all_logits(&mut context(&model, |_| {}), &text);
    assert!(all_logits(&mut context(&model, |c| c.n_ubatch = 7), &text) == whole);
}

#[test]
fn a_mask_of_ones_is_no_mask() {
    let model = embedded_model();
    let n_layer = model.n_layer();
    let text = tokens(30, 10, n_vocab(&model));
    let mut context = context(&model, |_| {});
    let plain = fed_in_pieces(&mut context, &text, 64);
    context.remove(0);
    context.decode(&Batch::prompt(&text, 0, 0).with_layers(RunLayers::all(n_layer))).unwrap();
    assert_eq!(bits(context.logits(0)), plain);
}
