//! Which operation of a plan: backends find by it what they have made for an operation.

use std::ops::Deref;

use super::Op;

/// A list of operations of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpList {
    /// [`Plan::embed`](super::Plan::embed)
    Embed,
    /// [`LayerOps::shared`](super::LayerOps::shared) of a layer.
    Shared(u32),
    /// [`LayerOps::attn`](super::LayerOps::attn) of a layer.
    Attn(u32),
    /// [`LayerOps::mlp`](super::LayerOps::mlp) of a layer.
    Mlp(u32),
    /// [`Plan::head`](super::Plan::head)
    Head,
    /// A list of [`Plan::mtp`](super::Plan::mtp).
    Mtp(MtpList),
    /// [`Inject::before`](super::Inject::before)
    Inject,
    /// A list of [`Inject::layers`](super::Inject::layers).
    InjectLayer(u32),
}

/// A list of operations of [`Mtp`](super::Mtp), by the name of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MtpList {
    AfterModel,
    AfterItself,
    Shared,
    Attn,
    Mlp,
    Head,
}

/// An operation's number in its plan: its list, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId {
    pub list: OpList,
    pub index: u32,
}

/// An operation of a plan with its number.
#[derive(Clone, Copy, Debug)]
pub struct PlanOp<'a> {
    pub id: OpId,
    pub op: &'a Op,
}

impl Deref for PlanOp<'_> {
    type Target = Op;

    fn deref(&self) -> &Op {
        self.op
    }
}

impl OpList {
    /// The lists of a layer: what its sublayers share, its attention, its MLP.
    pub fn of_layer(layer: usize) -> [Self; 3] {
        [OpList::Shared, OpList::Attn, OpList::Mlp].map(|list| list(layer as u32))
    }

    /// Its operations with their numbers.
    pub fn number(self, ops: &[Op]) -> impl DoubleEndedIterator<Item = PlanOp<'_>> {
        ops.iter().enumerate().map(move |(index, op)| self.at(index, op))
    }

    /// The operation at an index of this list.
    pub(super) fn at(self, index: usize, op: &Op) -> PlanOp<'_> {
        PlanOp { id: OpId { list: self, index: index as u32 }, op }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::{
        RunLayers,
        mask::LayerBits,
        plan::{Buf, Dims, Inject, LayerOps, Mtp, Norm, NormKind, Plan, WeightId},
    };

    fn scale(by: f32) -> Op {
        Op::Scale { buf: Buf::X, by }
    }

    fn layer(n: f32) -> LayerOps {
        LayerOps {
            shared: vec![scale(n + 0.1)],
            attn: vec![scale(n + 0.2), scale(n + 0.3)],
            mlp: vec![scale(n + 0.4)],
        }
    }

    fn head(weight: u32) -> Op {
        let norm = Norm { kind: NormKind::Rms, weight: None, bias: None, eps: 0.0 };
        Op::Head { norm, weight: WeightId(weight), bias: None, scale: 1.0, cap: None }
    }

    /// No two operations are equal.
    fn plan() -> Plan {
        Plan {
            dims: Dims { n_layer: 2, n_vocab: 1, dim: 1 },
            widths: vec![1; Buf::NAMED],
            n_tokens: 1,
            embed: vec![scale(0.1), scale(0.2)],
            layers: vec![layer(1.0), layer(2.0)],
            head: Some(head(0)),
            mtp: Some(Mtp {
                reads: Buf::X,
                after_model: vec![scale(3.1), scale(3.2)],
                after_itself: vec![scale(3.3)],
                layer: layer(4.0),
                head: head(1),
            }),
            inject: Some(Inject {
                reads: Buf::X,
                before: vec![scale(5.1)],
                layers: vec![vec![scale(5.2)], vec![scale(5.3)]],
            }),
            ..Plan::default()
        }
    }

    /// What is placed and what is run name an operation alike, and no number stands for two.
    #[test]
    fn an_operation_has_one_number_wherever_it_is_named() {
        let plan = plan();
        let repeated = [(1, LayerBits::ATTN | LayerBits::MLP), (0, LayerBits::MLP), (1, LayerBits::ATTN)];
        let repeated = RunLayers::from_steps(2, repeated).unwrap();
        let passes = [plan.steps(None), plan.steps(Some(&repeated))];
        let passes =
            passes.into_iter().chain([plan.mtp_steps(false), plan.mtp_steps(true), plan.inject_steps()]);
        let steps = passes.flatten().map(|step| (step.id, *step.op));
        let units = plan.units().flat_map(|(_, ops)| ops).map(|of| (of.id, *of.op));
        let mut ops: HashMap<OpId, Op> = HashMap::new();
        for (id, op) in units.chain(steps) {
            assert_eq!(*ops.entry(id).or_insert(op), op, "{id:?}");
        }
        // Those of `Inject::layers` are in no unit.
        assert_eq!(ops.len(), plan.ops().count() + 2);
    }
}
