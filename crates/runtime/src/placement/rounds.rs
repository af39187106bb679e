//! What a round of speculation is expected to give: the number of drafted tokens, what drafts them, and the time of it.

use super::{Acceptance, Basis, PassTime, Placement};

/// The longest draft.
pub const MOST_DRAFTED: usize = 48;

/// The most guesses that a draft step checks in one pass.
const MOST_GUESSES: usize = 4;

/// A head that drafts by itself, or guesses for the steps of a draft.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadSteps {
    /// Seconds of one.
    pub seconds: f64,
    pub acceptance: Acceptance,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Seconds for a token without drafts, for each drafted one, and for a round of `drafted` of them and a verification.
    pub token: f64,
    pub draft: f64,
    pub round: f64,
    pub drafted: usize,
    /// Tokens that a round gives.
    pub tokens: f64,
    /// What the round's verification waits for.
    pub verification: PassTime,
}

impl Prediction {
    pub fn plain(pass: PassTime) -> Self {
        let token = pass.total();
        Prediction { token, draft: 0.0, round: token, drafted: 0, tokens: 1.0, verification: pass }
    }

    pub fn tokens_per_second(&self) -> f64 {
        self.tokens / self.round
    }

    /// Compared with plain decoding with the same placement.
    pub fn speedup(&self) -> f64 {
        self.tokens_per_second() * self.token
    }
}

impl Placement {
    /// Tokens a second, with speculation where it pays.
    pub fn rate(&self, basis: &Basis) -> f64 {
        let prediction = self.predict(basis);
        prediction.tokens_per_second().max(1.0 / prediction.token)
    }

    /// With drafts by the layers of the draft's mask; plain decoding where there is no mask.
    #[doc(hidden)]
    pub fn predict(&self, basis: &Basis) -> Prediction {
        match self.drafts() {
            true => self.rounds(basis, self.pass_time(basis, true, 1).total(), basis.acceptance),
            false => Prediction::plain(self.pass_time(basis, false, 1)),
        }
    }

    /// With drafts by a head alone.
    pub(super) fn predict_by_head(&self, basis: &Basis, head: HeadSteps) -> Prediction {
        self.rounds(basis, head.seconds, head.acceptance)
    }

    /// In steps: a head guesses several tokens, and a pass of the draft's layers checks them at once. Its choices are the draft.
    pub(super) fn predict_in_steps(&self, basis: &Basis, head: HeadSteps) -> Prediction {
        let of_guesses = |guesses: usize| {
            let checking = self.pass_time(basis, true, guesses + 1).total();
            (guesses as f64 * head.seconds + checking) / head.acceptance.tokens(guesses)
        };
        let draft = (0..=MOST_GUESSES).map(of_guesses).fold(f64::INFINITY, f64::min);
        self.rounds(basis, draft, basis.acceptance)
    }

    /// The length that gives the most.
    fn rounds(&self, basis: &Basis, draft: f64, acceptance: Acceptance) -> Prediction {
        let token = self.pass_time(basis, false, 1).total();
        let of = |drafted: usize| {
            let verification = self.pass_time(basis, false, drafted + 1);
            let round = drafted as f64 * draft + verification.total();
            Prediction { token, draft, round, drafted, tokens: acceptance.tokens(drafted), verification }
        };
        let best = |a: &Prediction, b: &Prediction| a.speedup().total_cmp(&b.speedup());
        (1..=MOST_DRAFTED).map(of).max_by(best).expect("some lengths")
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Budgets, First, PlacementRequest, RowWork, UnitSize,
            forecast::{Known, Origin},
            place,
            tests::{basis, model},
        },
        *,
    };
    use crate::RunLayers;

    fn chances(chance: f64) -> Acceptance {
        Acceptance::new(&[chance], Origin::Given)
    }

    /// Four layers and a head in RAM, 1251 bytes a token, of which drafts read half of the layers.
    fn in_ram(products: u64) -> Placement {
        let mask = RunLayers::all(4).skip_attn(1).skip_mlp(1).skip_attn(3).skip_mlp(3);
        let work = |part: UnitSize| UnitSize { work: RowWork { products, crossing: 0 }, ..part };
        let parts = model(4, Some(&mask)).into_iter().map(work).collect();
        let request = PlacementRequest { draft: Some(mask), ..PlacementRequest::default() };
        let placed = place(parts, &request, Budgets { vram: None, scratch: 0, ram: None }).unwrap();
        assert_eq!(placed.first, First::Drafted);
        placed
    }

    /// By hand: drafts that cost nothing and of which nine in ten stand are as long as rows are free.
    #[test]
    fn drafts_are_deep_where_rows_are_free() {
        let free = basis([100.0, 10.0, 1.0], 0.0);
        let head = HeadSteps { seconds: 0.0, acceptance: chances(0.9) };
        let deep = in_ram(0).predict_by_head(&free, head);
        assert_eq!(deep.drafted, MOST_DRAFTED);
        let tokens: f64 = (0..=MOST_DRAFTED as i32).map(|i| 0.9f64.powi(i)).sum();
        assert!((deep.tokens - tokens).abs() < 1e-9 && (deep.round - 125.1).abs() < 1e-9, "{deep:?}");
        // Each of nine products of a row takes ten seconds: then no draft pays.
        let slow = Basis { cpu_products: Known::given(1.0), ..free };
        let dear = in_ram(10).predict_by_head(&slow, HeadSteps { acceptance: chances(0.1), ..head });
        assert_eq!(dear.drafted, 1);
        assert!(dear.speedup() < 1.0, "{dear:?}");
    }

    /// By hand: a step reads 651 bytes; with four guesses that are always right it gives five tokens.
    #[test]
    fn guesses_make_draft_steps_cheaper() {
        let basis = Basis { acceptance: chances(0.8), ..basis([100.0, 10.0, 1.0], 0.0) };
        let placed = in_ram(0);
        let of =
            |chance| placed.predict_in_steps(&basis, HeadSteps { seconds: 1.0, acceptance: chances(chance) });
        let sure = of(1.0);
        assert!((sure.draft - (65.1 + 4.0) / 5.0).abs() < 1e-9, "{sure:?}");
        // One that is never right is not asked.
        assert_eq!(of(0.0), placed.predict(&basis));
        assert!(sure.tokens > of(0.0).tokens && sure.speedup() > of(0.0).speedup());
    }
}
