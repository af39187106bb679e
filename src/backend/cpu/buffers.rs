//! What a pass writes beside the cache and the logits; kept from pass to pass.

use std::cell::UnsafeCell;

use super::{
    attention::{self, Scratch},
    matmul::QuantRows,
    rows::{SharedQuantRows, SharedRows},
    schedule::PassShape,
    team::Member,
};
use crate::plan::{Buf, Dims};

/// Buffers that feed quantized matrices.
const QUANTIZED: [Buf; 3] = [Buf::H, Buf::A, Buf::G];

pub struct Buffers {
    /// By `Buf as usize`.
    f32s: [SharedRows; Buf::ALL.len()],
    /// The second factor of the gate, `[rows, ffn]`.
    up: SharedRows,
    /// By index in `QUANTIZED`: of all rows, and of those whose logits are wanted.
    int8s: [[QuantRows; QUANTIZED.len()]; 2],
    /// What chunks of a list give, where they are dealt to threads: by row and query head.
    parts: SharedRows,
    own: Vec<PerThread<Own>>,
    max_rows: usize,
}

/// What one thread has for itself.
#[derive(Default)]
pub struct Own {
    pub attention: Scratch,
    /// One row or head.
    pub normed: Vec<f32>,
    /// The int8 rows of `H`, if every thread makes its own.
    pub h: QuantRows,
}

struct PerThread<T>(UnsafeCell<T>);

// SAFETY: only the thread whose index it is takes it, through `Lent::own`.
unsafe impl<T: Send> Sync for PerThread<T> {}

impl Buffers {
    pub fn new(dims: &Dims, max_rows: usize, threads: usize) -> Self {
        let widest = dims.dim.max(dims.head_dim);
        let own = || Own { normed: vec![0.0; widest], ..Own::default() };
        Buffers {
            f32s: Buf::ALL.map(|b| SharedRows::new(max_rows, dims.width(b))),
            up: SharedRows::new(max_rows, dims.ffn),
            int8s: Default::default(),
            parts: SharedRows::new(0, 0),
            own: (0..threads).map(|_| PerThread(UnsafeCell::new(own()))).collect(),
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
        let floats: usize = Buf::ALL.iter().map(|&b| dims.width(b)).sum::<usize>() + dims.ffn;
        let bytes: usize = 2 * QUANTIZED.iter().map(|&b| dims.width(b)).sum::<usize>();
        // An int8 row carries a scale and sums, 16 bytes for every 32.
        (max_rows * (4 * floats + bytes + bytes / 32 * 16)) as u64
    }

    /// Room for the parts of `chunks` chunks; for twice as many where there is too little, so that it seldom
    /// grows.
    pub fn make_room_for_parts(&mut self, dims: &Dims, rows: usize, chunks: usize) {
        let width = attention::part_floats(dims.head_dim) * chunks;
        if self.parts.width() < width || self.parts.rows() < rows * dims.n_head {
            self.parts = SharedRows::new(rows * dims.n_head, 2 * width);
        }
    }

    /// Sizes the int8 rows for a pass and lends everything to it.
    pub fn lend(&mut self, dims: &Dims, shape: &PassShape) -> Lent<'_> {
        let Buffers { f32s, up, int8s, parts, own, .. } = self;
        for (set, rows) in int8s.iter_mut().zip([shape.rows, shape.outputs]) {
            for (rows_of, buf) in set.iter_mut().zip(QUANTIZED) {
                // Of another width it feeds float matrices only.
                if dims.width(buf).is_multiple_of(32) {
                    rows_of.resize(rows, dims.width(buf));
                }
            }
        }
        let int8s = int8s.each_mut().map(|set| set.each_mut().map(SharedQuantRows::new));
        Lent { f32s, up, int8s, parts, own }
    }
}

/// The buffers as a pass sees them.
pub struct Lent<'a> {
    f32s: &'a [SharedRows; Buf::ALL.len()],
    pub up: &'a SharedRows,
    pub parts: &'a SharedRows,
    int8s: [[SharedQuantRows<'a>; QUANTIZED.len()]; 2],
    own: &'a [PerThread<Own>],
}

impl Lent<'_> {
    pub fn f32s(&self, buf: Buf) -> &SharedRows {
        &self.f32s[buf as usize]
    }

    /// Of all rows, or (`narrow`) of those whose logits are wanted.
    pub fn int8s(&self, buf: Buf, narrow: bool) -> &SharedQuantRows<'_> {
        let index = QUANTIZED.iter().position(|&b| b == buf).expect("a buffer that feeds matrices");
        &self.int8s[usize::from(narrow)][index]
    }

    /// # Safety
    /// The thread holds no other reference to it.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn own(&self, member: &Member) -> &mut Own {
        // SAFETY: an index is one thread's, which has no other reference, says the caller.
        unsafe { &mut *self.own[member.index].0.get() }
    }
}
