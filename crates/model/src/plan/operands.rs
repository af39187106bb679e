//! What an operation reads and writes, said once. Who loads, counts, places or schedules operations asks here, so that
//! a new operation is described in one place.

use super::{Buf, Choice, Conv, Linear, MixerSpec, MoeSpec, Norm, Op, Plan, ScanKind, WeightId};

/// A set of work buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufSet(u64);

impl BufSet {
    pub const NONE: BufSet = BufSet(0);

    pub const fn of<const N: usize>(bufs: [Buf; N]) -> Self {
        let mut set = 0;
        let mut i = 0;
        while i < N {
            set |= 1 << bufs[i].index();
            i += 1;
        }
        BufSet(set)
    }

    pub fn with(self, buf: Option<Buf>) -> Self {
        BufSet(self.0 | buf.map_or(0, |buf| 1 << buf.index()))
    }

    pub fn union(self, other: BufSet) -> Self {
        BufSet(self.0 | other.0)
    }

    pub fn without(self, other: BufSet) -> Self {
        BufSet(self.0 & !other.0)
    }

    pub fn is_empty(self) -> bool {
        self == BufSet::NONE
    }

    pub fn contains(self, buf: Buf) -> bool {
        self.0 & 1 << buf.index() != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Buf> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| Buf::new(left.trailing_zeros() as usize));
            left &= left.wrapping_sub(1);
            next
        })
    }

    /// A bit for each buffer, by its index.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// What an operation does with what is kept of sequences: keys, values, states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUse {
    None,
    Reads,
    Writes,
    /// It goes on from the states of sequences, and leaves new ones.
    States,
}

impl CacheUse {
    /// Whether all rows have to go through it, also those of which nothing is asked.
    pub fn keeps(self) -> bool {
        matches!(self, CacheUse::Writes | CacheUse::States)
    }
}

/// A matrix of each expert, of which a row is multiplied with those that it chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertMatrices {
    pub first: WeightId,
    pub choice: Choice,
    pub src: Buf,
}

impl MoeSpec {
    fn matrices(&self, first: Linear, src: Buf) -> ExpertMatrices {
        ExpertMatrices { first: first.weight, choice: self.choice(), src }
    }
}

impl ExpertMatrices {
    pub fn ids(self) -> impl Iterator<Item = WeightId> {
        (0..self.choice.of).map(move |n| self.first.after(n))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operands {
    /// A matrix of which each row of the pass reads one row.
    pub table: Option<WeightId>,
    matrices: [Option<(WeightId, Buf)>; 2],
    experts: [Option<ExpertMatrices>; 2],
    /// A matrix for each head, the first of so many.
    heads: Option<(WeightId, usize, Buf)>,
    norms: [Option<WeightId>; 4],
    others: [Option<WeightId>; 3],
    /// Work buffers; what a matrix is multiplied with is among those read.
    pub reads: BufSet,
    pub writes: BufSet,
    pub cache: CacheUse,
}

impl Operands {
    /// Of an operation without weights.
    const fn of_rows(reads: BufSet, writes: BufSet) -> Self {
        Operands {
            table: None,
            matrices: [None; 2],
            experts: [None; 2],
            heads: None,
            norms: [None; 4],
            others: [None; 3],
            reads,
            writes,
            cache: CacheUse::None,
        }
    }

    /// The matrices that all rows are multiplied with, and the buffer that has these rows.
    pub fn matrices(&self) -> impl Iterator<Item = (WeightId, Buf)> + use<> {
        self.matrices.into_iter().flatten()
    }

    /// Those of which each row is multiplied with some.
    pub fn experts(&self) -> impl Iterator<Item = ExpertMatrices> + use<> {
        self.experts.into_iter().flatten()
    }

    /// What rows are multiplied with and the buffer that has these rows; of experts, which are alike, the first.
    pub fn products(&self) -> impl Iterator<Item = (WeightId, Buf)> + use<> {
        self.matrices().chain(self.experts().map(|m| (m.first, m.src)))
    }

    /// The buffers that have rows for products, those of heads among them.
    pub fn fed(&self) -> impl Iterator<Item = Buf> + use<> {
        self.products().map(|(_, src)| src).chain(self.heads.map(|(_, _, src)| src))
    }

    /// Those of heads, of which each is multiplied with a part of all rows, as they are.
    pub fn heads(&self) -> impl Iterator<Item = (WeightId, Buf)> + use<> {
        let of = |(first, count, src): (WeightId, usize, Buf)| (0..count).map(move |n| (first.after(n), src));
        self.heads.into_iter().flat_map(of)
    }

    /// All matrices, those of experts and heads one by one, and what they are multiplied with.
    pub fn all_matrices(&self) -> impl Iterator<Item = (WeightId, Buf)> + use<> {
        let experts = self.experts().flat_map(|m| m.ids().map(move |id| (id, m.src)));
        self.matrices().chain(experts).chain(self.heads())
    }

    /// The vectors that norms multiply with and add.
    pub fn norms(&self) -> impl Iterator<Item = WeightId> + use<> {
        self.norms.into_iter().flatten()
    }

    /// All vectors: of norms, biases, and what else is no matrix.
    pub fn vectors(&self) -> impl Iterator<Item = WeightId> + use<> {
        self.norms().chain(self.others.into_iter().flatten())
    }

    /// All weights.
    pub fn weights(&self) -> impl Iterator<Item = WeightId> + use<> {
        self.table.into_iter().chain(self.all_matrices().map(|(id, _)| id)).chain(self.vectors())
    }

    /// Whether nothing is left of what a buffer had before.
    pub fn overwrites(&self, buf: Buf) -> bool {
        self.writes.contains(buf) && !self.reads.contains(buf)
    }
}

fn vectors_of(norms: [Option<Norm>; 2]) -> [Option<WeightId>; 4] {
    let [a, b] = norms.map(|norm| norm.map_or([None; 2], |norm| [norm.weight, norm.bias]));
    [a[0], a[1], b[0], b[1]]
}

impl Plan {
    pub fn operands(&self, op: &Op) -> Operands {
        use Buf as B;
        let rows = |reads, writes| Operands::of_rows(reads, writes);
        let kept = |add: bool, dst| add.then_some(dst);
        match *op {
            Op::Embed { table, by: _, dst, scale: _, add } => {
                Operands { table: Some(table), ..rows(BufSet::NONE.with(kept(add, dst)), BufSet::of([dst])) }
            }
            Op::Norm { norm, group: _, src, dst, add } => Operands {
                norms: vectors_of([Some(norm), None]),
                ..rows(BufSet::of([src]).with(kept(add, dst)), BufSet::of([dst]))
            },
            Op::MatMul { weight, bias, src, dst, add } => Operands {
                matrices: [Some((weight, src)), None],
                others: [bias, None, None],
                ..rows(BufSet::of([src]).with(kept(add, dst)), BufSet::of([dst]))
            },
            Op::Gate { gate, up, activation: _, src, dst } => Operands {
                matrices: [Some((gate.weight, src)), up.map(|Linear { weight, .. }| (weight, src))],
                others: [gate.bias, up.and_then(|up| up.bias), None],
                ..rows(BufSet::of([src]), BufSet::of([dst]))
            },
            Op::Multiply { dst, f: _, by, g: _, column: _ } => rows(BufSet::of([dst, by]), BufSet::of([dst])),
            Op::Add { src, dst, scale: _, gate } => {
                rows(BufSet::of([src, dst]).with(gate), BufSet::of([dst]))
            }
            Op::Take { src, from: _, group: _, dst, to } => {
                rows(BufSet::of([src]).with((to.from > 0).then_some(dst)), BufSet::of([dst]))
            }
            Op::PerHead { first, heads, src, from: _, dst, to } => Operands {
                heads: Some((first, heads, src)),
                ..rows(BufSet::of([src]).with((to.from > 0).then_some(dst)), BufSet::of([dst]))
            },
            Op::Scale { buf, by: _ } | Op::Weigh { buf, adapter: _ } => {
                rows(BufSet::of([buf]), BufSet::of([buf]))
            }
            Op::Store(id) => {
                let spec = self.attention(id);
                let norms = vectors_of([spec.q_norm, spec.k_norm]);
                match spec.keys_of {
                    None => Operands {
                        norms,
                        cache: CacheUse::Writes,
                        ..rows(
                            BufSet::of([spec.q, spec.k]).with((!spec.values_are_keys).then_some(spec.v)),
                            BufSet::of([spec.q, spec.k]),
                        )
                    },
                    Some(_) => Operands { norms, ..rows(BufSet::of([spec.q]), BufSet::of([spec.q])) },
                }
            }
            Op::Attend(id) => {
                let spec = self.attention(id);
                Operands {
                    others: [spec.sinks, None, None],
                    cache: CacheUse::Reads,
                    ..rows(BufSet::of([spec.q]), BufSet::of([spec.out]))
                }
            }
            Op::Convolve(id) => {
                let Conv { src, dst, weight, bias, .. } = self.mixer(id).conv;
                Operands {
                    others: [Some(weight), bias, None],
                    cache: CacheUse::States,
                    ..rows(BufSet::of([src]), BufSet::of([dst]))
                }
            }
            Op::Scan(id) => {
                let MixerSpec { conv, scan } = self.mixer(id);
                let Some(scan) = scan else { return rows(BufSet::NONE, BufSet::NONE) };
                let (beside, through) = match scan.kind {
                    ScanKind::GatedDelta { beta, eps: _ } => (Some(beta), None),
                    ScanKind::Mamba2 { through } => (None, Some(through)),
                };
                Operands {
                    others: [Some(scan.step_bias), Some(scan.decay), through],
                    cache: CacheUse::States,
                    ..rows(BufSet::of([conv.dst, scan.step]).with(beside), BufSet::of([scan.out]))
                }
            }
            Op::Choose(id) => {
                let moe = self.moe(id);
                Operands {
                    others: [moe.choice_bias, moe.expert_scale, None],
                    ..rows(BufSet::of([moe.scores]), BufSet::of([moe.chosen]))
                }
            }
            Op::ExpertsGate(id) => {
                let moe = self.moe(id);
                Operands {
                    experts: [
                        moe.gate.map(|gate| moe.matrices(gate, moe.src)),
                        Some(moe.matrices(moe.up, moe.src)),
                    ],
                    others: [moe.gate.and_then(|gate| gate.bias), moe.up.bias, None],
                    ..rows(BufSet::of([moe.src, moe.chosen]), BufSet::of([moe.hidden]))
                }
            }
            Op::ExpertsDown(id) => {
                let moe = self.moe(id);
                Operands {
                    experts: [Some(moe.matrices(moe.down, moe.hidden)), None],
                    others: [moe.down.bias, None, None],
                    ..rows(BufSet::of([moe.hidden, moe.chosen]), BufSet::of([moe.results]))
                }
            }
            Op::ExpertsSum(id) => {
                let moe = self.moe(id);
                rows(
                    BufSet::of([moe.results, moe.chosen]).with(kept(moe.add, moe.dst)),
                    BufSet::of([moe.dst]),
                )
            }
            // Its norm leaves its rows in H, which its matrix reads.
            Op::Head { norm, weight, bias, scale: _, cap: _ } => Operands {
                matrices: [Some((weight, B::H)), None],
                norms: vectors_of([Some(norm), None]),
                others: [bias, None, None],
                ..rows(BufSet::of([B::X]), BufSet::of([B::H]))
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named() -> [Buf; Buf::NAMED] {
        std::array::from_fn(Buf::new)
    }

    #[test]
    fn a_set_has_the_buffers_that_it_was_made_of() {
        for first in named() {
            for second in named() {
                let set = BufSet::of([first, second]);
                for buf in named() {
                    assert_eq!(
                        set.contains(buf),
                        buf == first || buf == second,
                        "{first:?} {second:?} {buf:?}"
                    );
                }
            }
        }
        assert_eq!(BufSet::of([Buf::G, Buf::X]).iter().collect::<Vec<_>>(), [Buf::X, Buf::G]);
        assert_eq!(BufSet::NONE.iter().count(), 0);
    }

    #[test]
    fn a_product_that_adds_keeps_what_was_there() {
        let plan = Plan { widths: vec![1; Buf::NAMED], ..Plan::default() };
        let of = |add| {
            let op =
                Op::MatMul { weight: WeightId(1), bias: Some(WeightId(2)), src: Buf::A, dst: Buf::X, add };
            plan.operands(&op)
        };
        assert!(of(false).overwrites(Buf::X));
        assert!(!of(true).overwrites(Buf::X));
        assert_eq!(of(true).weights().collect::<Vec<_>>(), [WeightId(1), WeightId(2)]);
        assert_eq!(of(true).matrices().collect::<Vec<_>>(), [(WeightId(1), Buf::A)]);
    }
}
