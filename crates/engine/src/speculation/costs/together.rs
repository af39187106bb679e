//! The costs of passes with several texts: one text's estimates, corrected by measured times.
//!
//! A text by itself needs no correction: its own rounds correct its estimates.

use std::collections::BTreeMap;

use super::Costs;
use crate::speculation::controller::SPIKE;

/// How fast measured times replace estimates.
const LEARN: f64 = 0.2;
/// After this many passes a plain round has to be measured again.
const PLAIN_AGAIN: u64 = 24;
/// Earlier measurements then have the weight of at most this many passes.
const WORTH: u32 = 4;

/// The measured times of passes with one number of rows.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Their time over the estimated one.
    factor: f64,
    times: u32,
    /// The number of the pass that was the last.
    last: u64,
}

/// The work of a round with several texts.
#[derive(Clone, Copy, Debug)]
pub struct RoundWork {
    /// Drafted tokens that were verified.
    pub drafted: usize,
    /// The estimated time of drafting, in plain steps.
    pub drafting: f64,
    /// The measured time of the round; `None` where a plain round would not have been one pass.
    pub seconds: Option<f64>,
}

/// Corrections of costs, for passes that several texts share.
#[derive(Debug, Default)]
pub struct Together {
    /// By number of rows, the time of a full pass.
    full: BTreeMap<usize, Seen>,
    /// By source, the same of draft steps.
    draft: BTreeMap<usize, f64>,
    /// Seconds of a plain step.
    step: Option<f64>,
    /// Full passes so far.
    passes: u64,
}

impl Together {
    /// V(n), in plain steps of one text.
    pub fn rows(&self, costs: &Costs, rows: usize) -> f64 {
        let factor = |found: Option<(&usize, &Seen)>| found.map(|(_, seen)| seen.factor);
        let below = factor(self.full.range(..=rows).next_back());
        let above = factor(self.full.range(rows..).next());
        let factor = match (below, above) {
            (Some(below), Some(above)) => 0.5 * (below + above),
            (one, other) => one.or(other).unwrap_or(1.0),
        };
        costs.rows(rows) * factor
    }

    /// The cost of a draft step of so many texts together.
    pub fn draft(&self, costs: &Costs, source: usize, rows: usize) -> f64 {
        let factor = self.draft.get(&source).copied().unwrap_or(1.0);
        if costs.looks_up(source) { 0.0 } else { factor * costs.draft(source) * costs.rows(rows) }
    }

    /// Learns how long a full pass took.
    pub fn saw_rows(&mut self, costs: &Costs, rows: usize, seconds: f64) {
        let believed = self.rows(costs, rows);
        let now = seconds / believed;
        let step = self.step.get_or_insert(now);
        let error = (now / *step).min(SPIKE) - 1.0;
        let factor = believed / costs.rows(rows);
        self.passes += 1;
        let seen = self.full.entry(rows).or_insert(Seen { factor, times: 0, last: self.passes });
        if self.passes - seen.last >= PLAIN_AGAIN {
            seen.times = seen.times.min(WORTH);
        }
        seen.last = self.passes;
        // A new measurement says something of passes of this size; one that is known well, of the machine's speed for all passes.
        seen.times += 1;
        let new = f64::from(seen.times).recip();
        *step *= 1.0 + LEARN * (1.0 - new) * error;
        seen.factor = (seen.factor * (1.0 + new.max(0.25 * LEARN) * error)).clamp(0.25, 4.0);
    }

    /// Learns how long a draft step with so many rows took.
    pub fn saw_draft(&mut self, costs: &Costs, source: usize, rows: usize, seconds: f64) {
        let Some(step) = self.step else { return };
        let believed = costs.draft(source) * costs.rows(rows) * step;
        if believed > 0.0 {
            let factor = (seconds / believed).clamp(0.25, 4.0);
            let known = self.draft.entry(source).or_insert(factor);
            *known += LEARN * (factor - *known);
        }
    }

    /// Whether a round without drafts, with so many rows, has to be measured.
    pub fn plain_is_due(&self, rows: usize) -> bool {
        self.full.get(&rows).is_none_or(|seen| self.passes - seen.last >= PLAIN_AGAIN)
    }

    /// The estimated time of a round, in plain rounds with `base` rows: with so many drafted tokens, and the time of drafting them in
    /// plain steps.
    pub fn plain_rounds(&self, costs: &Costs, base: usize, drafted: usize, drafting: f64) -> f64 {
        let plain = self.rows(costs, base);
        // More rows never take less, whatever was measured.
        (drafting + self.rows(costs, base + drafted).max(plain)) / plain
    }

    /// The time of a round in plain rounds, measured where that is possible.
    pub fn taken(&self, costs: &Costs, base: usize, work: &RoundWork) -> f64 {
        let expected = self.plain_rounds(costs, base, work.drafted, work.drafting);
        match (self.step, work.seconds) {
            _ if (work.drafted, work.drafting) == (0, 0.0) => 1.0,
            (Some(step), Some(seconds)) => (seconds / (step * self.rows(costs, base))).min(SPIKE * expected),
            _ => expected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on which 8 rows take 1.6 times as long as 4, whatever is believed of them.
    #[test]
    fn a_slow_moment_does_not_make_drafts_look_cheap() {
        let (costs, mut together) = (Costs::frozen(&[]), Together::default());
        for _ in 0..50 {
            together.saw_rows(&costs, 4, 0.05);
            together.saw_rows(&costs, 8, 0.08);
        }
        let rounds = |together: &Together| together.plain_rounds(&costs, 4, 4, 0.0);
        assert!((rounds(&together) - 1.6).abs() < 0.05, "{}", rounds(&together));
        // All becomes half as fast, and for long no text drafts.
        for _ in 0..50 {
            together.saw_rows(&costs, 4, 0.1);
        }
        assert!((rounds(&together) - 1.6).abs() < 0.25, "{}", rounds(&together));
        for _ in 0..50 {
            together.saw_rows(&costs, 4, 0.1);
            together.saw_rows(&costs, 8, 0.16);
        }
        assert!((rounds(&together) - 1.6).abs() < 0.05, "{}", rounds(&together));
        let plain = RoundWork { drafted: 0, drafting: 0.0, seconds: Some(0.3) };
        assert_eq!(together.taken(&costs, 4, &plain), 1.0);
        let with_drafts = |seconds| RoundWork { drafted: 4, drafting: 0.2, seconds: Some(seconds) };
        let paid = together.taken(&costs, 4, &with_drafts(0.18));
        assert!((paid - 1.8).abs() < 0.1, "by the clock: {paid}");
        let spike = together.taken(&costs, 4, &with_drafts(9.0));
        assert!(spike < 4.0, "somebody else's time: {spike}");
    }
}
