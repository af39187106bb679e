//! Where the rows of a plan's buffers lie on the device: each in a device buffer of its own, or several side by side in one, so
//! that products of the same rows can be one.

use super::work::padded;
use crate::plan::{Buf, BufSet, Op, Plan};

/// Where a buffer's rows lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufLayout {
    /// The number of the device buffer.
    pub buffer: usize,
    /// Where its rows begin in the rows of the device buffer.
    pub column: usize,
    /// Numbers from one row of the device buffer to the next.
    pub stride: usize,
    pub width: usize,
}

#[derive(Debug)]
pub struct Layout {
    layouts: Vec<BufLayout>,
    /// Numbers in a row, by device buffer.
    strides: Vec<usize>,
}

impl Layout {
    pub fn of(plan: &Plan) -> Self {
        let apart = apart(plan);
        let mut layout =
            Layout { layouts: vec![BufLayout::default(); plan.widths.len()], strides: Vec::new() };
        let mut placed = BufSet::NONE;
        for run in runs(plan) {
            let mut first = 0;
            while first < run.len() {
                let free = |buf: &&Buf| !placed.contains(**buf) && !apart.contains(**buf);
                let together = run[first..].iter().take_while(free).count();
                if together > 1 {
                    layout.put(plan, &run[first..first + together]);
                    run[first..first + together].iter().for_each(|&buf| placed = placed.with(Some(buf)));
                }
                first += together.max(1);
            }
        }
        let alone: Vec<Buf> = plan.bufs().filter(|&buf| !placed.contains(buf)).collect();
        for buf in alone {
            layout.put_alone(plan, buf);
        }
        layout
    }

    pub fn rows_of(&self, buf: Buf) -> BufLayout {
        self.layouts[buf.index()]
    }

    /// Numbers in a row of each device buffer.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Whether `next` begins in the same rows where `first` ends.
    pub fn adjoin(&self, first: Buf, next: Buf) -> bool {
        let (first, next) = (self.rows_of(first), self.rows_of(next));
        first.buffer == next.buffer && first.column + first.width == next.column
    }

    fn put(&mut self, plan: &Plan, bufs: &[Buf]) {
        let stride = bufs.iter().map(|&buf| plan.width(buf)).sum();
        let mut column = 0;
        for &buf in bufs {
            let width = plan.width(buf);
            self.layouts[buf.index()] = BufLayout { buffer: self.strides.len(), column, stride, width };
            column += width;
        }
        self.strides.push(stride);
    }

    /// Whole blocks, as matrices read them; what experts make, each in whole blocks of its own.
    fn put_alone(&mut self, plan: &Plan, buf: Buf) {
        let width = plan.width(buf);
        let used = plan.experts.iter().find(|moe| moe.hidden == buf || moe.results == buf);
        let parts = used.map_or(1, |moe| moe.n_used);
        let stride = parts * padded((width / parts).max(1));
        self.layouts[buf.index()] = BufLayout { buffer: self.strides.len(), column: 0, stride, width };
        self.strides.push(stride);
    }
}

/// Products one after the other that read the same rows: what they write.
fn runs(plan: &Plan) -> Vec<Vec<Buf>> {
    let mut runs = Vec::new();
    for (_, ops) in plan.units() {
        let mut last = None;
        for op in ops {
            let src = match *op {
                Op::MatMul { src, dst, add: false, .. } => {
                    if last != Some(src) {
                        runs.push(Vec::new());
                    }
                    runs.last_mut().expect("begun above").push(dst);
                    Some(src)
                }
                _ => None,
            };
            last = src;
        }
    }
    runs
}

/// Buffers that share their rows with no other: those of whole blocks, and what is written while another is read.
fn apart(plan: &Plan) -> BufSet {
    let mut apart = BufSet::of([Buf::X, Buf::H]);
    for op in plan.ops() {
        let operands = plan.operands(op);
        for buf in operands.fed() {
            apart = apart.with(Some(buf));
        }
        let written = match op {
            Op::MatMul { .. } | Op::Norm { .. } | Op::Store(_) => BufSet::NONE,
            _ => operands.writes,
        };
        apart = apart.union(written);
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Dims, LayerOps, WeightId};

    fn product(src: Buf, dst: Buf) -> Op {
        Op::MatMul { weight: WeightId(0), bias: None, src, dst, add: false }
    }

    /// Layers of two shapes, which have their queries in common.
    fn plan() -> Plan {
        let (other_k, other_v) = (Buf::new(7), Buf::new(8));
        let layer = |k, v| LayerOps {
            attn: [Buf::Q, k, v].map(|dst| product(Buf::H, dst)).to_vec(),
            mlp: vec![product(Buf::A, Buf::G), product(Buf::G, Buf::X)],
            ..LayerOps::default()
        };
        Plan {
            dims: Dims { n_layer: 2, n_vocab: 1, dim: 20 },
            widths: vec![20, 20, 24, 12, 12, 24, 50, 6, 6],
            ropes: Vec::new(),
            slopes: Vec::new(),
            attentions: Vec::new(),
            experts: Vec::new(),
            mixers: Vec::new(),
            most_positions: None,
            n_tokens: 1,
            embed: Vec::new(),
            layers: vec![layer(Buf::K, Buf::V), layer(other_k, other_v)],
            head: None,
            bidirectional: false,
            mtp: None,
            inject: None,
        }
    }

    #[test]
    fn products_of_the_same_rows_lie_side_by_side() {
        let layout = Layout::of(&plan());
        assert!(layout.adjoin(Buf::Q, Buf::K) && layout.adjoin(Buf::K, Buf::V));
        assert_eq!(layout.rows_of(Buf::V), BufLayout { buffer: 0, column: 36, stride: 48, width: 12 });
        assert!(!layout.adjoin(Buf::Q, Buf::new(7)) && layout.adjoin(Buf::new(7), Buf::new(8)));
    }

    #[test]
    fn what_a_matrix_reads_has_whole_blocks_of_its_own() {
        let plan = plan();
        let layout = Layout::of(&plan);
        for (buf, stride) in [(Buf::X, 32), (Buf::H, 32), (Buf::A, 32), (Buf::G, 64)] {
            let found = layout.rows_of(buf);
            assert_eq!((found.column, found.stride), (0, stride));
            let others = plan.bufs().filter(|&other| other != buf);
            assert!(others.map(|other| layout.rows_of(other).buffer).all(|buffer| buffer != found.buffer));
        }
    }
}
