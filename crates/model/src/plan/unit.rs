//! The parts of a model that a mask leaves out and a placement puts somewhere as a whole.

use std::fmt;

use super::{Inject, Op, OpList, Plan, PlanOp};

/// A part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The embedding, whatever looks tokens up in it.
    Embed,
    /// The attention of a layer.
    Attn(usize),
    /// The MLP of a layer; where it has experts, their router, what is shared, and norms.
    Mlp(usize),
    /// The experts of a layer.
    Experts(usize),
    /// The last norm and the head, and those of what predicts one token more.
    Head,
    /// All else of what predicts one token more.
    Mtp,
}

impl Unit {
    /// The layer that it is a part of.
    pub fn layer(self) -> Option<usize> {
        match self {
            Unit::Attn(layer) | Unit::Mlp(layer) | Unit::Experts(layer) => Some(layer),
            Unit::Embed | Unit::Head | Unit::Mtp => None,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unit::Embed => f.write_str("the embedding"),
            Unit::Attn(layer) => write!(f, "attention {layer}"),
            Unit::Mlp(layer) => write!(f, "MLP {layer}"),
            Unit::Experts(layer) => write!(f, "experts {layer}"),
            Unit::Head => f.write_str("the head"),
            Unit::Mtp => f.write_str("the head for one token more"),
        }
    }
}

/// Some units of a model: those that a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSet {
    /// Whether the embedding is among them.
    pub embed: bool,
    /// By layer.
    pub attn: Vec<bool>,
    /// The same for the MLP.
    pub mlp: Vec<bool>,
    /// The same for the experts; as the MLP, where a layer has none.
    pub experts: Vec<bool>,
    /// Whether the head is among them.
    pub head: bool,
    /// Whether what predicts one token more is among them; it says nothing where there is none.
    pub mtp: bool,
}

impl UnitSet {
    /// All units of a model of so many layers.
    pub fn all(n_layer: usize) -> Self {
        Self::of(n_layer, |_| true)
    }

    /// No units.
    pub fn none(n_layer: usize) -> Self {
        Self::of(n_layer, |_| false)
    }

    /// The units of a model of so many layers that are `chosen`.
    pub fn of(n_layer: usize, mut chosen: impl FnMut(Unit) -> bool) -> Self {
        UnitSet {
            embed: chosen(Unit::Embed),
            attn: (0..n_layer).map(|layer| chosen(Unit::Attn(layer))).collect(),
            mlp: (0..n_layer).map(|layer| chosen(Unit::Mlp(layer))).collect(),
            experts: (0..n_layer).map(|layer| chosen(Unit::Experts(layer))).collect(),
            head: chosen(Unit::Head),
            mtp: chosen(Unit::Mtp),
        }
    }

    /// Whether a unit is among them.
    pub fn holds(&self, unit: Unit) -> bool {
        match unit {
            Unit::Embed => self.embed,
            Unit::Attn(layer) => self.attn[layer],
            Unit::Mlp(layer) => self.mlp[layer],
            Unit::Experts(layer) => self.experts[layer],
            Unit::Head => self.head,
            Unit::Mtp => self.mtp,
        }
    }

    /// Adds a unit.
    pub fn insert(&mut self, unit: Unit) {
        match unit {
            Unit::Embed => self.embed = true,
            Unit::Attn(layer) => self.attn[layer] = true,
            Unit::Mlp(layer) => self.mlp[layer] = true,
            Unit::Experts(layer) => self.experts[layer] = true,
            Unit::Head => self.head = true,
            Unit::Mtp => self.mtp = true,
        }
    }

    /// The operations of each unit that is held, in the model's order.
    pub fn ops<'a>(&self, plan: &'a Plan) -> Vec<Vec<PlanOp<'a>>> {
        let units = plan.units().filter(|(unit, _)| self.holds(*unit));
        units.map(|(_, ops)| ops).collect()
    }
}

impl Op {
    /// Whether it is done by the experts that rows have chosen, and not by all rows alike.
    pub fn is_of_experts(&self) -> bool {
        match self {
            Op::ExpertsGate(_) | Op::ExpertsDown(_) | Op::ExpertsSum(_) => true,
            Op::Embed { .. }
            | Op::Norm { .. }
            | Op::MatMul { .. }
            | Op::Gate { .. }
            | Op::Multiply { .. }
            | Op::Add { .. }
            | Op::Take { .. }
            | Op::PerHead { .. }
            | Op::Scale { .. }
            | Op::Weigh { .. }
            | Op::Store(_)
            | Op::Attend(_)
            | Op::Convolve(_)
            | Op::Scan(_)
            | Op::Choose(_)
            | Op::Head { .. } => false,
        }
    }

    /// The unit of an operation of a layer's MLP.
    pub(super) fn unit_of_mlp(&self, layer: usize) -> Unit {
        if self.is_of_experts() { Unit::Experts(layer) } else { Unit::Mlp(layer) }
    }
}

impl Plan {
    /// All units in order, with their operations; what a layer's sublayers share is of both.
    pub fn units(&self) -> impl Iterator<Item = (Unit, Vec<PlanOp<'_>>)> {
        let layers = self.layers.iter().enumerate().flat_map(|(l, layer)| {
            let [shared, attn, mlp] = OpList::of_layer(l);
            let (experts, mlp): (Vec<_>, Vec<_>) = mlp.number(&layer.mlp).partition(|op| op.is_of_experts());
            let with_shared = |ops: Vec<_>| shared.number(&layer.shared).chain(ops).collect();
            let experts = (!experts.is_empty()).then_some((Unit::Experts(l), experts));
            let injected = self.inject.iter().filter(|_| l == 0).flat_map(Inject::before_ops);
            let attn = attn.number(&layer.attn).chain(injected).collect();
            [(Unit::Attn(l), with_shared(attn)), (Unit::Mlp(l), with_shared(mlp))].into_iter().chain(experts)
        });
        std::iter::once((Unit::Embed, self.embeddings().collect()))
            .chain(layers)
            .chain([(Unit::Head, self.heads().collect())])
            .chain(self.mtp.iter().map(|mtp| (Unit::Mtp, mtp.own().collect())))
    }
}
