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

mod known;
#[cfg(test)]
mod tests;

pub use known::Schedules;

use std::collections::VecDeque;

use crate::{
    model::Model,
    plan::{AttnId, AttnSpec, Buf, BufSet, CacheUse, ExpertMatrices, Op, Operands, Step, Unit, WeightId},
};

use super::matmul::GROUP;

/// Up to this many rows every thread norms all of them for itself.
const OWN_NORM_ROWS: usize = 2;

/// Up to this many rows, chunks of a long context are dealt to threads that could not have whole K/V heads.
const SPLIT_ROWS: usize = 8;

/// What one thread can do of a pass without waiting for another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// An operation as it stands in the plan, save `Head`.
    Op(Op),
    /// `Store` and `Attend`, each thread for the K/V heads that are its own.
    StoreAttend(AttnId),
    /// Joins what chunks of a list gave, where each was attended to by itself.
    Join(AttnId),
    /// int8 blocks of a buffer, for the quantized matrices that read it.
    Quantize(Buf),
    /// What adapters' first matrices make of a buffer's rows, for products that follow.
    Thin(ThinOf, Buf),
    /// From here on, only the rows whose logits are wanted: those of these buffers move to the front.
    Narrow(BufSet),
    /// `logits = H · weightᵀ`, scaled and capped.
    Logits { weight: WeightId, bias: Option<WeightId>, scale: f32, cap: Option<f32> },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    pub work: Work,
    pub slot: usize,
    /// Weights by their high bits, where these lie apart.
    pub coarse: bool,
    /// The most experts that a row takes, if fewer than the model has it.
    pub experts: Option<usize>,
    /// Only the rows whose logits are wanted, packed to the front.
    pub narrow: bool,
    /// The int8 blocks of what it writes as well.
    pub quantize: bool,
    /// All threads must have finished what came before.
    pub sync: bool,
    /// What adapters have for its products.
    pub thin: Option<ThinOf>,
}

/// The matrices of a phase, of which some have adapters, and the place of what these make of its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThinOf {
    pub weights: [Option<WeightId>; 2],
    pub place: usize,
}

/// Places for products of the same rows, as queries, keys and values are: there is one barrier before all of them.
pub const THIN_PLACES: usize = 4;

/// What a pass is asked for, and with which rows and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub rows: usize,
    /// Rows whose logits are wanted.
    pub outputs: usize,
    /// Threads that take part.
    pub threads: usize,
    /// Some row sees more than a chunk of cells, and there is room for what each chunk gives.
    pub long: bool,
    /// Buffers whose rows others take from here.
    pub leaves: BufSet,
    /// Some row has an adapter.
    pub adapted: bool,
}

impl Asked {
    /// Whether logits are wanted of some rows only.
    pub fn narrows(&self) -> bool {
        self.outputs < self.rows
    }
}

/// How a pass is gone through.
#[derive(Clone, Copy, Debug)]
pub struct PassShape {
    pub asked: Asked,
    /// Every thread norms and quantizes all rows for itself: for a row or two that costs less than to wait.
    pub own_norms: bool,
}

impl PassShape {
    pub fn new(model: &Model, steps: &[Step], asked: Asked) -> Self {
        let own_norms = asked.rows <= OWN_NORM_ROWS
            && !asked.leaves.contains(Buf::H)
            && can_norm_alone(model, steps, asked.narrows());
        PassShape { asked, own_norms }
    }

    /// Every thread has whole K/V heads to itself.
    pub fn own_heads(&self, spec: &AttnSpec) -> bool {
        spec.n_kv_head.is_multiple_of(self.asked.threads)
    }

    /// Chunks of a list are dealt to threads.
    pub fn split_lists(&self, spec: &AttnSpec) -> bool {
        !self.own_heads(spec) && self.asked.rows <= SPLIT_ROWS && self.asked.long
    }

    /// Threads can quantize their part of what attention gives.
    fn quantizes_heads(&self, spec: &AttnSpec) -> bool {
        self.own_heads(spec) && (spec.group() * spec.head_dim).is_multiple_of(GROUP)
    }
}

/// A set of resources that phases read and write, one bit each: every buffer's f32 rows, its int8 rows, and the rest.
type Resources = u128;

const INT8_SHIFT: u32 = Buf::MOST as u32;
const F32S: Resources = (1 << INT8_SHIFT) - 1;
const CACHE: Resources = 1 << (2 * INT8_SHIFT);
const LOGITS: Resources = CACHE << 1;
const PARTS: Resources = CACHE << 2;
const THIN_SHIFT: u32 = 2 * INT8_SHIFT + 3;

// A bit for each, the f32 rows' where a set of buffers has them: more buffers than there is room for do not compile.
const _: () = {
    assert!(THIN_SHIFT + THIN_PLACES as u32 <= Resources::BITS);
    let mut taken = CACHE | LOGITS | PARTS;
    let mut place = 0;
    while place < THIN_PLACES {
        taken |= thin_rows(place);
        place += 1;
    }
    assert!(taken.count_ones() as usize == 3 + THIN_PLACES);
    let mut i = 0;
    while i < Buf::MOST {
        let both = f32s(Buf::new(i)) | int8s(Buf::new(i));
        assert!(both.count_ones() == 2 && taken & both == 0 && f32s(Buf::new(i)) & F32S != 0);
        taken |= both;
        i += 1;
    }
};

const fn f32s(buf: Buf) -> Resources {
    1 << buf.index()
}

const fn int8s(buf: Buf) -> Resources {
    1 << (buf.index() as u32 + INT8_SHIFT)
}

const fn thin_rows(place: usize) -> Resources {
    1 << (THIN_SHIFT + place as u32)
}

fn all_f32s(bufs: BufSet) -> Resources {
    Resources::from(bufs.bits())
}

/// Writes a pass's phases into `phases`. `adapted` says, by weight, what adapters have something for.
pub fn schedule(model: &Model, adapted: &[bool], steps: &[Step], shape: &PassShape, phases: &mut Vec<Phase>) {
    phases.clear();
    let plan = &model.plan;
    let last_store = steps.iter().rposition(|step| plan.operands(step.op).cache.keeps());
    // Embedding finds tokens and positions by a row's number in the pass.
    let is_asked_for = |_: &usize| shape.asked.outputs > 0;
    let last_embed = || steps.iter().rposition(|step| step.unit == Unit::Embed).filter(is_asked_for);
    let narrow_after = last_store.or_else(last_embed).unwrap_or(0);
    let adapted = if shape.asked.adapted { adapted } else { &[] };
    let mut list = List {
        model,
        adapted,
        shape,
        phases,
        read: 0,
        written: 0,
        fresh: 0,
        narrow: false,
        made: VecDeque::new(),
        next_place: 0,
    };
    let mut i = 0;
    // A part of a pass that is given its rows and stores nothing needs the wanted ones only, from the start.
    let given = steps.first().filter(|step| step.unit != Unit::Embed);
    if let (Some(first), None, true) = (given, last_store, shape.asked.narrows()) {
        if shape.asked.outputs == 0 {
            return;
        }
        list.push(&[], Work::Narrow(live(model, steps)), first);
        list.narrow = true;
    }
    while i < steps.len() {
        let narrow = i == narrow_after && shape.asked.narrows() && !list.narrow;
        match *steps[i].op {
            Op::Store(id) => match steps.get(i + 1).map(|step| step.op) {
                Some(&Op::Attend(attend))
                    if attend == id && shape.own_heads(plan.attention(id)) && !narrow =>
                {
                    list.push(&steps[i + 1..], Work::StoreAttend(id), &steps[i]);
                    i += 1;
                }
                _ => list.push(&steps[i..], Work::Op(*steps[i].op), &steps[i]),
            },
            Op::Head { norm, weight, bias, scale, cap } => {
                let norm = Op::Norm { norm, group: 0, src: Buf::X, dst: Buf::H, add: false };
                list.push(&steps[i..], Work::Op(norm), &steps[i]);
                list.push(&[], Work::Logits { weight, bias, scale, cap }, &steps[i]);
            }
            op @ Op::Attend(id) => {
                list.push(&steps[i..], Work::Op(op), &steps[i]);
                if shape.split_lists(plan.attention(id)) {
                    list.push(&[], Work::Join(id), &steps[i]);
                }
            }
            op @ (Op::Embed { .. }
            | Op::Norm { .. }
            | Op::MatMul { .. }
            | Op::Gate { .. }
            | Op::Multiply { .. }
            | Op::Add { .. }
            | Op::Take { .. }
            | Op::PerHead { .. }
            | Op::Scale { .. }
            | Op::Weigh { .. }
            | Op::Convolve(_)
            | Op::Scan(_)
            | Op::Choose(_)
            | Op::ExpertsGate(_)
            | Op::ExpertsDown(_)
            | Op::ExpertsSum(_)) => list.push(&steps[i..], Work::Op(op), &steps[i]),
        }
        if narrow {
            if shape.asked.outputs == 0 {
                // Nobody asks for what would follow.
                break;
            }
            list.push(&[], Work::Narrow(live(model, &steps[i + 1..])), &steps[i]);
            list.narrow = true;
            list.fresh = 0;
        }
        i += 1;
    }
}

/// The buffers that steps read before they write them.
fn live(model: &Model, steps: &[Step]) -> BufSet {
    model.plan.live(steps.iter().map(|step| step.op), BufSet::NONE)
}

/// The matrices that a phase reads in full.
pub fn matrices_of(model: &Model, phase: &Phase) -> impl Iterator<Item = WeightId> + use<> {
    let (operands, logits) = of_work(model, &phase.work);
    operands.into_iter().flat_map(|operands| operands.matrices()).chain(logits).map(|(id, _)| id)
}

/// Those of experts, of which it reads what rows have chosen.
pub fn experts_of(model: &Model, phase: &Phase) -> impl Iterator<Item = ExpertMatrices> + use<> {
    let (operands, _) = of_work(model, &phase.work);
    operands.into_iter().flat_map(|operands| operands.experts())
}

/// What a phase's work multiplies rows with, and the buffer that has these rows; of experts, which are alike, the first.
fn products(model: &Model, work: &Work) -> impl Iterator<Item = (WeightId, Buf)> + use<> {
    let (operands, logits) = of_work(model, work);
    operands.into_iter().flat_map(|operands| operands.products()).chain(logits)
}

fn of_work(model: &Model, work: &Work) -> (Option<Operands>, Option<(WeightId, Buf)>) {
    match *work {
        Work::Op(op) => (Some(model.plan.operands(&op)), None),
        Work::Logits { weight, .. } => (None, Some((weight, Buf::H))),
        Work::StoreAttend(_) | Work::Join(_) | Work::Quantize(_) | Work::Narrow(_) | Work::Thin(..) => {
            (None, None)
        }
    }
}

/// True for the types whose kernels take int8 rows.
fn quantized(model: &Model, id: WeightId) -> bool {
    model.weight(id).ty().block_len() > 1
}

/// Whether a thread can keep the rows of `H` for itself: all that makes them is norms of the stream, all that reads them
/// products, some of them quantized; and none come from elsewhere or are moved in between.
fn can_norm_alone(model: &Model, steps: &[Step], narrows: bool) -> bool {
    let plan = &model.plan;
    let mut any = false;
    let mut last_store = 0;
    for (i, step) in steps.iter().enumerate() {
        let operands = plan.operands(step.op);
        if operands.cache.keeps() {
            last_store = i;
        }
        let makes = operands.writes.contains(Buf::H);
        let norms = match step.op {
            Op::Norm { group: 0, src: Buf::X, dst: Buf::H, add: false, .. } | Op::Head { .. } => true,
            _ => !makes,
        };
        let mut products = operands.products().filter(|&(_, src)| src == Buf::H).peekable();
        if !norms || operands.reads.contains(Buf::H) && products.peek().is_none() {
            return false;
        }
        any |= products.any(|(id, _)| quantized(model, id));
    }
    let finds = |steps: &[Step]| live(model, steps).contains(Buf::H);
    any && !finds(steps) && !(narrows && finds(steps.get(last_store + 1..).unwrap_or(&[])))
}

struct List<'a> {
    model: &'a Model,
    /// By weight; empty where no row has an adapter.
    adapted: &'a [bool],
    shape: &'a PassShape,
    phases: &'a mut Vec<Phase>,
    /// Since the last barrier.
    read: Resources,
    written: Resources,
    /// Which int8 copies are those of the f32 rows as they are now.
    fresh: Resources,
    narrow: bool,
    /// Of steps that are still to come, by how many are left with them, what adapters have made for them.
    made: VecDeque<(usize, ThinOf)>,
    next_place: usize,
}

impl List<'_> {
    /// `steps` begin with the last one of this work; those after it tell who reads what it writes.
    fn push(&mut self, steps: &[Step], work: Work, step: &Step) {
        let shape = self.shape;
        let plan = &self.model.plan;
        for (id, src) in products(self.model, &work) {
            let made_by_each = src == Buf::H && shape.own_norms;
            if quantized(self.model, id) && !made_by_each && self.fresh & int8s(src) == 0 {
                self.phase(Work::Quantize(src), step, f32s(src), int8s(src), false);
                self.fresh |= int8s(src);
            }
        }
        let thin = self.thin(steps, &work, step);
        let (mut reads, writes) = self.touched(&work);
        reads |= thin.map_or(0, |of| thin_rows(of.place));
        if let (Work::Op(Op::Norm { dst: Buf::H, .. }), true) = (work, shape.own_norms) {
            // Each thread's own copy is nothing that threads share.
            return self.phase(work, step, reads, 0, false);
        }
        let heads = |id| {
            let spec = plan.attention(id);
            shape.quantizes_heads(spec).then_some(spec.out)
        };
        let whole_groups = |buf| plan.width(buf).is_multiple_of(GROUP).then_some(buf);
        let quantizes = match work {
            Work::Op(op) => match op {
                Op::Norm { dst, .. } => whole_groups(dst),
                Op::Attend(id) => heads(id),
                Op::Gate { dst, .. } => whole_groups(dst),
                Op::Embed { .. }
                | Op::MatMul { .. }
                | Op::Multiply { .. }
                | Op::Add { .. }
                | Op::Take { .. }
                | Op::PerHead { .. }
                | Op::Scale { .. }
                | Op::Weigh { .. }
                | Op::Store(_)
                | Op::Convolve(_)
                | Op::Scan(_)
                | Op::Choose(_)
                | Op::ExpertsGate(_)
                | Op::ExpertsDown(_)
                | Op::ExpertsSum(_)
                | Op::Head { .. } => None,
            },
            Work::StoreAttend(id) => heads(id),
            Work::Join(_) | Work::Quantize(_) | Work::Thin(..) | Work::Narrow(_) | Work::Logits { .. } => {
                None
            }
        };
        match quantizes {
            Some(buf) if self.is_wanted(buf, steps) => {
                self.phase(work, step, reads, writes | int8s(buf), true);
                self.fresh |= int8s(buf);
            }
            _ => self.phase(work, step, reads, writes, false),
        }
        self.phases.last_mut().expect("pushed above").thin = thin;
    }

    /// What adapters have for the products of a work, made before it; and, in the same go, for the works of the next steps that
    /// read the same rows.
    fn thin(&mut self, steps: &[Step], work: &Work, step: &Step) -> Option<ThinOf> {
        let (weights, src) = self.thin_of(work)?;
        if self.made.front().is_some_and(|(left, _)| *left == steps.len()) {
            return self.made.pop_front().map(|(_, of)| of);
        }
        let first = self.make_thin(weights, src, step);
        let mut before = step.op;
        for (i, later) in steps.iter().enumerate().skip(1).take(THIN_PLACES - 1) {
            let overwrites = self.model.plan.operands(before).writes.contains(src);
            match self.thin_of(&Work::Op(*later.op)).filter(|(_, of)| *of == src && !overwrites) {
                Some((weights, _)) => {
                    let of = self.make_thin(weights, src, step);
                    self.made.push_back((steps.len() - i, of));
                }
                None => break,
            }
            before = later.op;
        }
        Some(first)
    }

    fn make_thin(&mut self, weights: [Option<WeightId>; 2], src: Buf, step: &Step) -> ThinOf {
        let of = ThinOf { weights, place: self.next_place };
        self.next_place = (self.next_place + 1) % THIN_PLACES;
        self.phase(Work::Thin(of, src), step, self.floats(src), thin_rows(of.place), false);
        of
    }

    /// The matrices of a work of which some have adapters, and the rows that they are multiplied with.
    fn thin_of(&self, work: &Work) -> Option<([Option<WeightId>; 2], Buf)> {
        let (weights, src) = match *work {
            Work::Op(Op::MatMul { weight, src, .. }) => ([Some(weight), None], src),
            Work::Op(Op::Gate { gate, up, src, .. }) => ([Some(gate.weight), up.map(|up| up.weight)], src),
            Work::Logits { weight, .. } => ([Some(weight), None], Buf::H),
            _ => return None,
        };
        weights.into_iter().flatten().any(|id| self.is_adapted(id)).then_some((weights, src))
    }

    fn is_adapted(&self, id: WeightId) -> bool {
        self.adapted.get(id.0 as usize) == Some(&true)
    }

    /// The rows of a buffer as floats.
    fn floats(&self, src: Buf) -> Resources {
        if src == Buf::H && self.shape.own_norms { 0 } else { f32s(src) }
    }

    /// Whether a quantized matrix reads the buffer as the first of the steps leaves it.
    fn is_wanted(&self, buf: Buf, steps: &[Step]) -> bool {
        // The head's norm is the first half of its step: the matrix in the same step reads what it leaves.
        let after = if let [Step { unit: Unit::Head, .. }] = steps { steps } else { &steps[1..] };
        for step in after {
            let operands = self.model.plan.operands(step.op);
            if operands.products().any(|(id, src)| src == buf && quantized(self.model, id)) {
                return true;
            }
            if operands.writes.contains(buf) {
                return false;
            }
        }
        false
    }

    fn touched(&self, work: &Work) -> (Resources, Resources) {
        let plan = &self.model.plan;
        let bits = |operands: &Operands| (all_f32s(operands.reads), all_f32s(operands.writes));
        match *work {
            Work::Op(Op::Attend(id)) if self.shape.split_lists(plan.attention(id)) => {
                (f32s(plan.attention(id).q) | CACHE, PARTS)
            }
            Work::Op(op) => self.of_op(&plan.operands(&op)),
            Work::StoreAttend(id) => {
                let (store, attend) = (plan.operands(&Op::Store(id)), plan.operands(&Op::Attend(id)));
                let ((reads, turned), (_, out)) = (bits(&store), bits(&attend));
                (reads | CACHE, turned | out | if store.cache == CacheUse::Writes { CACHE } else { 0 })
            }
            Work::Join(id) => (PARTS, f32s(plan.attention(id).out)),
            Work::Quantize(buf) => (f32s(buf), int8s(buf)),
            Work::Narrow(bufs) => (all_f32s(bufs), all_f32s(bufs)),
            Work::Thin(of, src) => (self.floats(src), thin_rows(of.place)),
            Work::Logits { weight, .. } => (self.input(weight, Buf::H), LOGITS),
        }
    }

    fn of_op(&self, operands: &Operands) -> (Resources, Resources) {
        let (mut inputs, mut multiplied) = (0, 0);
        for (weight, src) in operands.products() {
            inputs |= self.input(weight, src);
            multiplied |= f32s(src);
        }
        for of in operands.experts().filter(|of| of.ids().any(|id| self.is_adapted(id))) {
            inputs |= self.floats(of.src);
        }
        let mut reads = all_f32s(operands.reads) & !multiplied | inputs;
        let mut writes = all_f32s(operands.writes);
        match operands.cache {
            // Each thread has the same channels and heads of states in all phases of a layer.
            CacheUse::None | CacheUse::States => {}
            CacheUse::Reads => reads |= CACHE,
            CacheUse::Writes => writes |= CACHE,
        }
        (reads, writes)
    }

    /// The rows that a matrix is multiplied with, in the form that it takes.
    fn input(&self, weight: WeightId, src: Buf) -> Resources {
        match quantized(self.model, weight) {
            _ if src == Buf::H && self.shape.own_norms => 0,
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
        let (slot, coarse, experts, narrow) = (step.slot, step.coarse, step.experts, self.narrow);
        self.phases.push(Phase { work, slot, coarse, experts, narrow, quantize, sync, thin: None });
    }
}
