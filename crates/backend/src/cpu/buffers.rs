//! What a pass writes besides the cache and the logits. The buffers are kept from pass to pass.

use std::cell::UnsafeCell;

use super::{
    attention::{self, Scratch},
    experts::ExpertScratch,
    matmul::{GROUP, QuantRows},
    per_head::HeadScratch,
    rows::{SharedQuantRows, SharedRows},
    schedule::PassShape,
    team::Member,
};
use crate::{
    Model,
    plan::{Buf, Op, Plan},
};

pub struct Buffers {
    /// By buffer.
    f32s: Vec<SharedRows>,
    /// By buffer that a gate writes: its second factor.
    ups: Vec<Option<SharedRows>>,
    /// By buffer that feeds quantized matrices: of all rows, and of those whose logits are wanted.
    int8s: [Vec<Option<QuantRows>>; 2],
    /// What chunks of a list give, where they are dealt to threads: by row and query head.
    parts: SharedRows,
    own: Vec<PerThread<Own>>,
    max_rows: usize,
}

/// What one thread has for itself.
#[derive(Default)]
pub struct Own {
    pub attention: Scratch,
    pub experts: ExpertScratch,
    /// Of a scan's step.
    pub mixer: Vec<f32>,
    pub heads: HeadScratch,
    /// One row or head.
    pub normed: Vec<f32>,
    /// The rows of `H`, if every thread makes its own, as f32 and as int8.
    pub h_f32: Vec<f32>,
    pub h: QuantRows,
}

struct PerThread<T>(UnsafeCell<T>);

// SAFETY: only the thread whose index it is takes it, through `PassBuffers::own`.
unsafe impl<T: Send> Sync for PerThread<T> {}

/// What a buffer needs besides its rows.
#[derive(Clone, Copy, Default)]
struct Beside {
    /// int8 rows: it feeds quantized matrices.
    int8: bool,
    /// It has a buffer for the second factor of the gate that writes it.
    up: bool,
}

/// By buffer.
fn needed_beside(model: &Model) -> Vec<Beside> {
    let plan = &model.plan;
    let mut needed = vec![Beside::default(); plan.widths.len()];
    for op in plan.ops() {
        for (id, src) in plan.operands(op).products() {
            needed[src.index()].int8 |= model.weight(id).ty().block_len() > 1;
        }
        if let Op::Gate { up: Some(_), dst, .. } = op {
            needed[dst.index()].up = true;
        }
    }
    needed
}

/// Where parts of chunks would take more than this, threads share rows and heads instead of chunks.
const MOST_PARTS_BYTES: usize = 512 << 20;

/// Rows of parts, and the numbers of each.
fn parts_size(plan: &Plan, rows: usize, chunks: usize) -> (usize, usize) {
    let most = |of: fn(&crate::plan::AttnSpec) -> usize| plan.attentions.iter().map(of).max().unwrap_or(0);
    let (head_dim, n_head) = (most(|spec| spec.head_dim), most(|spec| spec.n_head));
    (rows.saturating_mul(n_head), attention::part_floats(head_dim).saturating_mul(chunks))
}

/// Whether the parts of so many chunks fit.
pub fn parts_fit(plan: &Plan, rows: usize, chunks: usize) -> bool {
    let (rows, width) = parts_size(plan, rows, chunks);
    rows.saturating_mul(width).saturating_mul(size_of::<f32>()) <= MOST_PARTS_BYTES
}

impl Buffers {
    pub fn new(model: &Model, max_rows: usize, threads: usize) -> Self {
        let plan = &model.plan;
        let needed = needed_beside(model);
        let head_dims = plan.attentions.iter().map(|spec| spec.head_dim);
        let widest = plan.widths.iter().copied().chain(head_dims).max().unwrap_or(0);
        let own = || Own { normed: vec![0.0; widest], ..Own::default() };
        let up = |(buf, &width): (usize, &usize)| needed[buf].up.then(|| SharedRows::new(max_rows, width));
        let int8s = || needed.iter().map(|of| of.int8.then(QuantRows::new)).collect();
        Buffers {
            f32s: plan.widths.iter().map(|&width| SharedRows::new(max_rows, width)).collect(),
            ups: plan.widths.iter().enumerate().map(up).collect(),
            int8s: [int8s(), int8s()],
            parts: SharedRows::new(0, 0),
            own: (0..threads).map(|_| PerThread(UnsafeCell::new(own()))).collect(),
            max_rows,
        }
    }

    pub fn max_rows(&self) -> usize {
        self.max_rows
    }

    /// The first `rows` rows of a buffer, while no pass is running.
    pub fn rows_mut(&mut self, buf: Buf, rows: usize) -> &mut [f32] {
        self.f32s[buf.index()].rows_mut(rows)
    }

    pub fn bytes_for(model: &Model, max_rows: usize) -> u64 {
        let of = |(width, Beside { int8, up }): (&usize, Beside)| {
            let int8s = if int8 { 2 * (width / GROUP) * QuantRows::bytes_per_group(max_rows) } else { 0 };
            4 * width * if up { 2 } else { 1 } + int8s
        };
        let row: usize = model.plan.widths.iter().zip(needed_beside(model)).map(of).sum();
        (max_rows * row) as u64
    }

    /// Makes the buffer hold the parts of `chunks` chunks. If it is too small it grows to twice as many, so that it seldom
    /// grows.
    pub fn make_room_for_parts(&mut self, plan: &Plan, rows: usize, chunks: usize) {
        let (rows, width) = parts_size(plan, rows, chunks);
        if self.parts.width() < width || self.parts.rows() < rows {
            let most = MOST_PARTS_BYTES / size_of::<f32>() / rows;
            self.parts = SharedRows::new(rows, (2 * width).min(most).max(width));
        }
    }

    /// Sizes the int8 rows for a pass and gives everything to it.
    pub fn for_pass(&mut self, plan: &Plan, shape: &PassShape) -> PassBuffers<'_> {
        let Buffers { f32s, ups, int8s, parts, own, .. } = self;
        for (set, rows) in int8s.iter_mut().zip([shape.asked.rows, shape.asked.outputs]) {
            for (rows_of, &width) in set.iter_mut().zip(&plan.widths) {
                // Of another width it feeds float matrices only.
                if let (Some(rows_of), true) = (rows_of, width.is_multiple_of(32)) {
                    rows_of.resize(rows, width);
                }
            }
        }
        let [all, narrow] = int8s;
        let mut int8s: [[Option<SharedQuantRows<'_>>; Buf::MOST]; 2] =
            [const { [const { None }; Buf::MOST] }; 2];
        for (shared, set) in int8s.iter_mut().zip([all, narrow]) {
            for (shared, rows) in shared.iter_mut().zip(set) {
                *shared = rows.as_mut().map(SharedQuantRows::new);
            }
        }
        PassBuffers { f32s, ups, int8s, parts, own }
    }
}

/// The buffers as a pass sees them.
pub struct PassBuffers<'a> {
    f32s: &'a [SharedRows],
    ups: &'a [Option<SharedRows>],
    pub parts: &'a SharedRows,
    int8s: [[Option<SharedQuantRows<'a>>; Buf::MOST]; 2],
    own: &'a [PerThread<Own>],
}

impl PassBuffers<'_> {
    pub fn f32s(&self, buf: Buf) -> &SharedRows {
        &self.f32s[buf.index()]
    }

    /// A gate's second factor.
    pub fn up(&self, dst: Buf) -> &SharedRows {
        self.ups[dst.index()].as_ref().expect("a buffer that a gate writes")
    }

    /// Of all rows, or (`narrow`) of those whose logits are wanted.
    pub fn int8s(&self, buf: Buf, narrow: bool) -> &SharedQuantRows<'_> {
        self.int8s[usize::from(narrow)][buf.index()].as_ref().expect("a buffer that feeds quantized matrices")
    }

    /// # Safety
    /// The thread holds no other reference to it.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn own(&self, member: &Member) -> &mut Own {
        // SAFETY: an index is one thread's, which has no other reference, says the caller.
        unsafe { &mut *self.own[member.index].0.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use spec_run_gguf::embedded;

    /// Rows times heads times chunks of a long context: without a limit that would be gigabytes.
    #[test]
    fn parts_of_chunks_are_bounded() {
        let model = Model::load(std::sync::Arc::new(embedded::open().unwrap())).unwrap();
        let (rows, width) = parts_size(&model.plan, 8, 1000);
        let chunks_that_fit = MOST_PARTS_BYTES / (4 * rows * width / 1000);
        assert!(chunks_that_fit > 1000);
        assert!(parts_fit(&model.plan, 8, chunks_that_fit));
        assert!(!parts_fit(&model.plan, 8, chunks_that_fit + 1));
        assert!(!parts_fit(&model.plan, usize::MAX, usize::MAX / 1024));
    }
}
