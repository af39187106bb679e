//! The costs of a round of speculation: T(n), the time to evaluate n rows, and the time of a draft step, both in units of a plain
//! step, T(1).
//!
//! The estimate begins with a guess from bytes. It is corrected by [`measure`] where there is time for that, and then by the timings
//! of every round. Times are kept as ratios to a plain step, so decisions do not change if all work becomes slower.

mod filter;
mod measure;
mod together;

pub use measure::{DEFAULT_BUDGET, measure};
pub use together::{RoundWork, Together};

use self::filter::Filter;
use super::policy::SourceInfo;

/// The most rows of a verification whose cost is estimated; no longer ones are planned. Drafts of 48 tokens are worth it where
/// weights are in slow memory, and where a text is copied.
pub const MOST_ROWS: usize = 49;

/// What one more row costs, before anything was measured: a little more than its arithmetic on a wide machine.
const ROW_GUESS: f64 = 0.15;
/// Standard deviation of ln T(n)/T(1) per unit of √ln n, when guessed: T(2) is known within a third or so.
const ROWS_DOUBT: f64 = 0.4;
/// Kernels change at some number of rows: what T(n) may differ from its neighbours.
const CLIFF_DOUBT: f64 = 0.04;
/// The same for a draft step whose cost was counted in bytes.
const DRAFT_DOUBT: f64 = 0.25;
/// How much longer a verification in two parts takes than by its bytes, and the uncertainty of that.
const RESUMED: f64 = 1.02;
const RESUMED_DOUBT: f64 = 0.05;
/// A draft step takes some time, even if it reads next to nothing.
const LEAST_DRAFT: f64 = 0.005;

/// The costs of passes and draft steps, in plain steps.
#[derive(Clone, Debug)]
pub struct Costs {
    filter: Filter,
    /// T(n)/T(1) for n = 1.., never falling.
    rows: Vec<f64>,
    /// Per source; 0 for one that looks up and has no steps.
    draft: Vec<f64>,
    /// Per source the share of a plain step that a resumed verification does for one row only, the draft's last.
    prefix: Vec<Option<f64>>,
    /// Per source, the time of a resumed verification over the expected time.
    resumed: Vec<f64>,
    frozen: bool,
    /// The first plain steps, until there are [`ANCHORS`] or they have taken [`ANCHORING`]. A single short one may be an outlier, and
    /// everything else is compared with them.
    first_steps: Vec<f64>,
}

const ANCHORS: usize = 3;
/// Seconds of measured steps that are enough to average outliers.
const ANCHORING: f64 = 0.5;

impl Costs {
    /// A guess: rows by arithmetic, draft steps by the bytes that they read.
    pub fn guess(sources: &[SourceInfo]) -> Self {
        let draft: Vec<f64> = sources.iter().map(|source| source.cost).collect();
        Self::guess_of(&draft, 0.0).with_prefixes(sources)
    }

    /// A guess for a model with a part in slow memory: a plain step waits for it for the share `waits` of its time, regardless of the
    /// number of rows. The caller, who knows where the weights are, guesses the draft steps, in plain steps.
    pub fn guess_of(draft: &[f64], waits: f64) -> Self {
        Self::guess_reading(draft, waits, |_| 1.0)
    }

    /// The same, where reading takes so many times as long for so many rows as for one.
    pub fn guess_reading(draft: &[f64], waits: f64, reads: impl Fn(usize) -> f64) -> Self {
        let row = ROW_GUESS * (1.0 - waits);
        let rows: Vec<f64> = (1..=MOST_ROWS).map(|n| reads(n) + row * (n - 1) as f64).collect();
        Self::believed(&rows, draft, ROWS_DOUBT, DRAFT_DOUBT)
    }

    /// What was learnt before, on the same machine: `rows` has T(n)/T(1) for n = 1 to [`MOST_ROWS`], `draft` the
    /// cost of a step for each source of which it is known.
    pub fn recalled(sources: &[SourceInfo], rows: &[f64], draft: &[Option<f64>]) -> Self {
        const DOUBT: f64 = 0.1;
        let draft: Vec<f64> =
            std::iter::zip(sources, draft).map(|(source, known)| known.unwrap_or(source.cost)).collect();
        Self::believed(rows, &draft, DOUBT, DRAFT_DOUBT).with_prefixes(sources)
    }

    /// The guess, which timings do not change: decisions then do not depend on the clock.
    pub fn frozen(sources: &[SourceInfo]) -> Self {
        Costs { frozen: true, ..Self::guess(sources) }
    }

    fn believed(rows: &[f64], draft: &[f64], rows_doubt: f64, draft_doubt: f64) -> Self {
        let steps = draft.iter().map(|c| c.max(LEAST_DRAFT));
        let resumed = vec![RESUMED; draft.len()];
        let shapes: Vec<f64> =
            rows[1..].iter().copied().chain(steps).chain(resumed.iter().copied()).map(f64::ln).collect();
        let (n_rows, n_steps) = (MOST_ROWS - 1, draft.len());
        // Errors of T(n) add up from row to row, so those of neighbours are similar: a random walk over ln n.
        let filter = Filter::new(&shapes, |i, j| {
            let own = f64::from(i == j);
            match (i < n_rows, j < n_rows) {
                (true, true) => {
                    let shared = ((i.min(j) + 2) as f64).ln();
                    rows_doubt * rows_doubt * shared + own * CLIFF_DOUBT * CLIFF_DOUBT
                }
                (false, false) if i < n_rows + n_steps => own * draft_doubt * draft_doubt,
                (false, false) => own * RESUMED_DOUBT * RESUMED_DOUBT,
                _ => 0.0,
            }
        });
        let mut costs = Costs {
            filter,
            rows: vec![1.0; MOST_ROWS],
            draft: draft.to_vec(),
            prefix: vec![None; draft.len()],
            resumed,
            frozen: false,
            first_steps: Vec::new(),
        };
        costs.read_filter();
        costs
    }

    /// With the share of each source's steps that verification need not repeat.
    pub fn with_prefixes(mut self, sources: &[SourceInfo]) -> Self {
        self.prefix = sources.iter().map(|source| source.prefix.map(|prefix| prefix.share)).collect();
        self
    }

    /// T(n)/T(1). Beyond [`MOST_ROWS`] it continues with the last slope.
    pub fn rows(&self, n: usize) -> f64 {
        match n {
            0 => 0.0,
            n if n <= MOST_ROWS => self.rows[n - 1],
            n => {
                let (before, last) = (self.rows[MOST_ROWS - 2], self.rows[MOST_ROWS - 1]);
                last + (last - before) * (n - MOST_ROWS) as f64
            }
        }
    }

    /// T(n)/T(1) for n = 1 to [`MOST_ROWS`].
    pub fn all_rows(&self) -> &[f64] {
        &self.rows
    }

    /// One draft step of a source, in plain steps.
    pub fn draft(&self, source: usize) -> f64 {
        self.draft[source]
    }

    /// The cost of a pass over `n` rows that goes on from the rows of a source's draft: only the draft's last token runs through the
    /// first layers, and all rows through the others.
    fn resumed(&self, source: usize, n: usize) -> Option<f64> {
        let share = self.prefix[source].filter(|_| n > 1)?;
        Some(self.resumed[source] * (share + (1.0 - share) * self.rows(n)))
    }

    /// Whether that is cheaper than a pass of all rows through all layers.
    pub fn resuming_pays(&self, source: usize, n: usize) -> bool {
        self.resumed(source, n).is_some_and(|cost| cost < self.rows(n))
    }

    /// The cost of verifying `drafted` tokens and the one before them, in the cheaper way.
    pub fn verification(&self, source: usize, drafted: usize) -> f64 {
        let whole = self.rows(drafted + 1);
        self.resumed(source, drafted + 1).map_or(whole, |resumed| resumed.min(whole))
    }

    /// The cost of a round with `drafted` tokens that take so many draft steps.
    pub fn round(&self, source: usize, steps: f64, drafted: usize) -> f64 {
        steps * self.draft(source) + self.verification(source, drafted)
    }

    /// Seconds of a plain step at the machine's present pace; meaningless before the first timing.
    pub fn step_seconds(&self) -> f64 {
        self.filter.pace().exp()
    }

    /// A time in plain steps; `None` if timings are not used.
    pub fn in_steps(&self, seconds: f64) -> Option<f64> {
        (!self.frozen && self.anchored()).then(|| seconds / self.step_seconds())
    }

    /// Whether enough plain steps were timed to compare other timings with them; until then these are not used.
    pub fn anchored(&self) -> bool {
        self.frozen || self.first_steps.len() >= ANCHORS || self.first_steps.iter().sum::<f64>() >= ANCHORING
    }

    /// Learns how long a full pass over `n` rows took.
    pub fn saw_rows(&mut self, n: usize, seconds: f64) {
        let kind = match n {
            1 => None,
            2..=MOST_ROWS => Some(n - 2),
            _ => return,
        };
        if n == 1 && !self.anchored() {
            self.anchor(seconds);
        } else {
            self.saw(kind, seconds, 1);
        }
    }

    /// Learns how long a pass over `n` rows took that went on from the rows of a source's draft. It does not change T(n), only the
    /// ratio of such passes to their expected time.
    pub fn saw_resumed(&mut self, source: usize, n: usize, seconds: f64) {
        if let Some(cost) = self.resumed(source, n) {
            let kind = MOST_ROWS - 1 + self.draft.len() + source;
            self.saw(Some(kind), seconds * self.resumed[source] / cost, 1);
        }
    }

    /// Learns how long `steps` draft steps of a source took together. A lookup has no steps: its time is counted elsewhere.
    pub fn saw_draft(&mut self, source: usize, seconds: f64, steps: usize) {
        if steps > 0 && !self.looks_up(source) {
            self.saw(Some(MOST_ROWS - 1 + source), seconds / steps as f64, steps);
        }
    }

    /// How many sources it knows.
    pub fn sources(&self) -> usize {
        self.draft.len()
    }

    /// Whether the source's drafts cost nothing of their own.
    pub fn looks_up(&self, source: usize) -> bool {
        self.draft[source] == 0.0
    }

    /// Lets a round pass: the machine may have become faster or slower.
    pub fn drift(&mut self) {
        if !self.frozen {
            self.filter.drift();
        }
    }

    fn anchor(&mut self, seconds: f64) {
        if !seconds.is_finite() || seconds <= 0.0 {
            return;
        }
        self.first_steps.push(seconds);
        if self.anchored() {
            self.first_steps.sort_by(f64::total_cmp);
            let n = self.first_steps.len();
            self.saw(None, self.first_steps[n / 2], n);
        }
    }

    fn saw(&mut self, kind: Option<usize>, seconds: f64, samples: usize) {
        if self.frozen || !self.anchored() || !seconds.is_finite() || seconds <= 0.0 {
            return;
        }
        self.filter.observe(kind, seconds.ln(), samples);
        self.read_filter();
    }

    fn read_filter(&mut self) {
        let mut least = 1.0_f64;
        for (i, row) in self.rows[1..].iter_mut().enumerate() {
            least = least.max(self.filter.shape(i).exp());
            *row = least;
        }
        for (source, c) in self.draft.iter_mut().enumerate().filter(|(_, c)| **c > 0.0) {
            *c = self.filter.shape(MOST_ROWS - 1 + source).exp();
        }
        let first = MOST_ROWS - 1 + self.draft.len();
        for (source, factor) in self.resumed.iter_mut().enumerate() {
            *factor = self.filter.shape(first + source).exp();
        }
    }
}

/// Tokens that a round is expected to give, if the i-th drafted token is accepted with chance `acceptance[i]` once
/// those before it are: the accepted ones and the one that the full model adds.
pub fn expected_tokens(acceptance: impl IntoIterator<Item = f64>) -> f64 {
    let survivals = acceptance.into_iter().scan(1.0, |survival, a| {
        *survival *= a;
        Some(*survival)
    });
    1.0 + survivals.sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculation::policy::Prefix;

    fn mask(cost: f64) -> SourceInfo {
        SourceInfo::mask("mask", cost)
    }

    #[test]
    fn the_formula_gives_the_closed_form() {
        for a in [0.0, 0.3, 0.8, 0.95] {
            for k in [1, 2, 5, 12] {
                let closed = (1.0 - f64::powi(a, k + 1)) / (1.0 - a);
                assert!((expected_tokens(std::iter::repeat_n(a, k as usize)) - closed).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn resuming_pays_where_rows_cost_something_and_less_so_if_it_turns_out_slow() {
        let exit = SourceInfo { prefix: Some(Prefix { layers: 4, share: 0.25 }), ..mask(0.3) };
        let costs_at = |slope: f64| {
            let rows: Vec<f64> = (0..MOST_ROWS).map(|n| 1.0 + slope * n as f64).collect();
            Costs::recalled(&[exit.clone(), mask(0.3)], &rows, &[None, None])
        };
        let mut costs = costs_at(0.2);
        // By hand: 1.02 · (0.25 + 0.75 · 1.8).
        assert!((costs.verification(0, 4) - 1.632).abs() < 1e-9, "{}", costs.verification(0, 4));
        assert!((costs.verification(1, 4) - 1.8).abs() < 1e-9, "nothing is kept there");
        assert!((costs.round(0, 4.0, 4) - 2.832).abs() < 1e-9);
        assert!(costs.resuming_pays(0, 5) && !costs.resuming_pays(1, 5) && !costs.resuming_pays(0, 1));
        assert!(!costs_at(0.001).resuming_pays(0, 5), "where rows are free there is nothing to save");
        (0..ANCHORS).for_each(|_| costs.saw_rows(1, 0.01));
        (0..50).for_each(|_| costs.saw_resumed(0, 5, 0.022));
        assert!(!costs.resuming_pays(0, 5), "{}", costs.verification(0, 4));
        assert!((costs.rows(5) / 1.8 - 1.0).abs() < 0.1, "T(5) is no slower for that: {}", costs.rows(5));
    }

    /// Numbers from a fixed stream, roughly normal.
    fn noise(state: &mut u64) -> f64 {
        let mut uniform = || {
            *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (*state >> 11) as f64 * (-53f64).exp2()
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }

    #[test]
    fn rounds_correct_a_wrong_guess_although_the_machine_drifts() {
        let truth_rows = |n: usize| 1.0 + 0.4 * (n - 1) as f64;
        let truth_draft = 0.8;
        let mut costs = Costs::guess(&[mask(0.4)]);
        let mut state = 1;
        for round in 0..300 {
            // Slower and faster by a factor of four, and now and then something gets in between.
            let pace = 0.01 * (2.0 * (round as f64 / 40.0).sin()).exp2();
            let mut time = |true_cost: f64| {
                let spike = if round % 11 == 5 { 6.0 } else { 1.0 };
                pace * true_cost * spike * (0.05 * noise(&mut state)).exp()
            };
            costs.drift();
            if round < 3 || round % 16 == 0 {
                costs.saw_rows(1, time(1.0));
                continue;
            }
            let k = 1 + round % 5;
            costs.saw_draft(0, k as f64 * time(truth_draft), k);
            costs.saw_rows(k + 1, time(truth_rows(k + 1)));
        }
        for n in 2..=6 {
            let wrong = costs.rows(n) / truth_rows(n);
            assert!((0.9..1.1).contains(&wrong), "T({n}): {wrong}");
        }
        let wrong = costs.draft(0) / truth_draft;
        assert!((0.9..1.1).contains(&wrong), "draft: {wrong}");
    }

    #[test]
    fn what_is_measured_for_some_lengths_is_believed_of_those_between() {
        let mut costs = Costs::guess(&[]);
        for n in [1, 1, 1, 2, 4, 8, 16] {
            costs.saw_rows(n, 0.02 * (1.0 + 0.5 * (n - 1) as f64));
        }
        for n in [3, 5, 6, 7, 12] {
            let truth = 1.0 + 0.5 * (n - 1) as f64;
            assert!((costs.rows(n) / truth - 1.0).abs() < 0.15, "T({n}) = {}, truth {truth}", costs.rows(n));
        }
        assert!(costs.all_rows().is_sorted());
    }

    #[test]
    fn frozen_costs_do_not_hear_the_clock() {
        let mut costs = Costs::frozen(&[mask(0.5)]);
        let before = costs.clone();
        costs.drift();
        costs.saw_rows(1, 1.0);
        costs.saw_rows(4, 9.0);
        costs.saw_draft(0, 2.0, 1);
        assert_eq!((costs.all_rows(), costs.draft(0)), (before.all_rows(), before.draft(0)));
    }

    #[test]
    fn a_step_of_seconds_is_enough_to_measure_against() {
        let mut costs = Costs::guess_of(&[0.07], 0.9);
        costs.saw_draft(0, 1.0, 1);
        assert!(!costs.anchored());
        costs.saw_rows(1, 3.0);
        assert!(costs.anchored() && (costs.step_seconds() - 3.0).abs() < 0.01);
        // Waiting for a file costs many rows what it costs one.
        assert!(costs.rows(9) < 1.15 && costs.rows(9) > 1.0);
        let mut short = Costs::guess_of(&[0.07], 0.9);
        (0..2).for_each(|_| short.saw_rows(1, 0.01));
        assert!(!short.anchored());
    }

    /// As where several rows choose more experts together than one does.
    #[test]
    fn what_more_rows_read_is_guessed_too() {
        let reads = |n: usize| 2.0 - 0.5f64.powi(n as i32 - 1);
        let (alike, more) = (Costs::guess_of(&[], 0.0), Costs::guess_reading(&[], 0.0, reads));
        for n in 1..=MOST_ROWS {
            let further = more.rows(n) - alike.rows(n);
            assert!((further - (reads(n) - 1.0)).abs() < 1e-9, "{n} rows: {further}");
        }
    }

    #[test]
    fn times_that_cannot_be_are_passed_over() {
        let mut costs = Costs::guess(&[mask(0.5)]);
        (0..ANCHORS).for_each(|_| costs.saw_rows(1, 0.01));
        let before = costs.all_rows().to_vec();
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            costs.saw_rows(2, seconds);
            costs.saw_draft(0, seconds, 1);
        }
        assert_eq!((costs.all_rows(), costs.draft(0)), (&before[..], costs.draft(0)));
    }
}
