//! Costs measured on a real context.

use crate::common;
use std::time::{Duration, Instant};

use spec_run::speculation::costs::{DEFAULT_BUDGET, measure};
use spec_run::{
    Batch, RunLayers,
    speculation::{Costs, SourceInfo, SourceKind, TARGET},
};

fn half() -> (SourceInfo, RunLayers) {
    let model = common::embedded_model();
    let n_layer = model.n_layer();
    let mask = (0..n_layer / 2).fold(RunLayers::all(n_layer), |mask, l| mask.skip_attn(l).skip_mlp(l));
    let cost = common::context(&model, |_| {}).mask_cost(&mask);
    (SourceInfo { name: "half".into(), kind: SourceKind::Mask, cost, chance: 0.75, prefix: None }, mask)
}

#[test]
fn measuring_leaves_the_cache_as_it_was_and_keeps_to_its_time() {
    let model = common::embedded_model();
    let tokens = common::tokens(40, 1, model.n_vocab());
    let (info, mask) = half();
    let next = |measured: bool| {
        let mut context = common::context(&model, |_| {});
        context.decode(&Batch::prompt(&tokens, 0, TARGET)).unwrap();
        let before = (context.kv().cells(TARGET).to_vec(), context.kv().free_cells());
        if measured {
            let guess = Costs::guess(std::slice::from_ref(&info));
            let mut costs = guess.clone();
            let started = Instant::now();
            measure(&mut context, TARGET, &[Some(mask.clone())], &mut costs, DEFAULT_BUDGET).unwrap();
            // Twice what is promised, for a machine that is busy with other tests.
            assert!(started.elapsed() < 2 * DEFAULT_BUDGET, "{:?}", started.elapsed());
            assert!(costs.anchored() && costs.step_seconds() > 0.0);
            // How the times compare is the machine's business, and it is busy with other tests.
            assert!(costs.all_rows().is_sorted() && costs.all_rows() != guess.all_rows());
            assert_ne!(costs.draft(0), guess.draft(0));
        }
        assert_eq!((context.kv().cells(TARGET).to_vec(), context.kv().free_cells()), before);
        context.decode(&Batch::prompt(&[7], 40, TARGET)).unwrap();
        common::bits(context.logits(0))
    };
    assert_eq!(next(true), next(false));
}

#[test]
fn without_room_or_time_the_guess_stays() {
    let model = common::embedded_model();
    let (info, mask) = half();
    let mut context = common::context(&model, |config| config.n_ctx = 8);
    let tokens = common::tokens(8, 1, model.n_vocab());
    let guess = Costs::guess(std::slice::from_ref(&info));
    let mut costs = guess.clone();
    measure(&mut context, TARGET, &[Some(mask.clone())], &mut costs, Duration::ZERO).unwrap();
    assert_eq!(costs.all_rows(), guess.all_rows());
    context.decode(&Batch::prompt(&tokens, 0, TARGET)).unwrap();
    measure(&mut context, TARGET, &[Some(mask.clone())], &mut costs, DEFAULT_BUDGET).unwrap();
    assert_eq!((costs.all_rows(), costs.anchored()), (guess.all_rows(), false));
    // Room for one row alone.
    context.truncate(TARGET, 7).unwrap();
    measure(&mut context, TARGET, &[Some(mask)], &mut costs, DEFAULT_BUDGET).unwrap();
    assert!(costs.anchored());
}
