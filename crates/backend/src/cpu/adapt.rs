//! What adapters add to products: `B·(s·A·x)` for each row by its own text's scales. What `A` makes of the rows is a phase
//! before the product's own, because all of it is needed for each column. A row's sums are those of float products, one
//! adapter after the other, so its bits do not depend on other rows.

use std::ops::Range;

use super::{
    experts::Gathered,
    matmul::{self, Acts, Mode, OutMatrix},
    pass::Pass,
    rows::SharedRows,
    schedule::{Phase, THIN_PLACES, ThinOf},
    team::Member,
};
use crate::{
    Model,
    lora::{Loras, Scales, Thin},
    plan::{Buf, WeightId},
};

/// Up to so many rows alike, threads share what `A` makes of each; of more they share the rows.
const FEW_ROWS: usize = 16;

/// What `A` makes of rows, until the products that it belongs to are made.
pub struct ThinRows {
    places: [SharedRows; THIN_PLACES],
    max_rows: usize,
}

impl ThinRows {
    pub fn new(model: &Model, loras: &Loras, max_rows: usize) -> Self {
        let ranks = |op| model.plan.operands(op).matrices().map(|(id, _)| loras.ranks(id)).sum::<usize>();
        let widest = model.plan.ops().map(ranks).max().unwrap_or(0);
        ThinRows { places: std::array::from_fn(|_| SharedRows::new(1, max_rows * widest)), max_rows }
    }
}

/// The thin matrices that one adapter adds to one of a phase's matrices, and where their rows begin in a buffer of thin rows.
struct Added<'a> {
    weight: WeightId,
    adapter: usize,
    thin: &'a Thin,
    begin: usize,
}

impl Added<'_> {
    /// Where these rows lie.
    fn range(&self, rows: &Range<usize>) -> Range<usize> {
        let rank = self.thin.rank();
        self.begin + rows.start * rank..self.begin + rows.end * rank
    }
}

/// Rows that follow each other and have as much of an adapter.
fn runs<'s>(
    adapter: usize,
    scales: impl Iterator<Item = Option<&'s Scales>>,
) -> impl Iterator<Item = (Range<usize>, f32)> {
    let mut each =
        scales.map(move |scales| scales.map_or(0.0, |scales| scales.of(adapter))).enumerate().peekable();
    std::iter::from_fn(move || {
        let (begin, scale) = each.find(|&(_, scale)| scale != 0.0)?;
        let mut end = begin + 1;
        while each.next_if(|&(_, next)| next == scale).is_some() {
            end += 1;
        }
        Some((begin..end, scale))
    })
}

// SAFETY comments as in `pass`: barriers between phases, shares within one.
impl Pass<'_> {
    fn scales(&self, row: usize, phase: &Phase) -> Option<&Scales> {
        self.rows.scales.get(self.row_in_pass(row, phase))?.as_ref()
    }

    /// What a row has of an adapter.
    pub fn scale_of(&self, row: usize, adapter: usize, phase: &Phase) -> f32 {
        self.scales(row, phase).map_or(0.0, |scales| scales.of(adapter))
    }

    fn runs(&self, adapter: usize, phase: &Phase) -> impl Iterator<Item = (Range<usize>, f32)> {
        runs(adapter, (0..self.n_rows(phase)).map(|row| self.scales(row, phase)))
    }

    fn added(&self, weights: [Option<WeightId>; 2]) -> impl Iterator<Item = Added<'_>> {
        let of = |weight| self.loras.of(weight).map(move |(adapter, thin)| (weight, adapter, thin));
        let mut end = 0;
        weights.into_iter().flatten().flat_map(of).map(move |(weight, adapter, thin)| {
            let begin = end;
            end += self.thin_rows.max_rows * thin.rank();
            Added { weight, adapter, thin, begin }
        })
    }

    /// What `A` makes of the rows of a buffer, for each matrix that they are then multiplied with.
    pub fn make_thin(&self, of: ThinOf, src: Buf, phase: &Phase, member: &Member) {
        let place = &self.thin_rows.places[of.place];
        for added in self.added(of.weights) {
            let (rank, a) = (added.thin.rank(), added.thin.a());
            let x = self.floats(src, self.n_rows(phase), member);
            for (run, scale) in self.runs(added.adapter, phase) {
                let (rows, of_a) = match run.len() {
                    ..=FEW_ROWS => (run.clone(), member.share(rank, 1)),
                    _ => {
                        let share = member.share(run.len(), 1);
                        (run.start + share.start..run.start + share.end, 0..rank)
                    }
                };
                if rows.is_empty() || of_a.is_empty() {
                    continue;
                }
                let part = added.range(&rows);
                assert!(part.end <= place.width());
                // SAFETY: within the place, as checked; these numbers of these rows are this thread's share.
                let out = unsafe {
                    let first = place.as_ptr().add(part.start);
                    OutMatrix::from_raw(first, rows.len(), rank, Mode::Store)
                };
                // SAFETY: as above.
                let mut stripe = unsafe { out.stripe(of_a) };
                let x = &x[rows.start * a.cols()..rows.end * a.cols()];
                matmul::matmul(self.isa, &a.times(scale * added.thin.times()), Acts::Float(x), &mut stripe);
            }
        }
    }

    /// Adds what adapters have for a product to columns of it that this thread has just computed. `out` is `[rows, width]`.
    pub fn adapt(
        &self,
        weight: WeightId,
        (out, width): (*mut f32, usize),
        columns: Range<usize>,
        phase: &Phase,
    ) {
        let Some(of) = phase.thin else { return };
        let place = &self.thin_rows.places[of.place];
        for added in self.added(of.weights).filter(|added| added.weight == weight) {
            for (run, _) in self.runs(added.adapter, phase) {
                // SAFETY: what `A` made is settled; these columns were dealt to this thread, and the rows are the phase's.
                let (low, out) = unsafe {
                    let first = out.add(run.start * width);
                    (
                        place.columns(0, added.range(&run)),
                        OutMatrix::from_raw(first, run.len(), width, Mode::Add),
                    )
                };
                // SAFETY: as above.
                let mut stripe = unsafe { out.stripe(columns.clone()) };
                matmul::matmul(self.isa, &added.thin.b(), Acts::Float(low), &mut stripe);
            }
        }
    }

    /// Whether some row of the pass has something of an adapter for a matrix.
    pub fn is_adapted(&self, weight: WeightId) -> bool {
        self.shape.asked.adapted && self.loras.adapts(weight)
    }

    /// The same as [`Pass::adapt`] for rows that chose an expert: `out` is `[gathered, width]`, `rows` their numbers.
    pub fn adapt_gathered(
        &self,
        weight: WeightId,
        rows: impl Iterator<Item = usize> + Clone,
        gathered: &mut Gathered,
        (out, width): (&mut [f32], usize),
        columns: Range<usize>,
        phase: &Phase,
    ) {
        if !self.is_adapted(weight) {
            return;
        }
        let Gathered { f32s, thin: low, .. } = gathered;
        for (adapter, thin) in self.loras.of(weight) {
            let (a, b, rank) = (thin.a(), thin.b(), thin.rank());
            for (run, scale) in runs(adapter, rows.clone().map(|row| self.scales(row, phase))) {
                low.resize(low.len().max(run.len() * rank), 0.0);
                let low = &mut low[..run.len() * rank];
                let x = Acts::Float(&f32s[run.start * a.cols()..run.end * a.cols()]);
                let mut made = OutMatrix::new(&mut *low, rank, Mode::Store);
                matmul::matmul(self.isa, &a.times(scale * thin.times()), x, &mut made.whole());
                let mut sums = OutMatrix::new(&mut out[run.start * width..run.end * width], width, Mode::Add);
                matmul::matmul(self.isa, &b, Acts::Float(low), &mut sums.part(columns.clone()));
            }
        }
    }

    /// The same for the row that a token became.
    pub fn adapt_token(&self, row: usize, x: &mut [f32]) {
        let Some(Some(scales)) = self.rows.scales.get(row) else { return };
        for (adapter, thin) in self.loras.of_table() {
            let scale = scales.of(adapter);
            if scale == 0.0 {
                continue;
            }
            let mut low = vec![0.0; thin.rank()];
            thin.of_token(self.rows.tokens[row], &mut low);
            let mut sums = OutMatrix::new(&mut *x, thin.b().rows(), Mode::Add);
            matmul::matmul(
                self.isa,
                &thin.b().times(scale * thin.times()),
                Acts::Float(&low),
                &mut sums.whole(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_as_much_of_an_adapter_stand_together() {
        let some = |scales: &[f32]| Scales::new(scales);
        let rows = [None, some(&[0.5, 2.0]), some(&[0.5, 1.0]), some(&[0.0, 1.0]), None, some(&[0.5, 0.0])];
        let of = |adapter| runs(adapter, rows.iter().map(Option::as_ref)).collect::<Vec<_>>();
        assert_eq!(of(0), [(1..3, 0.5), (5..6, 0.5)]);
        assert_eq!(of(1), [(1..2, 2.0), (2..4, 1.0)]);
        assert_eq!(of(2), []);
    }
}
