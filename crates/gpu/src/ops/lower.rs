//! The steps of a pass made into commands, one step after the other.

use std::mem;

use super::{
    super::{
        command::{Binding, BufferCopy, Command, Dispatch, Load},
        device::Gpu,
        pipelines::Kernel,
        variants::Arith,
    },
    Ops, Stage,
    attention::AttentionKey,
    experts::Taking,
    products::How,
    unscaled::NormLeft,
};
use crate::{
    backend::Rows,
    kv::Replay,
    plan::{Buf, BufSet, Op, OpId, Step},
};

/// A pass, or the part of one that runs here.
pub struct Pass<'a> {
    pub steps: &'a [Step<'a>],
    pub rows: &'a Rows<'a>,
    pub borders: Borders,
}

impl<'a> Pass<'a> {
    /// One that neither begins nor ends on a processor.
    pub fn whole(steps: &'a [Step<'a>], rows: &'a Rows<'a>) -> Self {
        Pass { steps, rows, borders: Borders::NONE }
    }
}

/// What the CPU has made for the first step, and what it is to have of the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Borders {
    /// The first is a product whose sums of low planes are there.
    pub lows: bool,
    /// Rows that are read back.
    pub leaves: BufSet,
}

impl Borders {
    pub const NONE: Borders = Borders { lows: false, leaves: BufSet::NONE };
}

/// A copy that is made before a step.
pub struct Tap {
    pub step: usize,
    pub copy: BufferCopy,
}

/// Some of a pass's outputs, whose logits are made at once.
pub struct HeadPiece<'a> {
    pub head: &'a Step<'a>,
    /// Its number among those of the pass.
    pub piece: usize,
    pub rows: usize,
}

/// A step between those before and behind it.
#[derive(Clone, Copy)]
pub(super) struct StepAt<'a> {
    pub steps: &'a [Step<'a>],
    pub index: usize,
}

impl<'a> StepAt<'a> {
    pub fn step(self) -> &'a Step<'a> {
        &self.steps[self.index]
    }

    pub fn before(self) -> &'a [Step<'a>] {
        &self.steps[..self.index]
    }

    pub fn behind(self) -> &'a [Step<'a>] {
        &self.steps[self.index + 1..]
    }

    /// The first step from this one on that is no product with a matrix.
    fn behind_products(self) -> Option<Self> {
        let products =
            self.steps[self.index..].iter().take_while(|step| matches!(step.op, Op::MatMul { .. }));
        let index = self.index + products.count();
        (index < self.steps.len()).then_some(StepAt { index, ..self })
    }
}

/// The commands so far, and which rows lie prepared for products where they are done.
pub struct Lowering<'a> {
    pub gpu: &'a Gpu,
    /// Rows of the pass, or of a piece of its outputs.
    pub rows: usize,
    ready: Ready,
    /// Of the next dispatch.
    load: Option<Load>,
    commands: Vec<Command>,
}

/// Which buffers' rows lie prepared, as they are now. At most one other than `H`: there is one buffer for all others.
#[derive(Default)]
struct Ready {
    h: bool,
    other: Option<Buf>,
}

impl<'a> Lowering<'a> {
    pub fn new(gpu: &'a Gpu, rows: usize) -> Self {
        Lowering { gpu, rows, ready: Ready::default(), load: None, commands: Vec::new() }
    }

    /// What the next dispatch takes.
    pub fn weigh(&mut self, load: Load) {
        assert!(self.load.replace(load).is_none(), "one load for a dispatch");
    }

    pub fn dispatch(&mut self, kernel: Kernel, binding: &Binding, groups: [u32; 3]) {
        let (binding, load) = (binding.clone(), self.load.take());
        self.commands.push(Command::Dispatch(Dispatch { kernel, binding, groups, load }));
    }

    /// Whether a buffer's rows lie prepared.
    pub(super) fn is_ready(&self, buf: Buf) -> bool {
        if buf == Buf::H { self.ready.h } else { self.ready.other == Some(buf) }
    }

    /// A buffer's rows were prepared.
    pub(super) fn add_ready(&mut self, buf: Buf) {
        if buf == Buf::H { self.ready.h = true } else { self.ready.other = Some(buf) }
    }

    /// These are written, and not prepared.
    fn forget(&mut self, written: BufSet) {
        self.ready.h &= !written.contains(Buf::H);
        self.ready.other = self.ready.other.filter(|&buf| !written.contains(buf));
    }

    fn finish(self) -> Vec<Command> {
        assert!(self.load.is_none(), "a load belongs to a dispatch");
        self.commands
    }
}

/// What products have done for the steps behind them.
struct Done {
    /// So many steps: products that the last one has made together with its own.
    covered: usize,
    /// The next step, a norm.
    normed: Option<OpId>,
    /// Sums of low planes wait for the first step.
    lows: bool,
}

impl Done {
    /// Whether all of a step is done.
    fn covers(&mut self, step: &Step) -> bool {
        assert!(self.normed.is_none_or(|norm| norm == step.id), "a norm follows the product that does it");
        if self.covered == 0 {
            return false;
        }
        assert!(matches!(step.op, Op::MatMul { .. }), "products are joined with products");
        self.covered -= 1;
        true
    }

    /// Whether a product is to add sums of low planes.
    fn take_lows(&mut self, step: usize) -> bool {
        assert!(!self.lows || step == 0, "sums of low planes are for the first step");
        mem::take(&mut self.lows)
    }

    fn end(self) {
        assert!(self.covered == 0 && self.normed.is_none() && !self.lows, "nothing is left for a step");
    }
}

impl Ops {
    /// The commands of all steps but the head. What they need and is not there yet is made; its parameters must be sent
    /// before the commands are run. `taps`: ascending.
    pub fn lower(&mut self, stage: &Stage, pass: &Pass, taps: Vec<Tap>) -> Vec<Command> {
        let mut out = Lowering::new(stage.gpu, pass.rows.tokens.len());
        let mut done = Done { covered: 0, normed: None, lows: pass.borders.lows };
        let mut taps = taps.into_iter().peekable();
        for (index, step) in pass.steps.iter().enumerate() {
            while let Some(tap) = taps.next_if(|tap| tap.step == index) {
                out.commands.push(Command::Copy(tap.copy));
            }
            if self.arith != Arith::Float {
                out.forget(stage.model.plan.operands(step.op).writes);
            }
            if !done.covers(step) {
                self.lower_step(stage, pass, index, &mut done, &mut out);
            }
        }
        done.end();
        out.finish()
    }

    fn lower_step(&mut self, stage: &Stage, pass: &Pass, index: usize, done: &mut Done, out: &mut Lowering) {
        let (plan, at) = (&stage.model.plan, StepAt { steps: pass.steps, index });
        let step = at.step();
        match *step.op {
            Op::Norm { .. } if self.unscaled.has(step.id) => {
                let is_made_anew = |later: &Step| plan.operands(later.op).writes.contains(Buf::H);
                let leaves = pass.borders.leaves.contains(Buf::H) && !at.behind().iter().any(is_made_anew);
                let is_done = done.normed.take().is_some();
                self.norm_unscaled(out, step.id, NormLeft { is_done, leaves });
            }
            Op::Embed { .. }
            | Op::Norm { .. }
            | Op::Multiply { .. }
            | Op::Add { .. }
            | Op::Take { .. }
            | Op::Scale { .. }
            | Op::Weigh { .. } => self.on_rows[&step.id].iter().for_each(|made| made.lower(out)),
            Op::PerHead { .. } => self.multiply_heads(out, &self.per_head[&step.id], step.coarse),
            Op::MatMul { weight, .. } => {
                let how = How { coarse: step.coarse, lows: done.take_lows(index) };
                let store = at.behind_products().and_then(|store| self.attention_of_store(stage, store));
                let matmul = &self.matmuls[&weight];
                done.covered = matmul.covers - 1;
                if let Some(norming) = self.norming_product(out, weight, at).filter(|_| !how.lows) {
                    self.add_and_norm(out, matmul, &norming, step.coarse);
                    done.normed = Some(norming.norm);
                } else if let Some(storing) = store.and_then(|key| self.storing_product(out, key, weight)) {
                    self.multiply_and_store(out, matmul, storing, step.coarse);
                } else {
                    self.matmul(out, matmul, how);
                }
            }
            Op::Gate { gate, up, .. } => {
                let how = How { coarse: step.coarse, lows: done.take_lows(index) };
                self.matmul(out, &self.matmuls[&gate.weight], how);
                if let Some(up) = up.and_then(|up| self.matmuls.get(&up.weight)) {
                    self.matmul(out, up, How { lows: false, ..how });
                }
            }
            Op::Store(_) => {
                let key = self.attention_of_store(stage, at).expect("it is a store");
                self.store(out, &self.attentions[&key]);
            }
            Op::Attend(id) => {
                let view = pass.rows.view_of_slot(step.slot, plan.attention(id).window);
                let attention = &self.attentions[&AttentionKey { slot: step.slot, id }];
                self.attend(out, attention, &pass.rows.views[view]);
            }
            Op::Choose(id) => {
                let taking = Taking::new(plan, id, step);
                self.prepare_choice(stage, taking);
                self.choose_experts(out, taking);
            }
            Op::ExpertsGate(id) => {
                let taking = Taking::new(plan, id, step);
                self.prepare_experts(stage, taking);
                self.gate_experts(out, taking);
            }
            Op::ExpertsDown(id) => self.finish_experts(out, Taking::new(plan, id, step)),
            Op::ExpertsSum(id) => self.sum_experts(out, Taking::new(plan, id, step)),
            Op::Convolve(id) => self.convolve(out, id, pass.rows.states.len()),
            Op::Scan(id) => self.scan(out, id, pass.rows.states.len()),
            Op::Head { .. } => {}
        }
    }

    /// The commands of the head, for some of a pass's outputs.
    pub fn lower_head(&self, gpu: &Gpu, HeadPiece { head, piece, rows }: HeadPiece) -> Vec<Command> {
        let Op::Head { weight, .. } = *head.op else { unreachable!("only the head makes logits") };
        let mut out = Lowering::new(gpu, rows);
        self.on_rows[&head.id][piece].lower(&mut out);
        self.matmul(&mut out, &self.matmuls[&weight], How { coarse: false, lows: false });
        self.cap.iter().for_each(|cap| cap.lower(&mut out));
        out.finish()
    }

    /// The commands that make states again.
    pub fn lower_replay(&self, gpu: &Gpu, replay: &Replay) -> Vec<Command> {
        let mut out = Lowering::new(gpu, replay.rows);
        self.replay(&mut out, replay);
        out.finish()
    }
}
