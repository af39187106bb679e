//! Why drafting loses, in a sentence.

use super::Controller;
use crate::speculation::{arm::Arm, costs::MOST_ROWS, policy::Offer};

impl Controller {
    /// The reason for the source that loses least.
    pub(super) fn why_it_loses(&self) -> Option<String> {
        // The cost that an accepted token has to gain back: its step and its row.
        let even = |source: usize| self.costs.draft(source) + self.costs.rows(2) - 1.0;
        // A source that was not tried is named only where none was. A source that was right often enough did not lose: it had nothing to
        // draft in the end.
        let any_tried = self.arms.iter().any(|arm| arm.trials > 0);
        let lost = |&(source, arm): &(usize, &Arm)| match arm.trials {
            0 => !any_tried,
            trials => (arm.accepted as f64) < even(source) * trials as f64,
        };
        let named = self.arms.iter().enumerate().filter(lost);
        let best = named.max_by(|(a, _), (b, _)| {
            let rate = |source: usize| {
                let offer = Offer { source, most: MOST_ROWS - 1, ready: None, guide: None };
                self.plan(&offer, MOST_ROWS - 1, 0.0).rate
            };
            rate(*a).total_cmp(&rate(*b))
        });
        let (source, arm) = best?;
        let (draft, row) = (self.costs.draft(source), self.costs.rows(2) - 1.0);
        let price = if self.costs.looks_up(source) {
            format!("a second row costs {row:.2} of a plain step")
        } else {
            format!("a draft step costs {draft:.2} of a plain step and a second row {row:.2}")
        };
        let seen = match arm.trials {
            0 => "it was not tried, by what earlier runs have shown".into(),
            trials => format!("{} of its {trials} checked tokens were", arm.accepted),
        };
        Some(match even(source) {
            even if even >= 1.0 => format!("drafting cannot win here: {price}"),
            even => format!(
                "`{}`, the best source, is slower than plain steps: {price}, so {:.0} % of its tokens must be accepted, and {seen}",
                arm.info.name,
                100.0 * even
            ),
        })
    }
}
