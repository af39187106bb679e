//! One thread's part of each phase of a pass.

use std::{ops::Range, sync::atomic::AtomicUsize};

use super::{
    attention::{
        Attend, Join, Parts, To,
        deal::{Item, Items},
    },
    buffers::Lent,
    kv_store::KvStore,
    matmul::{self, Acts, Mode, OutMatrix, QuantRows},
    ops::{RmsNorm, Rotate, SiluMul, StoreRow, Turn},
    rows::{SharedOut, SharedRows},
    schedule::{PassShape, Phase, Work},
    simd::Isa,
    team::Member,
    weights::Weights,
};
use crate::{
    Model,
    backend::Rows,
    plan::{Buf, Op, WeightId},
};

/// Weight rows are dealt to threads in pieces of this many: whole groups of int8, so that a thread can
/// quantize what it has computed.
const ROW_GRAIN: usize = 32;

/// With more rows than this every thread has one part of a matrix: what fills the caches of the rows then serves longer.
const MOST_ROWS_DEALT_LATE: usize = 16;

pub struct Pass<'a> {
    pub model: &'a Model,
    pub weights: &'a Weights,
    pub isa: Isa,
    pub keys: &'a KvStore,
    pub values: &'a KvStore,
    pub buffers: Lent<'a>,
    pub vectors: &'a [Vec<f32>],
    pub rows: &'a Rows<'a>,
    pub shape: PassShape,
    /// The rotation of every row, made once for all layers.
    pub turns: &'a [Turn],
    /// By view, and for the rows whose logits are wanted.
    pub attention: &'a [Items],
    pub narrow_attention: &'a Items,
    pub logits: SharedOut<'a>,
    /// By phase, all zero at first.
    pub counters: &'a [WorkCounter],
}

/// How much is gone of what a phase deals to whoever comes: a counter alone in its cache line.
#[derive(Default)]
#[repr(align(64))]
pub struct WorkCounter(AtomicUsize);

impl WorkCounter {
    pub fn reset(&mut self) {
        *self.0.get_mut() = 0;
    }
}

/// What turns and norms queries and keys.
#[derive(Clone, Copy)]
struct HeadNorms {
    q: Option<WeightId>,
    k: Option<WeightId>,
    eps: f32,
}

// Every SAFETY comment below names the share of its thread and rests on the two rules of `schedule`: barriers between
// phases, shares within one. "Settled" is a resource that nobody writes in this phase.
impl Pass<'_> {
    /// `index` is the phase's number in the pass.
    pub fn run(&self, index: usize, phase: &Phase, member: &Member) {
        match phase.work {
            Work::Op(op) => self.op(&op, index, phase, member),
            Work::RopeAttend { q_norm, k_norm, eps, scale } => {
                let norms = HeadNorms { q: q_norm, k: k_norm, eps };
                for kv_head in member.share(self.model.plan.dims.n_kv_head, 1) {
                    for row in 0..self.shape.rows {
                        self.rope_store(row, kv_head, phase.slot, norms, member);
                    }
                }
                self.attend(scale, phase, member);
            }
            Work::Join => self.join(phase, member),
            Work::Quantize(buf) => {
                let (src, dst) = (self.buffers.f32s(buf), self.buffers.int8s(buf, phase.narrow));
                for row in member.share(self.n_rows(phase), 1) {
                    // SAFETY: the f32 rows are settled, the int8 row is this thread's share.
                    unsafe { dst.quantize(self.isa, row, 0, src.row(row)) };
                }
            }
            Work::Narrow => {
                for buf in [Buf::X, Buf::Q] {
                    let all = self.buffers.f32s(buf);
                    let columns = member.share(all.width(), ROW_GRAIN);
                    // To rows that nobody needs any more: outputs ascend.
                    for (to, &from) in self.rows.outputs.iter().enumerate().filter(|&(to, &from)| to != from)
                    {
                        // SAFETY: these columns of all rows are this thread's share; `to` and `from` differ.
                        unsafe {
                            all.row_mut(to, columns.clone())
                                .copy_from_slice(all.columns(from, columns.clone()))
                        };
                    }
                }
            }
            Work::Logits { weight } => {
                let n_vocab = self.model.weight(weight).rows;
                // SAFETY: `run_segment` has checked the length; each thread writes the columns dealt to it.
                let out =
                    unsafe { OutMatrix::from_raw(self.logits.ptr, self.shape.outputs, n_vocab, Mode::Store) };
                for rows in self.deal(index, n_vocab, phase, member) {
                    self.matmul(weight, Buf::H, &out, rows, phase, member);
                }
            }
        }
    }

    fn n_rows(&self, phase: &Phase) -> usize {
        if phase.narrow { self.shape.outputs } else { self.shape.rows }
    }

    /// This thread's parts of the rows of a phase's matrices.
    fn deal(
        &self,
        index: usize,
        rows: usize,
        phase: &Phase,
        member: &Member,
    ) -> impl Iterator<Item = Range<usize>> {
        let few = self.n_rows(phase) <= MOST_ROWS_DEALT_LATE;
        member.deal(few.then_some(&self.counters[index].0), rows, ROW_GRAIN)
    }

    fn op(&self, op: &Op, index: usize, phase: &Phase, member: &Member) {
        let rows = self.n_rows(phase);
        match *op {
            Op::Embed { table } => {
                let weight = self.model.weight(table);
                let (bytes, row_bytes) = (self.model.weight_bytes(table), weight.row_bytes());
                for row in member.share(rows, 1) {
                    let token = self.rows.tokens[row] as usize;
                    // SAFETY: the row is this thread's share.
                    let x = unsafe { self.buffers.f32s(Buf::X).row_mut(row, 0..weight.cols) };
                    crate::quant::dequantize(weight.ty(), &bytes[token * row_bytes..][..row_bytes], x);
                }
            }
            Op::Norm { weight, eps } if phase.quantize && self.shape.own_norms => {
                self.own_norms(weight, eps, rows, member);
            }
            Op::Norm { weight, eps } => {
                let (x, h) = (self.buffers.f32s(Buf::X), self.buffers.f32s(Buf::H));
                for row in member.share(rows, 1) {
                    // SAFETY: X is settled, the row of H is this thread's share.
                    let (x, out) = unsafe { (x.row(row), h.row_mut(row, 0..h.width())) };
                    self.norm(x, weight, eps, out);
                    if phase.quantize {
                        // SAFETY: the int8 row is this thread's share too.
                        unsafe { self.buffers.int8s(Buf::H, phase.narrow).quantize(self.isa, row, 0, out) };
                    }
                }
            }
            Op::MatMul { weight, bias, src, dst, add } => {
                let mode = if add { Mode::Add } else { Mode::Store };
                let buf = self.buffers.f32s(dst);
                let out = self.out(buf, mode, phase);
                let bias = bias.map(|bias| &self.vectors[bias.0 as usize]);
                for columns in self.deal(index, buf.width(), phase, member) {
                    self.matmul(weight, src, &out, columns.clone(), phase, member);
                    let Some(bias) = bias else { continue };
                    for row in 0..rows {
                        // SAFETY: these columns were dealt to this thread; its product has been written.
                        let out = unsafe { buf.row_mut(row, columns.clone()) };
                        out.iter_mut().zip(&bias[columns.clone()]).for_each(|(out, b)| *out += b);
                    }
                }
            }
            Op::GateUp { gate, up } => {
                for columns in self.deal(index, self.buffers.up.width(), phase, member) {
                    self.gate_up(gate, up, columns, phase, member);
                }
            }
            Op::RopeStore { q_norm, k_norm, eps } => {
                let kv_heads = self.model.plan.dims.n_kv_head;
                let norms = HeadNorms { q: q_norm, k: k_norm, eps };
                for item in member.share(rows * kv_heads, 1) {
                    self.rope_store(item / kv_heads, item % kv_heads, phase.slot, norms, member);
                }
            }
            Op::Attend { scale } => self.attend(scale, phase, member),
            Op::Head { .. } => unreachable!("the schedule splits it"),
        }
    }

    fn norm(&self, x: &[f32], weight: WeightId, eps: f32, out: &mut [f32]) {
        self.isa.dispatch(RmsNorm { x, weight: &self.vectors[weight.0 as usize], eps, out });
    }

    /// int8 rows of `norm(X)` for this thread alone.
    fn own_norms(&self, weight: WeightId, eps: f32, rows: usize, member: &Member) {
        let x = self.buffers.f32s(Buf::X);
        // SAFETY: the only reference to what this thread has for itself, until this returns.
        let own = unsafe { self.buffers.own(member) };
        own.h.resize(rows, x.width());
        for row in 0..rows {
            let normed = &mut own.normed[..x.width()];
            // SAFETY: X is settled.
            let x = unsafe { x.row(row) };
            self.norm(x, weight, eps, normed);
            own.h.quantize_row(self.isa, row, normed);
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
            // SAFETY: what a matrix is multiplied with is settled.
            Acts::Float(unsafe { self.buffers.f32s(src).first_rows(stripe.columns()) })
        };
        matmul::matmul(self.isa, &weight, acts, &mut stripe);
    }

    fn int8s(&self, src: Buf, phase: &Phase, member: &Member) -> &QuantRows {
        if src == Buf::H && self.shape.own_norms {
            // SAFETY: a product takes no other reference to what this thread has for itself.
            unsafe { &self.buffers.own(member).h }
        } else {
            // SAFETY: what a matrix is multiplied with is settled.
            unsafe { self.buffers.int8s(src, phase.narrow).read() }
        }
    }

    fn gate_up(&self, gate: WeightId, up: WeightId, columns: Range<usize>, phase: &Phase, member: &Member) {
        let (gates, ups) = (self.buffers.f32s(Buf::G), self.buffers.up);
        for (id, buf) in [(gate, gates), (up, ups)] {
            self.matmul(id, Buf::H, &self.out(buf, Mode::Store, phase), columns.clone(), phase, member);
        }
        for row in 0..self.n_rows(phase) {
            // SAFETY: these columns of both buffers were dealt to this thread; its products have been written.
            let (gate, up) =
                unsafe { (gates.row_mut(row, columns.clone()), ups.row_mut(row, columns.clone())) };
            self.isa.dispatch(SiluMul { gate: &mut *gate, up });
            if phase.quantize {
                // SAFETY: pieces are dealt in whole blocks of int8, so these columns are this thread's too.
                unsafe {
                    self.buffers.int8s(Buf::G, phase.narrow).quantize(self.isa, row, columns.start, gate)
                };
            }
        }
    }

    /// Norms and turns one row's key of a head and the queries that go with it, and puts key and value into the
    /// cache.
    fn rope_store(&self, row: usize, kv_head: usize, slot: usize, norms: HeadNorms, member: &Member) {
        let head_dim = self.model.plan.dims.head_dim;
        // SAFETY: this K/V head of the row, and the queries that go with it, are this thread's share. The columns taken
        // below are of different buffers.
        let heads = |buf, columns| unsafe { self.buffers.f32s(buf).row_mut(row, columns) };
        let columns = kv_head * head_dim..(kv_head + 1) * head_dim;
        let (k, v) = (heads(Buf::K, columns.clone()), heads(Buf::V, columns));
        let q = heads(Buf::Q, self.query_columns(kv_head));
        for (heads, norm) in [(q, norms.q), (&mut *k, norms.k)] {
            for head in heads.chunks_exact_mut(head_dim) {
                if let Some(norm) = norm {
                    // SAFETY: the only reference to what this thread has for itself, until the next head.
                    let normed = &mut unsafe { self.buffers.own(member) }.normed[..head_dim];
                    self.norm(head, norm, norms.eps, normed);
                    head.copy_from_slice(normed);
                }
                self.isa.dispatch(Rotate { by: &self.turns[row], head });
            }
        }
        let cell = self.rows.cells[row];
        for (store, x) in [(self.keys, &*k), (self.values, &*v)] {
            // SAFETY: every row of a pass has a cell of its own, and this thread has its K/V head.
            let row = unsafe { store.head(slot, kv_head).row_mut(cell) };
            self.isa.dispatch(StoreRow { ty: store.ty, x, row });
        }
    }

    /// The query heads of a K/V head.
    fn query_columns(&self, kv_head: usize) -> Range<usize> {
        let dims = &self.model.plan.dims;
        let width = dims.n_head / dims.n_kv_head * dims.head_dim;
        kv_head * width..(kv_head + 1) * width
    }

    fn attend(&self, scale: f32, phase: &Phase, member: &Member) {
        let view = self.rows.view_of_slot[phase.slot];
        let items = if phase.narrow { self.narrow_attention } else { &self.attention[view] };
        for item in items.share(member) {
            self.attend_item(&item, view, phase.slot, scale, member);
            if phase.quantize {
                let columns = self.query_columns(item.kv_head);
                let int8s = self.buffers.int8s(Buf::A, phase.narrow);
                for row in item.rows {
                    // SAFETY: this thread has attended with these heads of the row, and with whole K/V heads to each
                    // thread nobody else touches them, as f32 or as int8.
                    unsafe {
                        let x = self.buffers.f32s(Buf::A).columns(row.row, columns.clone());
                        int8s.quantize(self.isa, row.row, columns.start, x);
                    }
                }
            }
        }
    }

    fn attend_item(&self, item: &Item, view: usize, slot: usize, scale: f32, member: &Member) {
        let dims = &self.model.plan.dims;
        let group = dims.n_head / dims.n_kv_head;
        let to = match item.chunk {
            None => To::Out(self.buffers.f32s(Buf::A)),
            Some(chunk) => To::Parts { parts: self.parts(), chunk, first_head: item.kv_head * group },
        };
        self.isa.dispatch(Attend {
            head_dim: dims.head_dim,
            group,
            scale,
            keys: self.keys.head(slot, item.kv_head),
            key_type: self.keys.ty,
            values: self.values.head(slot, item.kv_head),
            value_type: self.values.ty,
            list: &self.rows.views[view].lists[item.list],
            rows: item.rows,
            q: self.buffers.f32s(Buf::Q),
            column: self.query_columns(item.kv_head).start,
            to,
            // SAFETY: the only reference to what this thread has for itself, until the item is done.
            scratch: &mut unsafe { self.buffers.own(member) }.attention,
        });
    }

    fn parts(&self) -> Parts<'_> {
        Parts { rows: self.buffers.parts, n_head: self.model.plan.dims.n_head }
    }

    fn join(&self, phase: &Phase, member: &Member) {
        let dims = &self.model.plan.dims;
        let view = &self.rows.views[self.rows.view_of_slot[phase.slot]];
        for item in member.share(self.n_rows(phase) * dims.n_head, 1) {
            let (row, head) = (item / dims.n_head, item % dims.n_head);
            let (_, visible) = view.visible[if phase.narrow { self.rows.outputs[row] } else { row }];
            let columns = head * dims.head_dim..(head + 1) * dims.head_dim;
            self.isa.dispatch(Join {
                parts: self.parts(),
                row,
                head,
                visible,
                // SAFETY: this head of the row is this thread's share.
                out: unsafe { self.buffers.f32s(Buf::A).row_mut(row, columns) },
                // SAFETY: the only reference to what this thread has for itself, until the head is joined.
                scratch: &mut unsafe { self.buffers.own(member) }.attention,
            });
        }
    }
}
