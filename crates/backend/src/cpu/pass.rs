//! One thread's part of each phase of a pass.

use std::ops::Range;

use super::{
    adapt::ThinRows,
    buffers::PassBuffers,
    kv_store::KvStore,
    lists::Lists,
    matmul::{self, Acts, Mode, OutMatrix, QuantRows},
    offload::OffloadDevice,
    ops::{Activate, LayerNorm, RmsNorm, Turn},
    rows::{SharedOut, SharedRows},
    schedule::{PassShape, Phase, Work},
    simd::Isa,
    state_store::StateStore,
    team::{Member, WorkCounter},
    weights::Weights,
};
use crate::{
    Model,
    backend::Rows,
    lora::Loras,
    plan::{Buf, BufSet, EmbedBy, Linear, Norm, NormKind, Op, WeightId},
    shortlist::{SHELF, Shortlist},
};

/// Weight rows are dealt to threads in pieces of this many: whole groups of int8, so that a thread can
/// quantize what it has computed.
pub const ROW_GRAIN: usize = 32;
const _: () = assert!(ROW_GRAIN.is_multiple_of(SHELF), "of a shortlist whole shelves are dealt");

/// With more rows than this every thread has one part of a matrix: what fills the caches of the rows then serves longer.
const MOST_ROWS_DEALT_LATE: usize = 16;

pub struct Pass<'a> {
    pub model: &'a Model,
    pub weights: &'a Weights,
    pub isa: Isa,
    pub keys: &'a KvStore,
    pub values: &'a KvStore,
    pub states: &'a StateStore,
    pub buffers: PassBuffers<'a>,
    pub vectors: &'a [Vec<f32>],
    pub rows: &'a Rows<'a>,
    pub shape: PassShape,
    /// The rotations of every row, by table, made once for all layers.
    pub turns: &'a [Vec<Turn>],
    /// What attention has to do.
    pub lists: &'a Lists,
    pub logits: SharedOut<'a>,
    /// By phase, all zero at first.
    pub counters: &'a [WorkCounter],
    /// Makes products of many rows, where another device does.
    pub offload: Option<&'a OffloadDevice>,
    pub loras: &'a Loras,
    /// What adapters' first matrices make of rows.
    pub thin_rows: &'a ThinRows,
}

// Every SAFETY comment below names the share of its thread and rests on the two rules of `schedule`: barriers between
// phases, shares within one. "Settled" is a resource that nobody writes in this phase.
impl Pass<'_> {
    /// `index` is the phase's number in the pass.
    pub fn run(&self, index: usize, phase: &Phase, member: &Member) {
        match phase.work {
            Work::Op(op) => self.op(&op, index, phase, member),
            Work::StoreAttend(id) => {
                let spec = self.model.plan.attention(id);
                for kv_head in member.share(spec.n_kv_head, 1) {
                    for row in 0..self.n_rows(phase) {
                        self.store(spec, row, kv_head, phase, member);
                    }
                }
                self.attend(spec, phase, member);
            }
            Work::Join(id) => self.join(self.model.plan.attention(id), phase, member),
            Work::Quantize(buf) => {
                let (src, dst) = (self.buffers.f32s(buf), self.buffers.int8s(buf, phase.narrow));
                for row in member.share(self.n_rows(phase), 1) {
                    // SAFETY: the f32 rows are settled, the int8 row is this thread's share.
                    unsafe { dst.quantize(self.isa, row, 0, src.row(row)) };
                }
            }
            Work::Thin(of, src) => self.make_thin(of, src, phase, member),
            Work::Narrow(bufs) => self.narrow(bufs, member),
            Work::Logits { weight, bias, scale, cap } => {
                let n_vocab = self.model.weight(weight).rows;
                let list = self.rows.shortlist;
                let offload = list.is_none() && self.offloaded_logits(weight, index, phase, member);
                for places in self.deal(index, list.map_or(n_vocab, Shortlist::places), phase, member) {
                    let listed = list.map(|list| list.ranges(places.clone()));
                    let whole = list.is_none().then_some(places);
                    for tokens in listed.into_iter().flatten().chain(whole) {
                        self.logits((weight, offload), (bias, scale, cap), tokens, phase, member);
                    }
                }
            }
        }
    }

    /// The logits of some tokens, which were dealt to this thread; their products have maybe been made elsewhere.
    fn logits(
        &self,
        (weight, offload): (WeightId, bool),
        (bias, scale, cap): (Option<WeightId>, f32, Option<f32>),
        tokens: Range<usize>,
        phase: &Phase,
        member: &Member,
    ) {
        let n_vocab = self.model.weight(weight).rows;
        let outputs = self.shape.asked.outputs;
        // SAFETY: `run_segment` has checked the length; each thread writes the columns dealt to it.
        let out = unsafe { OutMatrix::from_raw(self.logits.ptr, outputs, n_vocab, Mode::Store) };
        if !offload {
            self.matmul(weight, Buf::H, &out, tokens.clone(), phase, member);
        }
        self.adapt(weight, (self.logits.ptr, n_vocab), tokens.clone(), phase);
        let changed = bias.is_some() || scale != 1.0 || cap.is_some();
        for row in (0..outputs).filter(|_| changed) {
            let first = row * n_vocab + tokens.start;
            // SAFETY: these columns were dealt to this thread; its product has been written.
            let logits = unsafe { std::slice::from_raw_parts_mut(self.logits.ptr.add(first), tokens.len()) };
            if let Some(bias) = bias {
                add(logits, &self.vector(bias)[tokens.clone()]);
            }
            for logit in logits {
                *logit *= scale;
                if let Some(cap) = cap {
                    *logit = cap * (*logit / cap).tanh();
                }
            }
        }
    }

    /// Moves the rows whose logits are wanted to where nobody needs any: outputs ascend.
    fn narrow(&self, bufs: BufSet, member: &Member) {
        for buf in bufs.iter() {
            let all = self.buffers.f32s(buf);
            let columns = member.share(all.width(), ROW_GRAIN);
            for (to, &from) in self.rows.outputs.iter().enumerate().filter(|&(to, &from)| to != from) {
                // SAFETY: these columns of all rows are this thread's share; `to` and `from` differ.
                unsafe {
                    all.row_mut(to, columns.clone()).copy_from_slice(all.columns(from, columns.clone()));
                };
            }
        }
    }

    pub fn vector(&self, id: WeightId) -> &[f32] {
        &self.vectors[id.0 as usize]
    }

    /// The number in the pass of a phase's row.
    pub fn row_in_pass(&self, row: usize, phase: &Phase) -> usize {
        if phase.narrow { self.rows.outputs[row] } else { row }
    }

    pub fn n_rows(&self, phase: &Phase) -> usize {
        if phase.narrow { self.shape.asked.outputs } else { self.shape.asked.rows }
    }

    /// This thread's parts of the rows of a phase's matrices.
    pub fn deal(
        &self,
        index: usize,
        rows: usize,
        phase: &Phase,
        member: &Member,
    ) -> impl Iterator<Item = Range<usize>> {
        let few = self.n_rows(phase) <= MOST_ROWS_DEALT_LATE;
        member.deal(few.then_some(&self.counters[index]), rows, ROW_GRAIN)
    }

    fn op(&self, op: &Op, index: usize, phase: &Phase, member: &Member) {
        let rows = self.n_rows(phase);
        match *op {
            Op::Embed { table, by, dst, scale, add } => {
                for row in member.share(rows, 1) {
                    self.embed(table, by, scale, add, (row, dst), member);
                }
            }
            Op::Norm { norm, dst: Buf::H, .. } if self.shape.own_norms => self.own_norms(&norm, rows, member),
            Op::Norm { norm, group, src, dst, add } => {
                for row in member.share(rows, 1) {
                    self.norm_row(&norm, group, (src, dst, add), row, member);
                    if phase.quantize {
                        // SAFETY: the f32 row is this thread's share, and so is the int8 row.
                        unsafe {
                            let x = self.buffers.f32s(dst).row(row);
                            self.buffers.int8s(dst, phase.narrow).quantize(self.isa, row, 0, x);
                        }
                    }
                }
            }
            Op::MatMul { weight, bias, src, dst, add } => {
                let mode = if add { Mode::Add } else { Mode::Store };
                let buf = self.buffers.f32s(dst);
                let out = self.out(buf, mode, phase);
                let offload = self.offloaded_product((weight, add), (src, buf), index, phase, member);
                for columns in self.deal(index, buf.width(), phase, member) {
                    match &offload {
                        Some(sums) => sums.put(buf, columns.clone(), rows),
                        None => self.matmul(weight, src, &out, columns.clone(), phase, member),
                    }
                    self.adapt(weight, (buf.as_ptr(), buf.width()), columns.clone(), phase);
                    self.add_bias(bias, buf, columns, rows);
                }
                if offload.is_some_and(|sums| sums.are_apart()) {
                    // The next product may take their room.
                    member.sync();
                }
            }
            Op::Gate { gate, up, activation, src, dst } => {
                let gates = self.buffers.f32s(dst);
                let offload = self.offloaded_gate(gate, up, (src, dst), index, phase, member);
                for columns in self.deal(index, gates.width(), phase, member) {
                    let product = |Linear { weight, bias }: Linear, buf: &SharedRows| {
                        let out = self.out(buf, Mode::Store, phase);
                        if !offload {
                            self.matmul(weight, src, &out, columns.clone(), phase, member);
                        }
                        self.adapt(weight, (buf.as_ptr(), buf.width()), columns.clone(), phase);
                        self.add_bias(bias, buf, columns.clone(), rows);
                    };
                    product(gate, gates);
                    if let Some(up) = up {
                        product(up, self.buffers.up(dst));
                    }
                    for row in 0..rows {
                        // SAFETY: these columns of both buffers were dealt to this thread; its products have been
                        // written. Pieces are dealt in whole blocks of int8, so these columns are this thread's too.
                        unsafe {
                            let gate = gates.row_mut(row, columns.clone());
                            let up = up.map(|_| self.buffers.up(dst).columns(row, columns.clone()));
                            Activate { activation, gate: &mut *gate, up }.on(self.isa);
                            if phase.quantize {
                                let int8s = self.buffers.int8s(dst, phase.narrow);
                                int8s.quantize(self.isa, row, columns.start, gate);
                            }
                        };
                    }
                }
            }
            Op::Multiply { dst, f, by, g, column } => {
                let to = self.buffers.f32s(dst);
                for row in member.share(rows, 1) {
                    // SAFETY: the row of `dst` is this thread's share, `by` is settled.
                    let (to, by) = unsafe {
                        let by = self.buffers.f32s(by).columns(row, column..column + to.width());
                        (to.row_mut(row, 0..to.width()), by)
                    };
                    if let Some(activation) = f {
                        Activate { activation, gate: &mut *to, up: None }.on(self.isa);
                    }
                    let Some(activation) = g else {
                        to.iter_mut().zip(by).for_each(|(to, by)| *to *= by);
                        continue;
                    };
                    // SAFETY: the only reference to what this thread has for itself, until the row is done.
                    let factors = &mut unsafe { self.buffers.own(member) }.normed[..to.len()];
                    factors.copy_from_slice(by);
                    Activate { activation, gate: &mut *factors, up: None }.on(self.isa);
                    to.iter_mut().zip(factors).for_each(|(to, by)| *to *= *by);
                }
            }
            Op::Add { src, dst, scale, gate } => {
                let (from, to) = (self.buffers.f32s(src), self.buffers.f32s(dst));
                for row in member.share(rows, 1) {
                    // SAFETY: the row of `dst` is this thread's share, the others are settled.
                    let (from, to) = unsafe { (from.row(row), to.row_mut(row, 0..to.width())) };
                    // SAFETY: as above.
                    let gate = gate.map(|gate| unsafe { self.buffers.f32s(gate).row(row) }[0]);
                    let scale = scale * gate.map_or(1.0, |x| 1.0 / (1.0 + (-x).exp()));
                    to.iter_mut().zip(from).for_each(|(to, from)| *to += from * scale);
                }
            }
            Op::Take { src, from, group, dst, to } => {
                let (src, dst) = (self.buffers.f32s(src), self.buffers.f32s(dst));
                for row in member.share(rows, 1) {
                    for part in 0..src.width() / from.every {
                        // SAFETY: the row of `dst` is this thread's share, that of `src` is settled.
                        let (taken, out) = unsafe {
                            (src.columns(row, from.of(part, group)), dst.row_mut(row, to.of(part, group)))
                        };
                        out.copy_from_slice(taken);
                    }
                }
            }
            Op::PerHead { first, heads, src, from, dst, to } => {
                self.per_head(first, heads, (src, from), (dst, to), phase, member);
            }
            Op::Scale { buf, by } => {
                let buf = self.buffers.f32s(buf);
                for row in member.share(rows, 1) {
                    // SAFETY: the row is this thread's share.
                    unsafe { buf.row_mut(row, 0..buf.width()) }.iter_mut().for_each(|x| *x *= by);
                }
            }
            Op::Weigh { buf, adapter } => {
                let buf = self.buffers.f32s(buf);
                for row in member.share(rows, 1) {
                    // SAFETY: the row is this thread's share.
                    let x = unsafe { buf.row_mut(row, 0..buf.width()) };
                    match self.scale_of(row, adapter, phase) {
                        0.0 => x.fill(0.0),
                        scale => x.iter_mut().for_each(|x| *x *= scale),
                    }
                }
            }
            Op::Store(id) => {
                let spec = self.model.plan.attention(id);
                for item in member.share(rows * spec.n_kv_head, 1) {
                    self.store(spec, item / spec.n_kv_head, item % spec.n_kv_head, phase, member);
                }
            }
            Op::Attend(id) => self.attend(self.model.plan.attention(id), phase, member),
            Op::Convolve(id) => self.convolve(id, member),
            Op::Scan(id) => self.scan(id, member),
            Op::Choose(id) => self.choose(self.model.plan.moe(id), phase, member),
            Op::ExpertsGate(id) => self.experts_gate(self.model.plan.moe(id), index, phase, member),
            Op::ExpertsDown(id) => self.experts_down(self.model.plan.moe(id), index, phase, member),
            Op::ExpertsSum(id) => self.experts_sum(self.model.plan.moe(id), phase, member),
            Op::Head { .. } => unreachable!("the schedule splits it"),
        }
    }

    fn embed(
        &self,
        table: WeightId,
        by: EmbedBy,
        scale: f32,
        add: bool,
        (row, dst): (usize, Buf),
        member: &Member,
    ) {
        let weight = self.model.weight(table);
        let (bytes, row_bytes) = (self.model.weight_bytes(table), weight.row_bytes());
        let entry = match by {
            EmbedBy::Token => self.rows.tokens[row] as usize,
            EmbedBy::Position => self.rows.positions[row] as usize,
            EmbedBy::First => 0,
        };
        // SAFETY: the row is this thread's share; the only reference to what this thread has for itself.
        let (x, own) = unsafe {
            (self.buffers.f32s(dst).row_mut(row, 0..weight.cols), &mut self.buffers.own(member).normed)
        };
        let to = if add { &mut own[..weight.cols] } else { &mut *x };
        crate::quant::dequantize(weight.ty(), &bytes[entry * row_bytes..][..row_bytes], to);
        let times = |to: &mut [f32], by: f32| {
            if by != 1.0 {
                to.iter_mut().for_each(|x| *x *= by);
            }
        };
        times(to, weight.factor);
        if self.shape.asked.adapted && by == EmbedBy::Token && self.model.is_token_table(table) {
            self.adapt_token(row, to);
        }
        times(to, scale);
        if add {
            self::add(x, &own[..weight.cols]);
        }
    }

    /// Adds a bias to columns that this thread has just computed.
    fn add_bias(&self, bias: Option<WeightId>, buf: &SharedRows, columns: Range<usize>, rows: usize) {
        let Some(bias) = bias else { return };
        for row in 0..rows {
            // SAFETY: these columns were dealt to this thread; its product has been written.
            let out = unsafe { buf.row_mut(row, columns.clone()) };
            add(out, &self.vector(bias)[columns.clone()]);
        }
    }

    /// A row, or each group of it by itself.
    fn norm_row(
        &self,
        norm: &Norm,
        group: usize,
        (src, dst, add): (Buf, Buf, bool),
        row: usize,
        member: &Member,
    ) {
        let (src_rows, dst_rows) = (self.buffers.f32s(src), self.buffers.f32s(dst));
        let group = if group == 0 { src_rows.width() } else { group };
        // SAFETY: the only reference to what this thread has for itself, until the row is done.
        let own = &mut unsafe { self.buffers.own(member) }.normed;
        for (g, start) in (0..src_rows.width()).step_by(group).enumerate() {
            // SAFETY: `src` is settled, or it is `dst`, whose row is this thread's share and of which no other
            // reference is kept.
            let x = unsafe { src_rows.columns(row, start..start + group) };
            if src != dst && !add {
                // SAFETY: the row of `dst` is this thread's share.
                self.norm_to(norm, g, x, unsafe { dst_rows.row_mut(row, start..start + group) });
                continue;
            }
            let normed = &mut own[..group];
            self.norm_to(norm, g, x, normed);
            // SAFETY: as above; what was read is not looked at any more.
            let out = unsafe { dst_rows.row_mut(row, start..start + group) };
            if add { self::add(out, normed) } else { out.copy_from_slice(normed) }
        }
    }

    /// The norm of the `g`-th group of a row: weights are as long as a group, or as the row.
    pub fn norm_to(&self, norm: &Norm, g: usize, x: &[f32], out: &mut [f32]) {
        let part = |id| {
            let vector = self.vector(id);
            if vector.len() > x.len() { &vector[g * x.len()..][..x.len()] } else { vector }
        };
        let (weight, bias, eps) = (norm.weight.map(part), norm.bias.map(part), norm.eps);
        match norm.kind {
            NormKind::Rms => RmsNorm { x, weight, bias, eps, out }.on(self.isa),
            NormKind::Layer => LayerNorm { x, weight, bias, eps, out }.on(self.isa),
        }
    }

    /// The rows of `norm(X)` for this thread alone.
    fn own_norms(&self, norm: &Norm, rows: usize, member: &Member) {
        let x = self.buffers.f32s(Buf::X);
        // SAFETY: the only reference to what this thread has for itself, until this returns.
        let own = unsafe { self.buffers.own(member) };
        let width = x.width();
        own.h_f32.resize(own.h_f32.len().max(rows * width), 0.0);
        let quantizes = width.is_multiple_of(matmul::GROUP);
        if quantizes {
            own.h.resize(rows, width);
        }
        for row in 0..rows {
            let normed = &mut own.h_f32[row * width..][..width];
            // SAFETY: X is settled.
            self.norm_to(norm, 0, unsafe { x.row(row) }, normed);
            if quantizes {
                own.h.quantize_row(self.isa, row, normed);
            }
        }
    }

    /// A buffer as what a phase's matrices write.
    fn out<'b>(&self, buf: &'b SharedRows, mode: Mode, phase: &Phase) -> OutMatrix<'b> {
        // SAFETY: the buffer has room for the pass's rows; each thread writes the columns dealt to it.
        unsafe { OutMatrix::from_raw(buf.as_ptr(), self.n_rows(phase), buf.width(), mode) }
    }

    /// Rows of a matrix, times what is in a buffer.
    fn matmul(
        &self,
        id: WeightId,
        src: Buf,
        out: &OutMatrix,
        rows: Range<usize>,
        phase: &Phase,
        member: &Member,
    ) {
        let weight = self.weights.get(self.model, id).coarse(phase.coarse);
        // SAFETY: these columns of the output were dealt to this thread.
        let mut stripe = unsafe { out.stripe(rows) };
        let acts = if weight.wants_quantized() {
            Acts::Quantized(self.int8s(src, phase, member))
        } else {
            Acts::Float(self.floats(src, stripe.columns(), member))
        };
        matmul::matmul(self.isa, &weight, acts, &mut stripe);
    }

    /// The first rows of what a matrix is multiplied with.
    pub fn floats(&self, src: Buf, rows: usize, member: &Member) -> &[f32] {
        if src == Buf::H && self.shape.own_norms {
            let width = self.buffers.f32s(src).width();
            // SAFETY: a product takes no other reference to what this thread has for itself.
            &unsafe { self.buffers.own(member) }.h_f32[..rows * width]
        } else {
            // SAFETY: what a matrix is multiplied with is settled.
            unsafe { self.buffers.f32s(src).first_rows(rows) }
        }
    }

    pub fn int8s(&self, src: Buf, phase: &Phase, member: &Member) -> &QuantRows {
        if src == Buf::H && self.shape.own_norms {
            // SAFETY: a product takes no other reference to what this thread has for itself.
            unsafe { &self.buffers.own(member).h }
        } else {
            // SAFETY: what a matrix is multiplied with is settled.
            unsafe { self.buffers.int8s(src, phase.narrow).read() }
        }
    }
}

pub fn add(to: &mut [f32], from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}
