//! What an operation reads and writes, said once. Who loads, counts, places or schedules operations asks here, so that
//! a new operation is described in one place.

use super::{Buf, Op, WeightId};

/// A set of work buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufSet(u8);

impl BufSet {
    pub const NONE: BufSet = BufSet(0);

    pub const fn of<const N: usize>(bufs: [Buf; N]) -> Self {
        let mut set = 0;
        let mut i = 0;
        while i < N {
            set |= 1 << bufs[i] as u8;
            i += 1;
        }
        BufSet(set)
    }

    pub fn contains(self, buf: Buf) -> bool {
        self.0 & 1 << buf as u8 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Buf> {
        Buf::ALL.into_iter().filter(move |&buf| self.contains(buf))
    }
}

/// What an operation does with the K/V cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUse {
    None,
    Reads,
    Writes,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operands {
    /// A matrix of which each row of the pass reads one row.
    pub table: Option<WeightId>,
    matrices: [Option<(WeightId, Buf)>; 2],
    norms: [Option<WeightId>; 2],
    pub bias: Option<WeightId>,
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
            norms: [None; 2],
            bias: None,
            reads,
            writes,
            cache: CacheUse::None,
        }
    }

    /// The matrices that rows are multiplied with, and the buffer that has these rows.
    pub fn matrices(&self) -> impl Iterator<Item = (WeightId, Buf)> + use<> {
        self.matrices.into_iter().flatten()
    }

    /// The vectors that norms multiply with.
    pub fn norms(&self) -> impl Iterator<Item = WeightId> + use<> {
        self.norms.into_iter().flatten()
    }

    /// All vectors: norms and biases.
    pub fn vectors(&self) -> impl Iterator<Item = WeightId> + use<> {
        self.norms().chain(self.bias)
    }

    /// All weights.
    pub fn weights(&self) -> impl Iterator<Item = WeightId> + use<> {
        self.table.into_iter().chain(self.matrices().map(|(id, _)| id)).chain(self.vectors())
    }

    /// Whether nothing is left of what a buffer had before.
    pub fn overwrites(&self, buf: Buf) -> bool {
        self.writes.contains(buf) && !self.reads.contains(buf)
    }
}

impl Op {
    pub fn operands(&self) -> Operands {
        use Buf::{A, G, H, K, Q, V, X};
        let rows = |reads, writes| Operands::of_rows(reads, writes);
        match *self {
            Op::Embed { table } => Operands { table: Some(table), ..rows(BufSet::NONE, BufSet::of([X])) },
            Op::Norm { weight, eps: _ } => {
                Operands { norms: [Some(weight), None], ..rows(BufSet::of([X]), BufSet::of([H])) }
            }
            Op::MatMul { weight, bias, src, dst, add } => {
                let reads = if add { BufSet::of([src, dst]) } else { BufSet::of([src]) };
                Operands { matrices: [Some((weight, src)), None], bias, ..rows(reads, BufSet::of([dst])) }
            }
            Op::RopeStore { q_norm, k_norm, eps: _ } => Operands {
                norms: [q_norm, k_norm],
                cache: CacheUse::Writes,
                ..rows(BufSet::of([Q, K, V]), BufSet::of([Q, K]))
            },
            Op::Attend { scale: _ } => {
                Operands { cache: CacheUse::Reads, ..rows(BufSet::of([Q]), BufSet::of([A])) }
            }
            Op::GateUp { gate, up } => Operands {
                matrices: [Some((gate, H)), Some((up, H))],
                ..rows(BufSet::of([H]), BufSet::of([G]))
            },
            // Its norm leaves its rows in H, which its matrix reads.
            Op::Head { norm, eps: _, weight } => Operands {
                matrices: [Some((weight, H)), None],
                norms: [Some(norm), None],
                ..rows(BufSet::of([X]), BufSet::of([H]))
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_buffers_that_it_was_made_of() {
        for first in Buf::ALL {
            for second in Buf::ALL {
                let set = BufSet::of([first, second]);
                for buf in Buf::ALL {
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
        let op =
            |add| Op::MatMul { weight: WeightId(1), bias: Some(WeightId(2)), src: Buf::A, dst: Buf::X, add };
        assert!(op(false).operands().overwrites(Buf::X));
        assert!(!op(true).operands().overwrites(Buf::X));
        assert_eq!(op(true).operands().weights().collect::<Vec<_>>(), [WeightId(1), WeightId(2)]);
        assert_eq!(op(true).operands().matrices().collect::<Vec<_>>(), [(WeightId(1), Buf::A)]);
    }
}
