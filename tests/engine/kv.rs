//! The cache's contract: sharing, giving back, failing without a trace, and context shift.

use crate::common;
use common::{bits, context, embedded_model, tokens};
use spec_run::{Batch, Context, Error, RunLayers, context::KvType};

fn decode(context: &mut Context, text: &[u32], pos: u32, seq: u32) {
    context.decode(&Batch::prompt(text, pos, seq)).unwrap();
}

#[test]
fn a_fork_shares_its_cells_and_gives_back_only_its_own() {
    let model = embedded_model();
    let mut context = context(&model, |c| c.n_ctx = 32);
    decode(&mut context, &tokens(10, 1, 2048), 0, 0);
    context.fork(0, 1);
    assert_eq!(context.kv().free_cells(), 22);
    decode(&mut context, &[5, 6, 7], 10, 1);
    assert_eq!((context.kv().len(0), context.kv().len(1), context.kv().free_cells()), (10, 13, 19));
    context.truncate(1, 8).unwrap();
    assert_eq!(context.kv().free_cells(), 22, "cells 8 and 9 are still held by sequence 0");
    context.remove(0);
    assert_eq!(context.kv().free_cells(), 24);
    context.remove(1);
    assert_eq!(context.kv().free_cells(), 32);
}

#[test]
fn a_full_cache_is_an_error_that_changes_nothing() {
    let model = embedded_model();
    let mut context = context(&model, |c| c.n_ctx = 16);
    decode(&mut context, &tokens(12, 1, 2048), 0, 0);
    let before = bits(context.logits(0));
    let error = context.decode(&Batch::prompt(&[1, 2, 3, 4, 5], 12, 0)).unwrap_err();
    assert!(matches!(error, Error::Batch(_)) && error.to_string().contains("16"), "{error}");
    assert_eq!((context.kv().len(0), context.kv().free_cells()), (12, 4));
    assert_eq!(bits(context.logits(0)), before);
    decode(&mut context, &[1, 2, 3, 4], 12, 0);
}

#[test]
fn wrong_rows_are_refused_and_leave_no_cells_behind() {
    let model = embedded_model();
    let mut context = context(&model, |_| {});
    decode(&mut context, &tokens(6, 1, 2048), 0, 0);
    let mut refused = |batch: Batch, word: &str| {
        let error = context.decode(&batch).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert_eq!((context.kv().len(0), context.kv().len(3)), (6, 0));
    };
    refused(Batch::new(), "empty");
    refused(Batch::prompt(&[2048], 6, 0), "2048");
    refused(Batch::prompt(&[1], 5, 0), "position 5");
    refused(Batch::prompt(&[1], u32::MAX, 0), "position");
    // The first two rows are fine; the third is not.
    let mut batch = Batch::prompt(&[1, 2], 0, 3);
    batch.push(1, 2, 0, true);
    refused(batch, "position 2");
}

/// Keys of the first layer depend on token and position alone; with that layer only, a shifted cache must be worth a
/// fresh one. A key that was turned has been rounded twice and a fresh one once, so between them are three roundings, each
/// as large as what one takes from exact keys: √3 times that apart, if they have nothing to do with each other. Beside that
/// is what float arithmetic takes, for the activations are rounded too.
#[test]
fn a_shift_turns_keys_to_their_new_positions() {
    let model = embedded_model();
    let text = tokens(40, 2, 2048);
    let mask = (1..16).fold(RunLayers::all(16), |mask, l| mask.skip_attn(l).skip_mlp(l));
    let decode = |context: &mut Context, text: &[u32], pos, seq| -> Vec<f32> {
        let mut batch = Batch::prompt(text, pos, seq).with_layers(mask.clone());
        batch.rows.iter_mut().for_each(|row| row.logits = true);
        context.decode(&batch).unwrap();
        (0..text.len()).flat_map(|row| context.logits(row).to_vec()).collect()
    };
    let apart = |a: &[f32], b: &[f32]| {
        let squares = |x: f64, (a, b): (&f32, &f32)| x + f64::from(a - b).powi(2);
        let size: f64 = b.iter().map(|b| f64::from(*b).powi(2)).sum();
        (a.iter().zip(b).fold(0.0, squares) / size).sqrt()
    };
    let mut exact = None;
    for kv in KvType::ALL {
        let mut context = context(&model, |c| (c.key_type, c.value_type) = (kv, KvType::F32));
        decode(&mut context, &[&text[..4], &text[9..19]].concat(), 0, 0);
        let fresh = decode(&mut context, &text[19..], 14, 0);
        context.remove(0);
        decode(&mut context, &text[..19], 0, 0);
        context.fork(0, 1);
        context.shift(0, 4, 5).unwrap();
        assert_eq!((context.kv().len(0), context.kv().next_pos(0)), (14, 14));
        let shifted = decode(&mut context, &text[19..], 14, 0);
        let exact = exact.get_or_insert_with(|| fresh.clone());
        let (off, loss) = (apart(&shifted, &fresh), apart(&fresh, exact));
        println!("{kv}: {off:.1e}, and {loss:.1e} from exact keys");
        assert!(off < 1e-4 + 3f64.sqrt() * loss, "{kv}: {off}, {loss}");
        assert_eq!(loss == 0.0, kv == KvType::F32);

        // The fork still has what it had: positions and bits.
        assert_eq!((context.kv().len(1), context.kv().next_pos(1)), (19, 19));
        let forked = bits(&decode(&mut context, &text[19..], 19, 1));
        context.remove(0);
        decode(&mut context, &text[..19], 0, 0);
        assert_eq!(bits(&decode(&mut context, &text[19..], 19, 0)), forked, "{kv}");
    }
}

#[test]
fn a_shift_that_makes_no_sense_is_refused() {
    let model = embedded_model();
    let mut context = context(&model, |c| c.n_ctx = 16);
    decode(&mut context, &tokens(10, 1, 2048), 0, 0);
    assert!(context.shift(0, 4, 7).is_err());
    assert!(context.shift(0, 4, 0).is_err());
    assert!(context.shift(9, 0, 1).is_err());
    // Everything is shared and there is no room for copies.
    context.fork(0, 1);
    decode(&mut context, &tokens(6, 1, 2048), 0, 2);
    let error = context.shift(0, 0, 1).unwrap_err();
    assert!(error.to_string().contains("full"), "{error}");
    assert_eq!((context.kv().len(0), context.kv().len(1), context.kv().free_cells()), (10, 10, 0));
}
