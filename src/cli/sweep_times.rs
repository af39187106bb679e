//! What the masks of a sweep cost and give, by the clock.

use crate::{
    Batch, Context, Result, RunLayers,
    search::{
        costs::{PassCosts, measure_masks},
        speed,
    },
};

/// The longest draft that is looked at.
const DRAFT_MAX: usize = 8;

/// For each mask and the share of its first tokens that are accepted: a draft step in plain steps, the speedup of drafts of
/// the best length, and the tokens per second of these. Passes are timed behind `prefix`.
pub fn time(
    context: &mut Context,
    masks: &[RunLayers],
    accepted: &[f64],
    prefix: &[u32],
) -> Result<Option<Vec<[f64; 3]>>> {
    context.remove(0);
    context.decode(&Batch::prompt(prefix, 0, 0))?;
    let place = (0, prefix.len());
    let costs = PassCosts::measure(context, place, DRAFT_MAX + 1, &[], None)?;
    let steps = measure_masks(context, place, masks, None)?;
    let speed = |((mask, &step), &accepted): ((&RunLayers, &f64), &f64)| {
        let tokens = |k| speed::tokens_if_independent(accepted, k);
        let best = costs.best(tokens, step, costs.prefix(mask));
        [step, best.speedup, best.speedup / costs.step_seconds]
    };
    Ok(Some(masks.iter().zip(&steps).zip(accepted).map(speed).collect()))
}
