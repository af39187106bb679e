//! Plain steps between rounds: they measure what a plain step costs now, and what plain decoding would have taken for all of the
//! text.
//!
//! They come in pairs, because the first one after a draft finds the processor's caches filled with other data. Steps take longer
//! as a text grows, so a drafted token counts as the plain steps around it, not as the mean of all: that would be too much where
//! plain steps come late, and too little where a run begins with many.

use std::{collections::VecDeque, mem, ops::RangeInclusive};

use super::controller::SPIKE;

/// What these steps may cost: this part of a plain step at the beginning, and a share of the time.
const START: f64 = 0.25;
const SHARE: f64 = 0.005;
/// Rounds from one pair of them to the next, at least; the number grows from the first to the second.
const INTERVAL: RangeInclusive<usize> = 24..=32;

#[derive(Clone, Debug)]
pub struct PlainSteps {
    rounds: usize,
    rounds_since: usize,
    in_a_row: usize,
    /// One was inserted, and the second of the pair is still to come.
    another: bool,
    /// In plain steps, what the inserted ones have cost and what everything took.
    spent: f64,
    elapsed: f64,
    /// Seconds of the last ones, the latest first.
    seconds: VecDeque<f64>,
    /// The time of plain decoding for the tokens counted so far, and the tokens that are not counted yet.
    would_be: f64,
    unvalued: f64,
}

impl PlainSteps {
    /// How many times are kept to recognize spikes.
    const KEPT: usize = 31;
    /// The pairs before and after a token.
    const AROUND: usize = 4;
    /// Fewer than this are not used.
    const ENOUGH: usize = 4;

    pub fn new() -> Self {
        PlainSteps {
            rounds: 0,
            rounds_since: 0,
            in_a_row: 0,
            another: false,
            spent: 0.0,
            elapsed: 0.0,
            seconds: VecDeque::new(),
            would_be: 0.0,
            unvalued: 0.0,
        }
    }

    /// Whether it is time for one, if rounds have this rate.
    pub fn due(&mut self, rate: f64) -> bool {
        if mem::take(&mut self.another) {
            return true;
        }
        let price = 2.0 * (1.0 - 1.0 / rate);
        let apart = (self.rounds / 2).clamp(*INTERVAL.start(), *INTERVAL.end());
        let due = self.rounds_since >= apart && self.spent + price <= START + SHARE * self.elapsed;
        if due {
            self.spent += price;
            self.another = true;
        }
        due
    }

    pub fn saw(&mut self, seconds: f64) {
        self.in_a_row += 1;
        self.rounds_since = 0;
        self.elapsed += 1.0;
        self.seconds.truncate(Self::KEPT - 1);
        self.seconds.push_front(seconds);
        match self.are_enough() {
            true => self.would_be += seconds.min(self.longest()),
            false => self.unvalued += 1.0,
        }
    }

    /// Counts a round with a draft that gave so many tokens and cost so many plain steps.
    pub fn saw_draft(&mut self, tokens: f64, cost: f64) {
        if self.in_a_row > 0 && self.are_enough() {
            self.would_be += self.unvalued * self.around();
            self.unvalued = 0.0;
        }
        self.in_a_row = 0;
        self.rounds += 1;
        self.rounds_since += 1;
        self.elapsed += cost;
        self.unvalued += tokens;
    }

    /// Whether there are enough times: one or two alone may be spikes.
    fn are_enough(&self) -> bool {
        self.seconds.len() >= Self::ENOUGH
    }

    /// The longest time that is no spike.
    fn longest(&self) -> f64 {
        let mut seconds: Vec<f64> = self.seconds.iter().copied().collect();
        let middle = seconds.len().saturating_sub(1) / 2;
        match seconds.is_empty() {
            true => f64::INFINITY,
            false => SPIKE * *seconds.select_nth_unstable_by(middle, f64::total_cmp).1,
        }
    }

    fn around(&self) -> f64 {
        let (longest, last) = (self.longest(), self.seconds.iter().take(Self::AROUND));
        last.clone().map(|seconds| seconds.min(longest)).sum::<f64>() / last.len().max(1) as f64
    }

    /// Seconds of plain decoding for all of the text.
    pub fn would_have_taken(&self) -> Option<f64> {
        self.are_enough().then(|| self.would_be + self.unvalued * self.around())
    }
}

#[cfg(test)]
mod tests {
    use super::PlainSteps;

    /// Seconds of plain decoding for a text of eight pairs of plain steps with 30 tokens drafted after each.
    fn would_have_taken(seconds: impl Fn(usize) -> f64) -> f64 {
        let mut plain = PlainSteps::new();
        for pair in 0..8 {
            (0..2).for_each(|twin| plain.saw(seconds(2 * pair + twin)));
            (0..10).for_each(|_| plain.saw_draft(3.0, 2.0));
        }
        plain.would_have_taken().unwrap()
    }

    #[test]
    fn a_step_that_somebody_else_made_long_is_not_what_plain_decoding_costs() {
        let truth = 0.01 * (16.0 + 240.0);
        assert!((would_have_taken(|_| 0.01) - truth).abs() < 1e-9);
        for spike in 0..16 {
            let taken = would_have_taken(|step| if step == spike { 1.0 } else { 0.01 });
            assert!((truth..1.2 * truth).contains(&(taken + 1e-9)), "{spike}: {taken} for {truth}");
        }
    }

    #[test]
    fn tokens_are_valued_at_the_steps_around_them() {
        // Twice as slow halfway.
        let taken = would_have_taken(|step| if step < 8 { 0.01 } else { 0.02 });
        let truth = 0.01 * (8.0 + 120.0) + 0.02 * (8.0 + 120.0);
        assert!((0.9..1.1).contains(&(taken / truth)), "{taken} for {truth}");
    }

    #[test]
    fn a_few_steps_say_nothing() {
        let mut plain = PlainSteps::new();
        (0..3).for_each(|_| plain.saw(0.01));
        assert_eq!(plain.would_have_taken(), None);
    }
}
