//! Turns a pass's steps into phases for the team: what is done in one go, where inputs must be quantized first,
//! and before which phases everybody has to wait.

use crate::{
    model::Model,
    plan::{Buf, Op, Step, WeightId},
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

/// A set of resources that phases read and write, one bit each.
type Resources = u32;

const fn f32s(buf: Buf) -> Resources {
    1 << buf as u32
}

const fn int8s(buf: Buf) -> Resources {
    1 << (buf as u32 + 8)
}

const CACHE: Resources = 1 << 16;
const LOGITS: Resources = 1 << 17;
const PARTS: Resources = 1 << 18;

/// Writes a pass's phases into `phases`.
pub fn schedule(model: &Model, steps: &[Step], shape: &PassShape, phases: &mut Vec<Phase>) {
    phases.clear();
    let last_store = steps.iter().rposition(|step| matches!(step.op, Op::RopeStore { .. }));
    let narrow_after = last_store.unwrap_or(0);
    let mut list = List { model, shape, phases, read: 0, written: 0, fresh: 0, narrow: false };
    let mut i = 0;
    // A part of a pass that is given its rows and stores nothing needs the wanted ones only, from the start.
    let given = steps.first().filter(|step| !matches!(step.op, Op::Embed { .. }));
    if let (Some(first), None, true) = (given, last_store, shape.outputs < shape.rows) {
        if shape.outputs == 0 {
            return;
        }
        list.push(&[], Work::Narrow, first);
        list.narrow = true;
    }
    while i < steps.len() {
        let narrow = i == narrow_after && shape.outputs < shape.rows && !list.narrow;
        let attend = steps.get(i + 1).map(|step| step.op);
        match (*steps[i].op, attend) {
            (Op::RopeStore { q_norm, k_norm, eps }, Some(&Op::Attend { scale }))
                if shape.own_heads && !narrow =>
            {
                list.push(&steps[i + 1..], Work::RopeAttend { q_norm, k_norm, eps, scale }, &steps[i]);
                i += 1;
            }
            (Op::Head { norm, eps, weight }, _) => {
                list.push(&steps[i..], Work::Op(Op::Norm { weight: norm, eps }), &steps[i]);
                list.push(&[], Work::Logits { weight }, &steps[i]);
            }
            (op @ Op::Attend { .. }, _) if shape.split_lists => {
                list.push(&steps[i..], Work::Op(op), &steps[i]);
                list.push(&[], Work::Join, &steps[i]);
            }
            (op, _) => list.push(&steps[i..], Work::Op(op), &steps[i]),
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
    work_inputs(&phase.work).into_iter().flatten().map(|(id, _)| id)
}

/// The matrices of a phase's work and what they are multiplied with.
fn work_inputs(work: &Work) -> [Option<(WeightId, Buf)>; 2] {
    match *work {
        Work::Op(op) => inputs(&op),
        Work::Logits { weight } => [Some((weight, Buf::H)), None],
        _ => [None, None],
    }
}

/// True for the types whose kernels take int8 rows.
fn quantized(model: &Model, id: WeightId) -> bool {
    model.weight(id).ty().block_len() > 1
}

/// True if every matrix of the steps takes int8 rows.
pub fn all_quantized(model: &Model, steps: &[Step]) -> bool {
    steps.iter().flat_map(|step| inputs(step.op)).flatten().all(|(id, _)| quantized(model, id))
}

/// The matrices of an operation and what they are multiplied with.
fn inputs(op: &Op) -> [Option<(WeightId, Buf)>; 2] {
    match *op {
        Op::MatMul { weight, src, .. } => [Some((weight, src)), None],
        Op::GateUp { gate, up } => [Some((gate, Buf::H)), Some((up, Buf::H))],
        Op::Head { weight, .. } => [Some((weight, Buf::H)), None],
        Op::Embed { .. } | Op::Norm { .. } | Op::RopeStore { .. } | Op::Attend { .. } => [None, None],
    }
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
        for (id, src) in work_inputs(&work).into_iter().flatten() {
            let made_by_each = src == Buf::H && shape.own_norms;
            if quantized(self.model, id) && !made_by_each && self.fresh & int8s(src) == 0 {
                self.phase(Work::Quantize(src), step, f32s(src), int8s(src), false);
                self.fresh |= int8s(src);
            }
        }
        let (reads, writes) = self.touched(&work);
        let quantizes = match work {
            Work::Op(Op::Norm { .. }) => Some(Buf::H),
            Work::Op(Op::Attend { .. }) | Work::RopeAttend { .. } if shape.quantize_heads => Some(Buf::A),
            Work::Op(Op::GateUp { .. }) if shape.quantize_gates => Some(Buf::G),
            _ => None,
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
        let after = if let [Step { op: Op::Head { .. }, .. }] = steps { steps } else { &steps[1..] };
        for step in after {
            let mut readers = inputs(step.op).into_iter().flatten();
            if readers.any(|(id, src)| src == buf && quantized(self.model, id)) {
                return true;
            }
            let overwritten = match step.op {
                Op::Norm { .. } => buf == Buf::H,
                Op::Attend { .. } => buf == Buf::A,
                Op::GateUp { .. } => buf == Buf::G,
                _ => false,
            };
            if overwritten {
                return false;
            }
        }
        false
    }

    fn touched(&self, work: &Work) -> (Resources, Resources) {
        let input = |weight, src| match quantized(self.model, weight) {
            true if src == Buf::H && self.shape.own_norms => 0,
            true => int8s(src),
            false => f32s(src),
        };
        let (heads, turned) =
            (f32s(Buf::Q) | f32s(Buf::K) | f32s(Buf::V), f32s(Buf::Q) | f32s(Buf::K) | CACHE);
        match *work {
            Work::Op(op) => match op {
                Op::Embed { .. } => (0, f32s(Buf::X)),
                Op::Norm { .. } => (f32s(Buf::X), f32s(Buf::H)),
                // The residual is added in place by the thread that owns those columns.
                Op::MatMul { weight, src, dst, .. } => (input(weight, src), f32s(dst)),
                Op::RopeStore { .. } => (heads, turned),
                Op::Attend { .. } if self.shape.split_lists => (f32s(Buf::Q) | CACHE, PARTS),
                Op::Attend { .. } => (f32s(Buf::Q) | CACHE, f32s(Buf::A)),
                Op::GateUp { gate, up } => (input(gate, Buf::H) | input(up, Buf::H), f32s(Buf::G)),
                Op::Head { .. } => unreachable!("split into norm and logits"),
            },
            Work::RopeAttend { .. } => (heads | CACHE, turned | f32s(Buf::A)),
            Work::Join => (PARTS, f32s(Buf::A)),
            Work::Quantize(buf) => (f32s(buf), int8s(buf)),
            Work::Narrow => (f32s(Buf::X) | f32s(Buf::Q), f32s(Buf::X) | f32s(Buf::Q)),
            Work::Logits { weight } => (input(weight, Buf::H), LOGITS),
        }
    }

    fn phase(&mut self, work: Work, step: &Step, reads: Resources, writes: Resources, quantize: bool) {
        let sync = reads & self.written != 0 || writes & (self.read | self.written) != 0;
        if sync {
            (self.read, self.written) = (0, 0);
        }
        self.read |= reads;
        self.written |= writes;
        // A buffer's int8 bit lies 8 above its f32 bit.
        self.fresh &= !((writes & 0xff) << 8);
        let (slot, coarse, narrow) = (step.slot, step.coarse, self.narrow);
        self.phases.push(Phase { work, slot, coarse, narrow, quantize, sync });
    }
}
