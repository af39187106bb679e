//! Products whose heads have matrices of their own: each takes its part of a row and gives its part of another.

use super::{
    matmul::{self, Acts, Mode, OutMatrix, QuantRows},
    pass::Pass,
    schedule::Phase,
    team::Member,
};
use crate::plan::{Buf, Parts, WeightId};

/// Per thread, kept from pass to pass.
#[derive(Default)]
pub struct HeadScratch {
    /// A head's part of all rows, in the form that its matrix takes.
    f32s: Vec<f32>,
    int8s: QuantRows,
    out: Vec<f32>,
}

impl Pass<'_> {
    /// `first`: the matrix of the first head, whose successors are the others'.
    pub fn per_head(
        &self,
        first: WeightId,
        heads: usize,
        (src, from): (Buf, Parts),
        (dst, to): (Buf, Parts),
        phase: &Phase,
        member: &Member,
    ) {
        let (src, dst) = (self.buffers.f32s(src), self.buffers.f32s(dst));
        let (n, weight) = (self.n_rows(phase), self.model.weight(first));
        let (rows, cols) = (weight.rows, weight.cols);
        // SAFETY: the only reference to what this thread has for itself, until this returns.
        let scratch = &mut unsafe { self.buffers.own(member) }.heads;
        for head in member.share(heads, 1) {
            let part = from.of(head, cols);
            // SAFETY: the rows of `src` are settled.
            let part_of = |row| unsafe { src.columns(row, part.clone()) };
            let weight = self.weights.get(self.model, first.after(head)).coarse(phase.coarse);
            let acts = if weight.wants_quantized() {
                scratch.int8s.resize(n, cols);
                (0..n).for_each(|row| scratch.int8s.quantize_row(self.isa, row, part_of(row)));
                Acts::Quantized(&scratch.int8s)
            } else {
                scratch.f32s.clear();
                (0..n).for_each(|row| scratch.f32s.extend_from_slice(part_of(row)));
                Acts::Float(&scratch.f32s)
            };
            scratch.out.resize(scratch.out.len().max(n * rows), 0.0);
            let out = &mut scratch.out[..n * rows];
            matmul::matmul(
                self.isa,
                &weight,
                acts,
                &mut OutMatrix::new(out, rows, Mode::Store).part(0..rows),
            );
            for (row, out) in out.chunks_exact(rows).enumerate() {
                // SAFETY: this head's columns are this thread's share.
                unsafe { dst.row_mut(row, to.of(head, rows)) }.copy_from_slice(out);
            }
        }
    }
}
