//! Keys and values that are made of what another model left of its tokens, and not of the tokens themselves.

use super::{Buf, Op, OpList, Plan, PlanOp, Step, Unit, Visit};

/// The operations that make them.
#[derive(Clone, Debug, PartialEq)]
pub struct Inject {
    /// What the other model left of a token.
    pub reads: Buf,
    /// What makes the rows that all layers read, in `H` as the layers' own norms.
    pub before: Vec<Op>,
    /// By layer, what stores its keys and values: products of its attention, of the same rows.
    pub layers: Vec<Vec<Op>>,
}

impl Inject {
    /// The steps of a layer.
    fn of_layer(&self, layer: usize) -> impl Iterator<Item = PlanOp<'_>> {
        let before = self.before_ops().filter(move |_| layer == 0);
        let list = OpList::InjectLayer(layer as u32);
        before.chain(self.layers.get(layer).into_iter().flat_map(move |ops| list.number(ops)))
    }

    /// [`Inject::before`] with its numbers.
    pub(super) fn before_ops(&self) -> impl Iterator<Item = PlanOp<'_>> {
        OpList::Inject.number(&self.before)
    }
}

impl Plan {
    /// The buffer in which such a pass finds what the other model left.
    ///
    /// # Panics
    /// If there is none.
    pub fn read_injected(&self) -> Buf {
        self.inject.as_ref().expect("the caller has checked that there is some").reads
    }

    /// The steps of a pass that stores such keys and values in the layers' own slots.
    pub fn inject_steps(&self) -> Vec<Step<'_>> {
        let layers = self.inject.iter().flat_map(|inject| (0..self.layers.len()).map(move |l| (l, inject)));
        let steps = layers.flat_map(|(slot, inject)| {
            let (unit, visit) = (Unit::Attn(slot), Visit::first(slot));
            let step =
                move |PlanOp { id, op }| Step { id, op, unit, slot, visit, coarse: false, experts: None };
            inject.of_layer(slot).map(step)
        });
        steps.collect()
    }
}
