//! Schedules that were made before: passes repeat each other, and to make one anew costs as much as a small layer.

use super::{Asked, PassShape, Phase, schedule};
use crate::{
    model::Model,
    plan::{Op, Step, Unit, Visit},
};

/// So many are kept: a text's plain steps, its drafts, and the verifications of some lengths, each perhaps in the pieces
/// between which rows are taken out.
const MOST: usize = 32;

/// What of a step a schedule depends on.
type Key = (Op, Unit, usize, Visit, bool, Option<usize>);

fn key(step: &Step) -> Key {
    (*step.op, step.unit, step.slot, step.visit, step.coarse, step.experts)
}

struct Known {
    steps: Vec<Key>,
    shape: PassShape,
    phases: Vec<Phase>,
}

/// Of one model.
#[derive(Default)]
pub struct Schedules {
    /// By weight, what adapters have something for.
    adapted: Vec<bool>,
    known: Vec<Known>,
    /// The one that is replaced next.
    oldest: usize,
}

impl Schedules {
    pub fn new(adapted: Vec<bool>) -> Self {
        Schedules { adapted, ..Self::default() }
    }

    /// The index of a pass's schedule, made if it is not among those that are known.
    pub fn find(&mut self, model: &Model, steps: &[Step], asked: Asked) -> usize {
        let same = |known: &Known| {
            known.shape.asked == asked && known.steps.iter().copied().eq(steps.iter().map(key))
        };
        if let Some(i) = self.known.iter().position(same) {
            return i;
        }
        let shape = PassShape::new(model, steps, asked);
        let i = if self.known.len() < MOST {
            self.known.push(Known { steps: Vec::new(), shape, phases: Vec::new() });
            self.known.len() - 1
        } else {
            self.oldest = (self.oldest + 1) % MOST;
            self.oldest
        };
        let Known { steps: keys, phases, .. } = &mut self.known[i];
        keys.clear();
        keys.extend(steps.iter().map(key));
        schedule(model, &self.adapted, steps, &shape, phases);
        self.known[i].shape = shape;
        i
    }

    /// # Panics
    /// If `find` did not give this index.
    pub fn get(&self, i: usize) -> (&PassShape, &[Phase]) {
        let Known { shape, phases, .. } = &self.known[i];
        (shape, phases)
    }
}
