//! What a fitted head drafts, against the chain that it was trained by.

use std::sync::Arc;

use spec_run_kernels::simd::Isa;

use super::{chain_outputs, noise::Noise};
use crate::{
    Gguf, Model,
    head::{
        Drafter, Head, HeadShape, Made, Origin, PackedHead, Part, Tables, Weights, alone, mean_square,
        read_taps,
    },
};

fn tables() -> Arc<Tables> {
    let file = spec_run_fixtures::fixture("drafter", "models/stories260K.gguf").expect("the archive has it");
    Arc::new(Tables::new(Arc::new(Model::load(Arc::new(Gguf::open(&file).unwrap())).unwrap())))
}

fn head(tables: &Tables) -> Head {
    let mut noise = Noise::new(5);
    let mut weights = Weights::zero(HeadShape::of(tables.model()).unwrap());
    weights.numbers_mut().iter_mut().for_each(|x| *x = 0.1 * noise.normal());
    weights.part_mut(Part::Scale)[0] = 2.0;
    Head {
        weights,
        tokens: (0..60).rev().collect(),
        embedding_rms: tables.embedding_rms(),
        made: Made::default(),
    }
}

/// Three steps in 8 bits are those of the floats that training has, but for rounding.
#[test]
fn steps_are_those_that_were_trained() {
    let tables = tables();
    let (head, mut noise) = (head(&tables), Noise::new(6));
    let shape = head.weights.shape().clone();
    let taps: Vec<f32> = (0..shape.inputs()).map(|_| 3.0 * noise.normal()).collect();
    let tokens = [7, 300, 12];
    let mut read = vec![0.0; shape.inputs()];
    read_taps(&tables, &taps, &mut read);
    let wanted = chain_outputs(&head.weights, &tables, &read, &tokens);
    for isa in Isa::available() {
        let mut drafter = Drafter::new(Arc::new(PackedHead::new(&head, tables.clone(), isa).unwrap()));
        for (n, (&token, wanted)) in tokens.iter().zip(&wanted).enumerate() {
            let origin = if n == 0 { Origin::Taps(&taps) } else { Origin::Itself };
            let logits = drafter.step(origin, token, &mut alone).to_vec();
            let size = mean_square(wanted).sqrt();
            let wrong: f32 = drafter.output().iter().zip(wanted).map(|(a, b)| (a - b).powi(2)).sum();
            let wrong = (wrong / wanted.len() as f32).sqrt() / size;
            assert!(wrong < 0.03, "{isa} step {n}: {wrong}");
            let mut row = vec![0.0; shape.dim];
            for (&token, &logit) in drafter.vocabulary().tokens().iter().zip(&logits) {
                tables.output_row(token, &mut row);
                let exact: f32 = row.iter().zip(drafter.output()).map(|(w, x)| 2.0 * w * x).sum();
                let bound = 0.05 * size * 2.0 * row.iter().map(|w| w * w).sum::<f32>().sqrt();
                assert!((logit - exact).abs() < bound.max(0.01), "{isa} token {token}: {logit} for {exact}");
            }
        }
    }
}

/// The same bits, however many threads share a step.
#[test]
fn threads_do_not_change_a_step() {
    let tables = tables();
    let head = Arc::new(PackedHead::new(&head(&tables), tables.clone(), Isa::detect()).unwrap());
    let taps: Vec<f32> = (0..head.shape().inputs()).map(|i| (i % 5) as f32 - 2.0).collect();
    let steps = |threads: usize| {
        let mut together =
            |job: &(dyn Fn(usize, usize) + Sync)| (0..threads).for_each(|index| job(index, threads));
        let mut drafter = Drafter::new(head.clone());
        let first = drafter.step(Origin::Taps(&taps), 9, &mut together).to_vec();
        (first, drafter.step(Origin::Itself, 40, &mut together).to_vec())
    };
    let one = steps(1);
    (2..=7).for_each(|threads| assert_eq!(steps(threads), one, "{threads} threads"));
}

#[test]
fn the_best_come_first_and_branches_share_a_step() {
    let tables = tables();
    let head = Arc::new(PackedHead::new(&head(&tables), tables.clone(), Isa::detect()).unwrap());
    let taps: Vec<f32> = (0..head.shape().inputs()).map(|i| (i % 7) as f32 - 3.0).collect();
    let mut drafter = Drafter::new(head);
    let logits = drafter.step(Origin::Taps(&taps), 9, &mut alone).to_vec();
    let best = drafter.best(3);
    assert_eq!(best.len(), 3);
    assert!(best.is_sorted_by(|a, b| a.logit >= b.logit));
    let better = |logit: f32| logits.iter().filter(|&&other| other > logit).count();
    assert_eq!(best.iter().map(|c| better(c.logit)).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(best.iter().all(|c| logits[59 - c.token as usize] == c.logit));
    let output = drafter.output().to_vec();
    let first = drafter.step(Origin::Itself, best[0].token, &mut alone).to_vec();
    let other = drafter.step(Origin::Itself, best[0].token, &mut alone).to_vec();
    assert_ne!(first, other);
    drafter.go_on_from(&output);
    assert_eq!(drafter.step(Origin::Itself, best[0].token, &mut alone), first);
    // A token that joins the list does not change what the others have.
    assert!(!drafter.vocabulary().contains(400));
    drafter.add_tokens(&[5, 400, 400]);
    assert_eq!((drafter.vocabulary().tokens().len(), drafter.vocabulary().contains(400)), (61, true));
    drafter.go_on_from(&output);
    assert_eq!(drafter.step(Origin::Itself, best[0].token, &mut alone)[..60], first);
}
