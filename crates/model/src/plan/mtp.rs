//! A head that was trained to predict the token after the next one: a layer of its own behind the others, which reads what
//! the last layer left of a token together with the token that came next.

use super::{Buf, LayerOps, MtpList, Op, OpList, Plan, PlanOp, Step, Unit, Visit};

/// Such a head. All of its operations work on the model's buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Mtp {
    /// What [`Mtp::after_model`] finds of the token before: what the model's last layer left, or more. What is found of a
    /// token that the head predicted itself is always in `X`.
    pub reads: Buf,
    /// Makes the layer's input of the next token and of what is in [`Mtp::reads`].
    pub after_model: Vec<Op>,
    /// The same of what its own layer left in `X`: so it goes on from what it has predicted itself.
    pub after_itself: Vec<Op>,
    pub layer: LayerOps,
    pub head: Op,
}

impl Mtp {
    /// Every operation, save that some of [`Mtp::after_model`] are in [`Mtp::after_itself`] too.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.body().chain([self.head_op()]).map(|of| of.op)
    }

    fn body(&self) -> impl Iterator<Item = PlanOp<'_>> {
        let after_model = OpList::Mtp(MtpList::AfterModel).number(&self.after_model);
        let after_itself = OpList::Mtp(MtpList::AfterItself).number(&self.after_itself);
        after_model.chain(after_itself).chain(self.layer_ops())
    }

    fn layer_ops(&self) -> impl Iterator<Item = PlanOp<'_>> {
        let LayerOps { shared, attn, mlp } = &self.layer;
        let lists = [(MtpList::Shared, shared), (MtpList::Attn, attn), (MtpList::Mlp, mlp)];
        lists.into_iter().flat_map(|(list, ops)| OpList::Mtp(list).number(ops))
    }

    fn head_op(&self) -> PlanOp<'_> {
        OpList::Mtp(MtpList::Head).at(0, &self.head)
    }

    /// What is not done where the model's tokens are looked up, nor where its logits are made.
    pub fn own(&self) -> impl Iterator<Item = PlanOp<'_>> {
        self.body().filter(|op| op.unit_in_mtp() == Unit::Mtp)
    }
}

impl Op {
    /// The unit of an operation of what predicts one token more.
    fn unit_in_mtp(&self) -> Unit {
        match self {
            Op::Embed { .. } => Unit::Embed,
            Op::Head { .. } => Unit::Head,
            _ => Unit::Mtp,
        }
    }
}

impl Plan {
    /// Slots that layers have of their own, that of [`Plan::mtp`] last; those of repetitions come after them.
    pub fn own_slots(&self) -> usize {
        self.layers.len() + usize::from(self.mtp.is_some())
    }

    /// All heads: they are in one place, which has room for logits.
    pub fn heads(&self) -> impl Iterator<Item = PlanOp<'_>> {
        self.head_op().into_iter().chain(self.mtp.iter().map(Mtp::head_op))
    }

    /// All that looks tokens up.
    pub fn embeddings(&self) -> impl Iterator<Item = PlanOp<'_>> {
        let mtp = self.mtp.iter().flat_map(Mtp::body);
        OpList::Embed.number(&self.embed).chain(mtp.filter(|op| op.unit_in_mtp() == Unit::Embed))
    }

    /// The buffer in which a pass of [`Plan::mtp`] finds what was left of the token before.
    ///
    /// # Panics
    /// If there is none.
    pub fn mtp_reads(&self, after_itself: bool) -> Buf {
        let mtp = self.mtp.as_ref().expect("the caller has checked that there is one");
        if after_itself { Buf::X } else { mtp.reads }
    }

    /// The slot of the keys and values of [`Plan::mtp`].
    pub fn mtp_slot(&self) -> Option<usize> {
        self.mtp.as_ref().map(|_| self.layers.len())
    }

    /// The layer that a slot belongs to; `None` for those of repetitions.
    pub fn layer_of_slot(&self, slot: usize) -> Option<&LayerOps> {
        let mtp = self.mtp.as_ref().filter(|_| Some(slot) == self.mtp_slot());
        self.layers.get(slot).or(mtp.map(|mtp| &mtp.layer))
    }

    /// All steps of a pass of [`Plan::mtp`], the head last.
    ///
    /// # Panics
    /// If there is none.
    pub fn mtp_steps(&self, after_itself: bool) -> Vec<Step<'_>> {
        let mtp = self.mtp.as_ref().expect("the caller has checked that there is one");
        let slot = self.layers.len();
        let visit = Visit::first(slot);
        let (list, before) = match after_itself {
            true => (MtpList::AfterItself, &mtp.after_itself),
            false => (MtpList::AfterModel, &mtp.after_model),
        };
        let step = |PlanOp { id, op }| {
            let unit = Op::unit_in_mtp(op);
            Step { id, op, unit, slot, visit, coarse: false, experts: None }
        };
        let before = OpList::Mtp(list).number(before);
        let mut steps: Vec<_> = before.chain(mtp.layer_ops()).map(step).collect();
        steps.push(Step::of_head(mtp.head_op()));
        steps
    }
}
