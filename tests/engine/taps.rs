//! Rows that are taken out between layers: the same as where a pass rests there, and nothing else changes.

use spec_run::{Batch, Context, RunLayers};

use crate::common::{context, embedded_model, with_logits};

const TEXT: [u32; 11] = [1, 403, 407, 261, 378, 596, 1082, 322, 727, 13, 278];

/// Each row's logits and taps as bits.
fn decoded(
    context: &mut Context,
    at_once: usize,
    taps: &[usize],
    asks: impl Fn(usize) -> bool,
) -> Vec<[Vec<u32>; 2]> {
    context.remove_all();
    let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let mut all = Vec::new();
    for (part, tokens) in TEXT.chunks(at_once).enumerate() {
        let mut batch = Batch { taps: taps.to_vec(), ..Batch::new() };
        let at = |i: usize| part * at_once + i;
        for (i, &token) in tokens.iter().enumerate() {
            batch.push(token, at(i) as u32, 0, asks(at(i)));
        }
        context.decode(&batch).unwrap();
        let mut output = 0;
        for i in 0..tokens.len() {
            let logits = if asks(at(i)) { bits(context.logits(output)) } else { Vec::new() };
            output += usize::from(asks(at(i)));
            all.push([logits, bits(context.taps(i))]);
        }
    }
    all
}

#[test]
fn taps_change_no_logits_and_do_not_depend_on_the_batch() {
    let model = embedded_model();
    let n_layer = model.n_layer();
    let taps = [1, n_layer / 2, n_layer];
    let mut context = context(&model, |_| ());
    let plain = decoded(&mut context, TEXT.len(), &[], |_| true);
    let tapped = decoded(&mut context, TEXT.len(), &taps, |_| true);
    let dim = tapped[0][1].len() / taps.len();
    for (i, (plain, tapped)) in plain.iter().zip(&tapped).enumerate() {
        assert_eq!(plain[0], tapped[0], "logits of row {i}");
        assert!(plain[1].is_empty());
        assert_ne!(tapped[1][..dim], tapped[1][dim..2 * dim], "row {i}");
    }
    for at_once in [1, 2, 3, 8] {
        assert!(decoded(&mut context, at_once, &taps, |_| true) == tapped, "{at_once} rows at once");
    }
    for at_once in [4, TEXT.len()] {
        let some = decoded(&mut context, at_once, &taps, |i| i % 3 == 2);
        for (i, (some, all)) in some.iter().zip(&tapped).enumerate() {
            assert_eq!(some[1], all[1], "taps of row {i}");
            assert!(i % 3 != 2 || some[0] == all[0], "logits of row {i}");
        }
    }
}

#[test]
fn a_tap_is_where_a_pass_can_rest() {
    let model = embedded_model();
    let mut context = context(&model, |_| ());
    for layer in [1, 3, model.n_layer()] {
        let tapped = decoded(&mut context, TEXT.len(), &[layer], |_| true);
        context.remove_all();
        let batch = Batch { keep_hidden: Some(layer), ..with_logits(&TEXT, 0) };
        context.decode(&batch).unwrap();
        for (i, row) in tapped.iter().enumerate() {
            let kept: Vec<u32> = context.hidden(i).iter().map(|x| x.to_bits()).collect();
            assert_eq!(row[1], kept, "row {i} at layer {layer}");
        }
    }
}

#[test]
fn taps_that_cannot_be_are_refused() {
    let model = embedded_model();
    let n_layer = model.n_layer();
    let mut context = context(&model, |_| ());
    let mut refused = |edit: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::prompt(&TEXT, 0, 0);
        edit(&mut batch);
        context.decode(&batch).unwrap_err().to_string()
    };
    for taps in [vec![0], vec![2, 1], vec![1, 1], vec![n_layer + 1]] {
        let message = refused(&|batch| batch.taps.clone_from(&taps));
        assert!(message.contains(&format!("give layers 1 to {n_layer}, ascending")), "{message}");
    }
    let masked = refused(&|batch| {
        batch.taps = vec![1];
        batch.run_layers = Some(RunLayers::exit(n_layer, 2));
    });
    assert!(masked.contains("full passes only"), "{masked}");
    let kept = refused(&|batch| (batch.taps, batch.keep_hidden) = (vec![1], Some(1)));
    assert!(kept.contains("full passes only"), "{kept}");
}
