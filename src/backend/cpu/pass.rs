//! One thread's part of each phase of a pass.

use std::cell::UnsafeCell;

use super::{
    attention::{
        Attend, Scratch,
        deal::{Item, Items},
    },
    kv_store::KvStore,
    matmul::{self, Acts, Mode, OutMatrix, QuantRows},
    ops::{RmsNorm, SiluMul, StoreRow, Turn},
    rows::{SharedOut, SharedQuantRows, SharedRows},
    schedule::{Phase, Work},
    simd::Isa,
    team::Member,
    weights::Weights,
};
use crate::{
    Model,
    backend::Rows,
    plan::{Buf, Dims, Op, WeightId},
};

/// Weight rows are dealt to threads in pieces of this many.
const ROW_GRAIN: usize = 16;

const BUFS: [Buf; 7] = [Buf::X, Buf::H, Buf::Q, Buf::K, Buf::V, Buf::A, Buf::G];

/// Buffers that feed quantized matrices.
const QUANTIZED: [Buf; 3] = [Buf::H, Buf::A, Buf::G];

/// Everything a pass writes except the cache and the logits; kept from pass to pass.
pub struct Buffers {
    /// By `Buf as usize`.
    f32s: Vec<SharedRows>,
    /// The second factor of the gate, `[rows, ffn]`.
    up: SharedRows,
    /// By index in `QUANTIZED`, then the head's packed rows.
    int8s: Vec<QuantRows>,
    scratch: Vec<PerThread<Scratch>>,
    max_rows: usize,
}

struct PerThread<T>(UnsafeCell<T>);

// SAFETY: only the thread whose index it is takes it.
unsafe impl<T: Send> Sync for PerThread<T> {}

impl Buffers {
    pub fn new(dims: &Dims, max_rows: usize, threads: usize) -> Self {
        Buffers {
            f32s: BUFS.iter().map(|&b| SharedRows::new(max_rows, dims.width(b))).collect(),
            up: SharedRows::new(max_rows, dims.ffn),
            int8s: (0..=QUANTIZED.len()).map(|_| QuantRows::new()).collect(),
            scratch: (0..threads).map(|_| PerThread(UnsafeCell::default())).collect(),
            max_rows,
        }
    }

    pub fn max_rows(&self) -> usize {
        self.max_rows
    }

    /// The residual stream of the first `rows` rows.
    pub fn hidden(&mut self, rows: usize) -> &mut [f32] {
        self.f32s[Buf::X as usize].rows_mut(rows)
    }

    pub fn bytes_for(dims: &Dims, max_rows: usize) -> u64 {
        let floats: usize = BUFS.iter().map(|&b| dims.width(b)).sum::<usize>() + dims.ffn;
        let bytes: usize = QUANTIZED.iter().map(|&b| dims.width(b)).sum::<usize>() + dims.dim;
        // An int8 row carries a scale and sums, 16 bytes for every 32.
        (max_rows * (4 * floats + bytes + bytes / 32 * 16)) as u64
    }

    /// Sizes the int8 rows for a pass and lends everything to it.
    pub fn lend(&mut self, dims: &Dims, rows: &Rows) -> Lent<'_> {
        let Buffers { f32s, up, int8s, scratch, .. } = self;
        let widths = QUANTIZED.iter().map(|&b| (rows.tokens.len(), dims.width(b)));
        let sizes = widths.chain([(rows.outputs.len(), dims.dim)]);
        for (int8s, (rows, width)) in int8s.iter_mut().zip(sizes) {
            // Of another width it feeds float matrices only.
            if width.is_multiple_of(32) {
                int8s.resize(rows, width);
            }
        }
        Lent { f32s, up, int8s: int8s.iter_mut().map(SharedQuantRows::new).collect(), scratch }
    }
}

/// The buffers as a pass sees them.
pub struct Lent<'a> {
    f32s: &'a [SharedRows],
    up: &'a SharedRows,
    int8s: Vec<SharedQuantRows<'a>>,
    scratch: &'a [PerThread<Scratch>],
}

impl Lent<'_> {
    fn f32s(&self, buf: Buf) -> &SharedRows {
        &self.f32s[buf as usize]
    }

    fn int8s(&self, buf: Buf) -> &SharedQuantRows<'_> {
        let index = QUANTIZED.iter().position(|&b| b == buf).expect("a buffer that feeds matrices");
        &self.int8s[index]
    }

    fn head_int8s(&self) -> &SharedQuantRows<'_> {
        &self.int8s[QUANTIZED.len()]
    }
}

/// The rotation of every row, made once for all layers.
pub fn turns(model: &Model, rows: &Rows) -> Vec<Turn> {
    rows.positions.iter().map(|&pos| Turn::to(&model.plan.rope, pos)).collect()
}

pub struct Pass<'a> {
    pub model: &'a Model,
    pub weights: &'a Weights,
    pub isa: Isa,
    pub keys: &'a KvStore,
    pub values: &'a KvStore,
    pub buffers: Lent<'a>,
    pub vectors: &'a [Vec<f32>],
    pub rows: &'a Rows<'a>,
    pub turns: Vec<Turn>,
    /// By view.
    pub attention: &'a [Items],
    pub logits: SharedOut<'a>,
}

// SAFETY, for every block below: the schedule puts a barrier between phases that touch the same buffer unless
// each thread touches its own part only; parts are rows or column stripes given by `Member::share`.
impl Pass<'_> {
    pub fn run(&self, phase: &Phase, member: &Member) {
        let rows = self.rows.tokens.len();
        match phase.work {
            Work::Op(op) => self.op(op, phase, rows, member),
            Work::Quantize(buf) => {
                let (src, dst) = (self.buffers.f32s(buf), self.buffers.int8s(buf));
                for row in member.share(rows, 1) {
                    unsafe { dst.quantize(self.isa, row, src.row(row)) };
                }
            }
            Work::HeadNorm { norm, eps } => {
                for i in member.share(self.rows.outputs.len(), 1) {
                    self.norm_row(self.rows.outputs[i], i, norm, eps);
                }
            }
            Work::QuantizeHead => {
                let (src, dst) = (self.buffers.f32s(Buf::H), self.buffers.head_int8s());
                for row in member.share(self.rows.outputs.len(), 1) {
                    unsafe { dst.quantize(self.isa, row, src.row(row)) };
                }
            }
            Work::Logits { weight } => {
                let outputs = self.rows.outputs.len();
                let n_vocab = self.model.weight(weight).rows;
                let out = unsafe { OutMatrix::from_raw(self.logits.ptr, outputs, n_vocab, Mode::Store) };
                self.matmul(weight, Buf::H, self.buffers.head_int8s(), &out, phase, member);
            }
        }
    }

    fn op(&self, op: &Op, phase: &Phase, rows: usize, member: &Member) {
        let slot = phase.slot;
        match *op {
            Op::Embed { table } => {
                let weight = self.model.weight(table);
                let (bytes, row_bytes) = (self.model.weight_bytes(table), weight.row_bytes());
                for row in member.share(rows, 1) {
                    let token = self.rows.tokens[row] as usize;
                    let x = unsafe { self.buffers.f32s(Buf::X).row_mut(row, 0..weight.cols) };
                    crate::quant::dequantize(weight.ty(), &bytes[token * row_bytes..][..row_bytes], x);
                }
            }
            Op::Norm { weight, eps } => {
                for row in member.share(rows, 1) {
                    self.norm_row(row, row, weight, eps);
                }
            }
            Op::MatMul { weight, bias, src, dst, add } => {
                let out = self.buffers.f32s(dst);
                let mode = if add { Mode::Add } else { Mode::Store };
                self.matmul_rows(weight, src, rows, out, mode, phase, member);
                if let Some(bias) = bias {
                    let bias = &self.vectors[bias.0 as usize];
                    let columns = member.share(self.model.weight(weight).rows, ROW_GRAIN);
                    for row in 0..rows {
                        let out = unsafe { out.row_mut(row, columns.clone()) };
                        out.iter_mut().zip(&bias[columns.clone()]).for_each(|(out, b)| *out += b);
                    }
                }
            }
            Op::GateUp { gate, up } => self.gate_up(gate, up, rows, phase, member),
            Op::RopeStore { q_norm, k_norm, eps } => {
                for row in member.share(rows, 1) {
                    self.rope_store(row, slot, q_norm, k_norm, eps);
                }
            }
            Op::Attend { scale } => {
                for item in self.attention[self.rows.view_of_slot[slot]].share(member) {
                    self.attend(&item, slot, scale, member);
                }
            }
            Op::Head { .. } => unreachable!("the schedule splits it"),
        }
    }

    /// A matrix from one buffer into another.
    #[allow(clippy::too_many_arguments)]
    fn matmul_rows(
        &self,
        id: WeightId,
        src: Buf,
        rows: usize,
        out: &SharedRows,
        mode: Mode,
        phase: &Phase,
        member: &Member,
    ) {
        let out = unsafe { OutMatrix::from_raw(out.as_ptr(), rows, out.width(), mode) };
        self.matmul(id, src, self.buffers.int8s(src), &out, phase, member);
    }

    fn matmul(
        &self,
        id: WeightId,
        src: Buf,
        int8s: &SharedQuantRows,
        out: &OutMatrix,
        phase: &Phase,
        member: &Member,
    ) {
        let weight = self.weights.get(self.model, id).coarse(phase.coarse);
        let mut stripe = unsafe { out.stripe(member.share(weight.rows(), ROW_GRAIN)) };
        let input = if weight.wants_quantized() {
            Acts::Quantized(unsafe { int8s.read() })
        } else {
            Acts::Float(unsafe { self.buffers.f32s(src).rows(stripe.columns()) })
        };
        matmul::matmul(self.isa, &weight, input, &mut stripe);
    }

    fn gate_up(&self, gate: WeightId, up: WeightId, rows: usize, phase: &Phase, member: &Member) {
        let (gates, ups) = (self.buffers.f32s(Buf::G), self.buffers.up);
        self.matmul_rows(gate, Buf::H, rows, gates, Mode::Store, phase, member);
        self.matmul_rows(up, Buf::H, rows, ups, Mode::Store, phase, member);
        let columns = member.share(self.model.weight(gate).rows, ROW_GRAIN);
        for row in 0..rows {
            let (gate, up) =
                unsafe { (gates.row_mut(row, columns.clone()), ups.row_mut(row, columns.clone())) };
            self.isa.dispatch(SiluMul { gate, up });
        }
    }

    /// `H[to] = norm(X[from])`
    fn norm_row(&self, from: usize, to: usize, weight: WeightId, eps: f32) {
        let x = unsafe { self.buffers.f32s(Buf::X).row(from) };
        let out = unsafe { self.buffers.f32s(Buf::H).row_mut(to, 0..x.len()) };
        self.isa.dispatch(RmsNorm { x, weight: &self.vectors[weight.0 as usize], eps, out });
    }

    fn rope_store(
        &self,
        row: usize,
        slot: usize,
        q_norm: Option<WeightId>,
        k_norm: Option<WeightId>,
        eps: f32,
    ) {
        let dims = &self.model.plan.dims;
        let buf = |buf| unsafe { self.buffers.f32s(buf).row_mut(row, 0..dims.width(buf)) };
        let (q, k, v) = (buf(Buf::Q), buf(Buf::K), buf(Buf::V));
        for (heads, norm) in [(q, q_norm), (&mut *k, k_norm)] {
            for head in heads.chunks_exact_mut(dims.head_dim) {
                if let Some(norm) = norm {
                    let x = head.to_vec();
                    self.isa.dispatch(RmsNorm {
                        x: &x,
                        weight: &self.vectors[norm.0 as usize],
                        eps,
                        out: head,
                    });
                }
                self.turns[row].apply(head);
            }
        }
        let cell = self.rows.cells[row];
        for (store, x) in [(self.keys, &*k), (self.values, &*v)] {
            for (kv_head, x) in x.chunks_exact(dims.head_dim).enumerate() {
                let row = unsafe { store.head(slot, kv_head).row_mut(cell) };
                self.isa.dispatch(StoreRow { ty: store.ty, x, row });
            }
        }
    }

    fn attend(&self, item: &Item, slot: usize, scale: f32, member: &Member) {
        let dims = &self.model.plan.dims;
        let group = dims.n_head / dims.n_kv_head;
        let view = &self.rows.views[self.rows.view_of_slot[slot]];
        self.isa.dispatch(Attend {
            head_dim: dims.head_dim,
            group,
            scale,
            keys: self.keys.head(slot, item.kv_head),
            key_type: self.keys.ty,
            values: self.values.head(slot, item.kv_head),
            value_type: self.values.ty,
            list: &view.lists[item.list],
            rows: item.rows,
            q: self.buffers.f32s(Buf::Q),
            out: self.buffers.f32s(Buf::A),
            column: item.kv_head * group * dims.head_dim,
            scratch: unsafe { &mut *self.buffers.scratch[member.index].0.get() },
        });
    }
}
