//! The parts of a model that a mask leaves out and a placement puts somewhere as a whole.

use super::{Op, Plan};

/// A part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The embedding.
    Embed,
    /// The attention, or the MLP, of a layer.
    Attn(usize),
    /// The MLP of a layer.
    Mlp(usize),
    /// The last norm and the head.
    Head,
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
    /// Whether the head is among them.
    pub head: bool,
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
    pub fn of(n_layer: usize, chosen: impl Fn(Unit) -> bool) -> Self {
        UnitSet {
            embed: chosen(Unit::Embed),
            attn: (0..n_layer).map(|layer| chosen(Unit::Attn(layer))).collect(),
            mlp: (0..n_layer).map(|layer| chosen(Unit::Mlp(layer))).collect(),
            head: chosen(Unit::Head),
        }
    }

    /// Whether a unit is among them.
    pub fn holds(&self, unit: Unit) -> bool {
        match unit {
            Unit::Embed => self.embed,
            Unit::Attn(layer) => self.attn[layer],
            Unit::Mlp(layer) => self.mlp[layer],
            Unit::Head => self.head,
        }
    }

    /// The operations of each unit that is held, in the model's order.
    pub fn ops<'a>(&self, plan: &'a Plan) -> Vec<Vec<&'a Op>> {
        let units = plan.units().filter(|(unit, _)| self.holds(*unit));
        units.map(|(_, ops)| ops).collect()
    }
}

impl Plan {
    /// All units in order, with their operations; what a layer's sublayers share is of both.
    pub fn units(&self) -> impl Iterator<Item = (Unit, Vec<&Op>)> {
        let layers = self.layers.iter().enumerate().flat_map(|(l, layer)| {
            let with_shared = |ops| layer.shared.iter().chain(ops).collect();
            [(Unit::Attn(l), with_shared(&layer.attn)), (Unit::Mlp(l), with_shared(&layer.mlp))]
        });
        std::iter::once((Unit::Embed, self.embed.iter().collect()))
            .chain(layers)
            .chain([(Unit::Head, vec![&self.head])])
    }
}
