//! Shows a watch what the products of a phase read.

use super::{
    pass::Pass,
    schedule::{Phase, Work},
    team::Member,
};
use crate::{
    plan::{Buf, MoeSpec, Op, WeightId},
    watch::Watch,
};

// What a phase's products read is settled in it, so the thread that shows it may read it too.
impl Pass<'_> {
    /// For one thread of the team.
    pub fn show(&self, watch: &dyn Watch, phase: &Phase, member: &Member) {
        match phase.work {
            Work::Op(Op::ExpertsGate(id)) => {
                let moe = self.model.plan.moe(id);
                for first in moe.gate.iter().chain([&moe.up]) {
                    self.show_experts(watch, (moe, first.weight), moe.src, |_| 0, phase, member);
                }
            }
            Work::Op(Op::ExpertsDown(id)) => {
                let moe = self.model.plan.moe(id);
                let part_of = |place: usize| place * moe.ffn;
                self.show_experts(watch, (moe, moe.down.weight), moe.hidden, part_of, phase, member);
            }
            Work::Op(Op::PerHead { first, heads, src, from, .. }) => {
                let cols = self.model.weight(first).cols;
                for head in 0..heads {
                    let part = from.of(head, cols);
                    let rows = self.rows_of(src, phase, member);
                    watch.product(first.after(head), &mut rows.map(|row| &row[part.clone()]));
                }
            }
            Work::Op(op) => {
                for (matrix, src) in self.model.plan.operands(&op).matrices() {
                    self.show_one(watch, matrix, src, phase, member);
                }
            }
            Work::Logits { weight, .. } => self.show_one(watch, weight, Buf::H, phase, member),
            _ => {}
        }
    }

    fn show_one(&self, watch: &dyn Watch, matrix: WeightId, src: Buf, phase: &Phase, member: &Member) {
        let cols = self.model.weight(matrix).cols;
        watch.product(matrix, &mut self.rows_of(src, phase, member).map(|row| &row[..cols]));
    }

    /// Each expert with the rows that chose it, which begin at `begin` of their place in the choice.
    fn show_experts(
        &self,
        watch: &dyn Watch,
        (moe, first): (&MoeSpec, WeightId),
        src: Buf,
        begin: impl Fn(usize) -> usize,
        phase: &Phase,
        member: &Member,
    ) {
        let (cols, n_used) = (self.model.weight(first).cols, moe.taken(phase.experts));
        let mut chosen = self.chosen(moe, phase);
        for row in self.rows_of(src, phase, member) {
            for (place, expert) in chosen.by_ref().take(n_used).enumerate() {
                let part = begin(place)..begin(place) + cols;
                watch.product(first.after(expert), &mut std::iter::once(&row[part]));
            }
        }
    }

    fn rows_of(&self, src: Buf, phase: &Phase, member: &Member) -> impl Iterator<Item = &[f32]> {
        let n = self.n_rows(phase);
        let width = self.buffers.f32s(src).width();
        self.floats(src, n, member).chunks_exact(width)
    }
}
