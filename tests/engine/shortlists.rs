//! A part of the vocabulary: its logits are those of the whole, bit for bit.

use std::sync::Arc;

use spec_run::{
    Batch, Context, RunLayers,
    shortlist::{SHELF, Shortlist},
};

use crate::common::{bits, context, embedded_model, families, tokens, with_logits};

/// Whether the logits of a pass with this list are those of the pass without it, and nothing else is possible.
fn check(context: &mut Context, batch: &Batch, list: &Arc<Shortlist>, name: &str) {
    let outputs = batch.rows.iter().filter(|row| row.logits).count();
    let mut logits = |batch: &Batch| -> Vec<Vec<u32>> {
        context.remove_all();
        context.decode(batch).unwrap();
        (0..outputs).map(|i| bits(context.logits(i))).collect()
    };
    let whole = logits(batch);
    let listed = logits(&Batch { shortlist: Some(list.clone()), ..batch.clone() });
    for (row, (whole, listed)) in std::iter::zip(&whole, &listed).enumerate() {
        for (token, (&whole, &listed)) in (0..).zip(std::iter::zip(whole, listed)) {
            let wanted = if list.contains(token) { whole } else { f32::NEG_INFINITY.to_bits() };
            assert_eq!(listed, wanted, "{name}: token {token} of row {row} of {outputs}");
        }
    }
}

/// Batches of one row, few and many, all or the last of which ask for logits.
fn batches(n_vocab: usize, n_layer: usize) -> Vec<Batch> {
    let text = tokens(40, 11, n_vocab);
    let mut batches: Vec<Batch> = [1, 3, 40].map(|n| Batch::prompt(&text[..n], 0, 0)).into();
    for n in [3, 40] {
        let batch = with_logits(&text[..n], 0);
        batches.push(batch.clone());
        batches.push(batch.with_layers(RunLayers::exit(n_layer, n_layer / 2)));
    }
    batches
}

#[test]
fn logits_of_a_shortlist_are_those_of_the_whole_vocabulary() {
    let model = embedded_model();
    let (n_vocab, n_layer) = (model.n_vocab(), model.n_layer());
    let last = n_vocab.div_ceil(SHELF) as u32 - 1;
    let lists = [
        Shortlist::first(n_vocab, 1),
        Shortlist::first(n_vocab, n_vocab / 8),
        Shortlist::new(n_vocab, (0..=last).step_by(3)),
        Shortlist::new(n_vocab, [0, 1, 2, 7, last - 1, last]),
        Shortlist::first(n_vocab, n_vocab),
    ];
    for (threads, list) in lists.map(Arc::new).iter().flat_map(|list| [(1, list), (2, list), (3, list)]) {
        let mut context = context(&model, |config| config.threads = threads);
        for batch in batches(n_vocab, n_layer) {
            check(&mut context, &batch, list, &format!("{threads} threads, {:.3}", list.share()));
        }
    }
}

/// Heads with biases, scales and caps, and of every width.
#[test]
fn shortlists_are_right_for_every_architecture() {
    for family in families::families() {
        let n_vocab = family.model.n_vocab();
        let last = n_vocab.div_ceil(SHELF) as u32 - 1;
        let list = Arc::new(Shortlist::new(n_vocab, (0..=last).rev().step_by(2)));
        let mut context = family.context(|config| config.threads = 2);
        for batch in batches(n_vocab, family.model.n_layer()) {
            check(&mut context, &batch, &list, &family.name);
        }
    }
}

#[test]
fn a_shortlist_of_another_vocabulary_is_refused() {
    let model = embedded_model();
    let mut context = context(&model, |_| ());
    let shortlist = Some(Arc::new(Shortlist::first(100, 10)));
    let refused = context.decode(&Batch { shortlist, ..Batch::prompt(&[1], 0, 0) });
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("a vocabulary of 100") && said.contains("has 2048 tokens"), "{said}");
}
