//! Products whose heads have matrices of their own. Parts of rows that are whole blocks are read where they lie; others are
//! first taken apart.

use super::{
    super::{
        command::Binding,
        formats::BLOCK,
        params::ProductParams,
        pipelines::{Bindings, Kernel},
        tuning::FEW_ROWS,
        tuning::TILE_ROWS,
        variants::Arith,
        work::{head_parts, padded},
    },
    Lowering, Ops, RowStep, Stage,
    products::Matrices,
    small::{Source, Taken},
};
use crate::plan::{Op, PlanOp};

pub struct PerHead {
    /// Parts of rows that are taken apart, and prepared then.
    take: Vec<RowStep>,
    matrices: Matrices,
    /// Rows of a head's matrix.
    rows: u32,
    parts: Vec<Part>,
}

/// Matrices of some heads, which lie in one binding.
struct Part {
    bound: Binding,
    heads: u32,
}

impl Ops {
    pub(super) fn add_per_head(&mut self, stage: &Stage, PlanOp { id, op }: PlanOp) {
        let Op::PerHead { first, heads, src, from, dst, to } = *op else { return };
        let matrix = &stage.weights.matrices[&first];
        let (rows, cols) = (matrix.rows / heads, stage.model.weight(first).cols);
        let layout = stage.rows_of(src);
        // Numbers from row to row of the input, and from one head's part to the next; where the first begins.
        let (mut take, stride, every, begin) = match head_parts(op) {
            0 => (Vec::new(), layout.stride, from.every, layout.column + from.from),
            width => {
                let (every, each) = (padded(from.every), padded(cols));
                let apart = Taken { buffer: stage.head_parts(), stride: width, first: 0, every, each };
                (
                    vec![self.take(stage, Source { src, from, parts: heads, taken: cols }, apart)],
                    width,
                    every,
                    0,
                )
            }
        };
        let matrices = Matrices::new(stage, first, matrix.format, src);
        let arith = matrices.arith;
        let is_apart = !take.is_empty();
        if !is_apart {
            self.add_preparer(stage, src, arith);
        } else if arith != Arith::Float {
            let storage = [stage.head_parts(), stage.head_parts_prepared()];
            take.push(self.preparer(stage, arith, storage, stride));
        }
        let x = || match (is_apart, arith) {
            (false, _) => stage.input(src, arith),
            (true, Arith::Float) => stage.head_parts(),
            (true, _) => stage.head_parts_prepared(),
        };
        let blocks = |numbers: usize| (numbers / BLOCK) as u32;
        let out = stage.rows_of(dst);
        let parts = matrix.parts.iter().map(|part| {
            let before = part.first_row / rows;
            let params = self.params.add(&ProductParams {
                rows: rows as u32,
                blocks: matrix.blocks as u32,
                x_stride: blocks(stride),
                x_first: blocks(begin + before * every),
                x_every: blocks(every),
                y_stride: out.stride as u32,
                y_first: (out.column + to.from + before * to.every) as u32,
                y_every: to.every as u32,
                ..ProductParams::default()
            });
            let storage = stage.product(first, part, x(), [stage.buffer(dst)]);
            let group = stage.bind(&self.params, Bindings::MATMUL, &storage);
            Part { bound: Binding { group, params }, heads: (part.rows / rows) as u32 }
        });
        let parts = parts.collect();
        self.per_head.insert(id, PerHead { take, matrices, rows: rows as u32, parts });
    }

    pub(super) fn multiply_heads(&self, out: &mut Lowering, product: &PerHead, coarse: bool) {
        let rows = out.rows;
        let Matrices { format, lanes, arith, src, .. } = product.matrices;
        if product.take.is_empty() {
            self.make_ready(out, src, arith);
        }
        product.take.iter().for_each(|take| take.lower(out));
        let coarse = product.matrices.weigh(out, coarse);
        for Part { bound, heads } in &product.parts {
            if rows <= FEW_ROWS {
                let kernel = Kernel::HeadRows { format, lanes, columns: rows as u32, coarse, arith };
                let at_once = kernel.rows_at_once(&out.gpu.tuning);
                out.dispatch(kernel, bound, [product.rows.div_ceil(at_once), 1, *heads]);
            } else {
                let kernel = Kernel::HeadTile { format, lanes, coarse, arith };
                let columns = rows.div_ceil(TILE_ROWS) as u32;
                out.dispatch(kernel, bound, [product.rows.div_ceil(64), columns, *heads]);
            }
        }
    }
}
