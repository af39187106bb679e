//! How often passes go to the device and back, and what recording them costs.

use std::fmt::Write;

use crate::backend::Traffic;

/// What a pass was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassKind {
    /// One row.
    Token,
    /// Several rows.
    Rows,
    /// A chain of passes.
    Chain,
}

#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// By kind: how many passes, and what they did.
    passes: [(u64, Traffic); 3],
    /// Nanoseconds per dispatch that recording took, for each pass that was not timed by kernel.
    recording: Vec<f64>,
}

impl Usage {
    pub fn add(&mut self, kind: PassKind, pass: Traffic) {
        let (count, sum) = &mut self.passes[kind as usize];
        *count += 1;
        *sum = *sum + pass;
    }

    /// A pass of so many dispatches was recorded in so many seconds.
    pub fn recorded(&mut self, seconds: f64, dispatches: u64) {
        if dispatches > 0 {
            self.recording.push(1e9 * seconds / dispatches as f64);
        }
    }

    /// How many there were.
    pub fn passes(&self) -> u64 {
        self.passes.iter().map(|p| p.0).sum()
    }

    pub fn traffic(&self) -> Traffic {
        self.passes.iter().fold(Traffic::default(), |all, &(_, pass)| all + pass)
    }

    /// A line for each kind of pass, and one for recording.
    pub fn lines(&self) -> String {
        let mut out = String::new();
        let names = [("token", "one by one"), ("pass", "of several rows"), ("chain", "of passes")];
        for ((one, which), &(count, sum)) in names.iter().zip(&self.passes).filter(|(_, p)| p.0 > 0) {
            let per = |n: u64| n as f64 / count as f64;
            writeln!(
                out,
                "{which}: {count}; each {one} has {:.1} dispatches, {:.2} submissions, {:.2} readbacks",
                per(sum.dispatches),
                per(sum.submissions),
                per(sum.readbacks)
            )
            .expect("a string takes all");
        }
        let mut times = self.recording.clone();
        times.sort_by(f64::total_cmp);
        // The median: the first pass of a kind makes its kernels, too.
        if let Some(median) = times.get(times.len() / 2) {
            writeln!(
                out,
                "recording a dispatch: {median:.0} ns (median of {} passes, not timed)",
                times.len()
            )
            .expect("a string takes all");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_by_kind_and_the_sum_is_of_all() {
        let mut usage = Usage::default();
        let pass = |dispatches| Traffic {
            dispatches,
            submissions: 1,
            readbacks: 1,
            weights: 10,
            ..Traffic::default()
        };
        usage.add(PassKind::Token, pass(100));
        usage.add(PassKind::Token, pass(101));
        usage.add(PassKind::Chain, pass(900));
        usage.recorded(1.0, 0);
        [9e-4, 1e-5, 1.2e-5].into_iter().for_each(|seconds| usage.recorded(seconds, 100));
        let all =
            Traffic { dispatches: 1101, submissions: 3, readbacks: 3, weights: 30, ..Traffic::default() };
        assert_eq!(usage.traffic(), all);
        let lines = usage.lines();
        assert!(
            lines.contains("one by one: 2; each token has 100.5 dispatches, 1.00 submissions"),
            "{lines}"
        );
        assert!(
            lines.contains("of passes: 1; each chain has 900.0") && !lines.contains("several"),
            "{lines}"
        );
        assert!(lines.contains("recording a dispatch: 120 ns (median of 3 passes"), "{lines}");
    }
}
