//! Turns a pass's steps into phases for the team: what is done in one go, where inputs must be quantized first,
//! and before which phases everybody has to wait.
//!
//! # Why threads may share buffers
//!
//! The unsafe code of a pass rests on two rules. Between them no two threads touch the same number at the same time
//! when one of them writes it.
//!
//! 1. *Barriers.* Two phases that touch the same resource, one of them writing, have a barrier between them: `sync` on
//!    the later one or on a phase before it. A resource is a buffer's f32 rows, its int8 rows, the K/V cache, the
//!    logits, or the parts of split lists. What a thread has for itself is none. The schedule keeps this rule.
//! 2. *Shares.* Within a phase each thread writes the rows, columns or K/V heads that `Member::share`, `Member::deal` or
//!    `Items::share` gave it, and no two are given the same. It reads what no other thread writes in this phase. The
//!    code of a phase, in `pass.rs`, keeps this rule.
//!
//! The tests go through the schedules of all architectures with a checker of the first rule that is written without
//! the bits below.

#[cfg(all(test, embedded_model))]
mod tests;

use crate::{
    model::Model,
    plan::{Buf, CacheUse, Op, Operands, Step, Unit, WeightId},
};

/// What one thread can do of a pass without waiting for another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// An operation as it stands in the plan, save `Head`.
    Op(Op),
    /// `RopeStore` and `Attend`, each thread for the K/V heads that are its own.
    RopeAttend { q_norm: Option<WeightId>, k_norm: Option<WeightId>, eps: f32, scale: f32 },
    /// Joins what chunks of a list gave, where each was attended to by itself.
    Join,
    /// int8 blocks of a buffer, for the quantized matrices that read it.
    Quantize(Buf),
    /// From here on, only the rows whose logits are wanted: they move to the front.
    Narrow,
    /// `logits = H · weightᵀ`
    Logits { weight: WeightId },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    pub work: Work,
    pub slot: usize,
    /// Weights by their high bits, where these lie apart.
    pub coarse: bool,
    /// Only the rows whose logits are wanted, packed to the front.
    pub narrow: bool,
    /// The int8 blocks of what it writes as well.
    pub quantize: bool,
    /// All threads must have finished what came before.
    pub sync: bool,
}

/// How a pass is gone through.
#[derive(Clone, Copy, Debug)]
pub struct PassShape {
    pub rows: usize,
    /// Rows whose logits are wanted.
    pub outputs: usize,
    /// Every thread norms and quantizes all rows for itself: for a row or two that costs less than to wait.
    pub own_norms: bool,
    /// Every thread has whole K/V heads to itself.
    pub own_heads: bool,
    /// Chunks of a list are dealt to threads.
    pub split_lists: bool,
    /// Threads can quantize their part of what attention gives, and of the gated product.
    pub quantize_heads: bool,
    pub quantize_gates: bool,
}

/// A set of resources that phases read and write, one bit each: every buffer's f32 rows, its int8 rows, and the rest.
type Resources = u32;

const INT8_SHIFT: u32 = Buf::ALL.len() as u32;
const F32S: Resources = (1 << INT8_SHIFT) - 1;
const CACHE: Resources = 1 << (2 * INT8_SHIFT);
const LOGITS: Resources = CACHE << 1;
const PARTS: Resources = CACHE << 2;

// A bit for each: a buffer more than there is room for, or one out of order, does not compile.
const _: () = {
    assert!(2 * INT8_SHIFT + 3 <= Resources::BITS);
    let mut taken = CACHE | LOGITS | PARTS;
    assert!(taken.count_ones() == 3);
    let mut i = 0;
    while i < Buf::ALL.len() {
        let both = f32s(Buf::ALL[i]) | int8s(Buf::ALL[i]);
        assert!(both.count_ones() == 2 && taken & both == 0 && f32s(Buf::ALL[i]) & F32S != 0);
        taken |= both;
        i += 1;
    }
};

const fn f32s(buf: Buf) -> Resources {
    1 << buf as u32
}

const fn int8s(buf: Buf) -> Resources {
    1 << (buf as u32 + INT8_SHIFT)
}

/// Writes a pass's phases into `phases`.
pub fn schedule(model: &Model, steps: &[Step], shape: &PassShape, phases: &mut Vec<Phase>) {
    phases.clear();
    let last_store = steps.iter().rposition(|step| step.op.operands().cache == CacheUse::Writes);
    let narrow_after = last_store.unwrap_or(0);
    let mut list = List { model, shape, phases, read: 0, written: 0, fresh: 0, narrow: false };
    let mut i = 0;
    // A part of a pass that is given its rows and stores nothing needs the wanted ones only, from the start.
    let given = steps.first().filter(|step| step.unit != Unit::Embed);
    if let (Some(first), None, true) = (given, last_store, shape.outputs < shape.rows) {
        if shape.outputs == 0 {
            return;
        }
        list.push(&[], Work::Narrow, first);
        list.narrow = true;
    }
    while i < steps.len() {
        let narrow = i == narrow_after && shape.outputs < shape.rows && !list.narrow;
        match *steps[i].op {
            Op::RopeStore { q_norm, k_norm, eps } => match steps.get(i + 1).map(|step| step.op) {
                Some(&Op::Attend { scale }) if shape.own_heads && !narrow => {
                    list.push(&steps[i + 1..], Work::RopeAttend { q_norm, k_norm, eps, scale }, &steps[i]);
                    i += 1;
                }
                _ => list.push(&steps[i..], Work::Op(*steps[i].op), &steps[i]),
            },
            Op::Head { norm, eps, weight } => {
                list.push(&steps[i..], Work::Op(Op::Norm { weight: norm, eps }), &steps[i]);
                list.push(&[], Work::Logits { weight }, &steps[i]);
            }
            op @ Op::Attend { .. } => {
                list.push(&steps[i..], Work::Op(op), &steps[i]);
                if shape.split_lists {
                    list.push(&[], Work::Join, &steps[i]);
                }
            }
            op @ (Op::Embed { .. } | Op::Norm { .. } | Op::MatMul { .. } | Op::GateUp { .. }) => {
                list.push(&steps[i..], Work::Op(op), &steps[i]);
            }
        }
        if narrow {
            if shape.outputs == 0 {
                // Nobody asks for what would follow.
                break;
            }
            list.push(&[], Work::Narrow, &steps[i]);
            list.narrow = true;
            list.fresh = 0;
        }
        i += 1;
    }
}

/// The matrices that a phase reads.
pub fn matrices_of(phase: &Phase) -> impl Iterator<Item = WeightId> + use<> {
    work_inputs(&phase.work).map(|(id, _)| id)
}

/// The matrices of a phase's work and what they are multiplied with.
fn work_inputs(work: &Work) -> impl Iterator<Item = (WeightId, Buf)> + use<> {
    let (operands, logits) = match *work {
        Work::Op(op) => (Some(op.operands()), None),
        Work::Logits { weight } => (None, Some((weight, Buf::H))),
        Work::RopeAttend { .. } | Work::Join | Work::Quantize(_) | Work::Narrow => (None, None),
    };
    operands.into_iter().flat_map(|operands| operands.matrices()).chain(logits)
}

/// True for the types whose kernels take int8 rows.
fn quantized(model: &Model, id: WeightId) -> bool {
    model.weight(id).ty().block_len() > 1
}

/// True if every matrix of the steps takes int8 rows.
pub fn all_quantized(model: &Model, steps: &[Step]) -> bool {
    steps.iter().flat_map(|step| step.op.operands().matrices()).all(|(id, _)| quantized(model, id))
}

struct List<'a> {
    model: &'a Model,
    shape: &'a PassShape,
    phases: &'a mut Vec<Phase>,
    /// Since the last barrier.
    read: Resources,
    written: Resources,
    /// Which int8 copies are those of the f32 rows as they are now.
    fresh: Resources,
    narrow: bool,
}

impl List<'_> {
    /// `steps` begin with the last one of this work; those after it tell who reads what it writes.
    fn push(&mut self, steps: &[Step], work: Work, step: &Step) {
        let shape = self.shape;
        for (id, src) in work_inputs(&work) {
            let made_by_each = src == Buf::H && shape.own_norms;
            if quantized(self.model, id) && !made_by_each && self.fresh & int8s(src) == 0 {
                self.phase(Work::Quantize(src), step, f32s(src), int8s(src), false);
                self.fresh |= int8s(src);
            }
        }
        let (reads, writes) = self.touched(&work);
        let quantizes = match work {
            Work::Op(op) => match op {
                Op::Norm { .. } => Some(Buf::H),
                Op::Attend { .. } => shape.quantize_heads.then_some(Buf::A),
                Op::GateUp { .. } => shape.quantize_gates.then_some(Buf::G),
                Op::Embed { .. } | Op::MatMul { .. } | Op::RopeStore { .. } | Op::Head { .. } => None,
            },
            Work::RopeAttend { .. } => shape.quantize_heads.then_some(Buf::A),
            Work::Join | Work::Quantize(_) | Work::Narrow | Work::Logits { .. } => None,
        };
        match quantizes {
            Some(buf) if self.is_wanted(buf, steps) => {
                // Each thread's own copy is nothing that threads share.
                let writes = if buf == Buf::H && shape.own_norms { 0 } else { writes | int8s(buf) };
                self.phase(work, step, reads, writes, true);
                self.fresh |= int8s(buf);
            }
            _ => self.phase(work, step, reads, writes, false),
        }
    }

    /// Whether a quantized matrix reads the buffer as the first of the steps leaves it.
    fn is_wanted(&self, buf: Buf, steps: &[Step]) -> bool {
        // The head's norm is the first half of its step: the matrix in the same step reads what it leaves.
        let after = if let [Step { unit: Unit::Head, .. }] = steps { steps } else { &steps[1..] };
        for step in after {
            let operands = step.op.operands();
            let mut readers = operands.matrices();
            if readers.any(|(id, src)| src == buf && quantized(self.model, id)) {
                return true;
            }
            if operands.overwrites(buf) {
                return false;
            }
        }
        false
    }

    fn touched(&self, work: &Work) -> (Resources, Resources) {
        match *work {
            Work::Op(Op::Attend { .. }) if self.shape.split_lists => (f32s(Buf::Q) | CACHE, PARTS),
            Work::Op(op) => self.of_op(&op.operands()),
            Work::RopeAttend { .. } => {
                let turned = f32s(Buf::Q) | f32s(Buf::K);
                (turned | f32s(Buf::V) | CACHE, turned | CACHE | f32s(Buf::A))
            }
            Work::Join => (PARTS, f32s(Buf::A)),
            Work::Quantize(buf) => (f32s(buf), int8s(buf)),
            Work::Narrow => (f32s(Buf::X) | f32s(Buf::Q), f32s(Buf::X) | f32s(Buf::Q)),
            Work::Logits { weight } => (self.input(weight, Buf::H), LOGITS),
        }
    }

    fn of_op(&self, operands: &Operands) -> (Resources, Resources) {
        let (mut reads, mut writes) = (0, 0);
        for buf in operands.reads.iter().filter(|&buf| operands.matrices().all(|(_, src)| src != buf)) {
            reads |= f32s(buf);
        }
        for (weight, src) in operands.matrices() {
            reads |= self.input(weight, src);
        }
        for buf in operands.writes.iter() {
            writes |= f32s(buf);
        }
        match operands.cache {
            CacheUse::None => {}
            CacheUse::Reads => reads |= CACHE,
            CacheUse::Writes => writes |= CACHE,
        }
        (reads, writes)
    }

    /// The rows that a matrix is multiplied with, in the form that it takes.
    fn input(&self, weight: WeightId, src: Buf) -> Resources {
        match quantized(self.model, weight) {
            true if src == Buf::H && self.shape.own_norms => 0,
            true => int8s(src),
            false => f32s(src),
        }
    }

    fn phase(&mut self, work: Work, step: &Step, reads: Resources, writes: Resources, quantize: bool) {
        let sync = reads & self.written != 0 || writes & (self.read | self.written) != 0;
        if sync {
            (self.read, self.written) = (0, 0);
        }
        self.read |= reads;
        self.written |= writes;
        self.fresh &= !((writes & F32S) << INT8_SHIFT);
        let (slot, coarse, narrow) = (step.slot, step.coarse, self.narrow);
        self.phases.push(Phase { work, slot, coarse, narrow, quantize, sync });
    }
}
