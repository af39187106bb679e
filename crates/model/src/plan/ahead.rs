//! A head that was trained to predict the token after the next one: a layer of its own behind the others, which reads what
//! the last layer left of a token together with the token that came next.

use super::{Buf, LayerOps, Op, Plan, Step, Unit, Visit};

/// Such a head. All of its operations work on the model's buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Ahead {
    /// What [`Ahead::after_model`] finds of the token before: what the model's last layer left, or more. What is found of a
    /// token that the head predicted itself is always in `X`.
    pub reads: Buf,
    /// Makes the layer's input of the next token and of what is in [`Ahead::reads`].
    pub after_model: Vec<Op>,
    /// The same of what its own layer left in `X`: so it goes on from what it has predicted itself.
    pub after_itself: Vec<Op>,
    pub layer: LayerOps,
    pub head: Op,
}

impl Ahead {
    /// Every operation, save that some of [`Ahead::after_model`] are in [`Ahead::after_itself`] too.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.body().chain([&self.head])
    }

    fn body(&self) -> impl Iterator<Item = &Op> {
        let LayerOps { shared, attn, mlp } = &self.layer;
        self.after_model.iter().chain(&self.after_itself).chain(shared).chain(attn).chain(mlp)
    }

    /// What is not done where the model's tokens are looked up, nor where its logits are made.
    pub fn own(&self) -> impl Iterator<Item = &Op> {
        self.body().filter(|op| op.unit_ahead() == Unit::Ahead)
    }
}

impl Op {
    /// The unit of an operation of what predicts one token more.
    fn unit_ahead(&self) -> Unit {
        match self {
            Op::Embed { .. } => Unit::Embed,
            Op::Head { .. } => Unit::Head,
            _ => Unit::Ahead,
        }
    }
}

impl Plan {
    /// Slots that layers have of their own, that of [`Plan::ahead`] last; those of repetitions come after them.
    pub fn own_slots(&self) -> usize {
        self.layers.len() + usize::from(self.ahead.is_some())
    }

    /// All heads: they are in one place, which has room for logits.
    pub fn heads(&self) -> impl Iterator<Item = &Op> {
        self.head.iter().chain(self.ahead.iter().map(|ahead| &ahead.head))
    }

    /// All that looks tokens up.
    pub fn embeddings(&self) -> impl Iterator<Item = &Op> {
        let ahead = self.ahead.iter().flat_map(Ahead::body);
        self.embed.iter().chain(ahead.filter(|op| op.unit_ahead() == Unit::Embed))
    }

    /// The buffer in which a pass of [`Plan::ahead`] finds what was left of the token before.
    ///
    /// # Panics
    /// If there is none.
    pub fn read_ahead(&self, after_itself: bool) -> Buf {
        let ahead = self.ahead.as_ref().expect("the caller has checked that there is one");
        if after_itself { Buf::X } else { ahead.reads }
    }

    /// The slot of the keys and values of [`Plan::ahead`].
    pub fn ahead_slot(&self) -> Option<usize> {
        self.ahead.as_ref().map(|_| self.layers.len())
    }

    /// The layer that a slot belongs to; `None` for those of repetitions.
    pub fn layer_of_slot(&self, slot: usize) -> Option<&LayerOps> {
        let ahead = self.ahead.as_ref().filter(|_| Some(slot) == self.ahead_slot());
        self.layers.get(slot).or(ahead.map(|ahead| &ahead.layer))
    }

    /// All steps of a pass of [`Plan::ahead`], the head last.
    ///
    /// # Panics
    /// If there is none.
    pub fn ahead_steps(&self, after_itself: bool) -> Vec<Step<'_>> {
        let ahead = self.ahead.as_ref().expect("the caller has checked that there is one");
        let slot = self.layers.len();
        let visit = Visit::first(slot);
        let before = if after_itself { &ahead.after_itself } else { &ahead.after_model };
        let LayerOps { shared, attn, mlp } = &ahead.layer;
        let step = |op| Step { op, unit: Op::unit_ahead(op), slot, visit, coarse: false, experts: None };
        let mut steps: Vec<_> = before.iter().chain(shared).chain(attn).chain(mlp).map(step).collect();
        steps.push(Step::of_head(&ahead.head));
        steps
    }
}
