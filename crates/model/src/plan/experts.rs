//! What the experts of a layer are.

use super::{Activation, Buf, Linear, WeightId};

/// Index into [`super::Plan::experts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MoeId(pub u32);

/// How a router's scores become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Of all experts together.
    Softmax,
    /// Of each by itself.
    Sigmoid,
    /// Of those that were chosen together.
    SoftmaxOfChosen,
}

/// Experts stand in groups, of which the best few are chosen from: those whose two best experts have the largest sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    pub count: usize,
    pub used: usize,
}

/// A row goes through so many experts of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub of: usize,
    pub used: usize,
}

impl Choice {
    /// With at most so many, if that is told.
    pub fn at_most(self, most: Option<usize>) -> Self {
        Choice { used: most.map_or(self.used, |most| most.min(self.used)), ..self }
    }

    /// How many experts `rows` rows go through together, where each chooses as if by lot.
    pub fn distinct(self, rows: usize) -> f64 {
        let (of, used) = (self.of as f64, self.used as f64);
        of * (1.0 - (1.0 - used / of).powf(rows as f64))
    }

    /// What `rows` rows read over what one reads.
    pub fn over_one(self, rows: usize) -> f64 {
        self.distinct(rows) / self.used as f64
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoeSpec {
    pub n_expert: usize,
    pub n_used: usize,
    /// Width of an expert's hidden row.
    pub ffn: usize,
    /// The router's scores, `n_expert` wide.
    pub scores: Buf,
    /// The numbers of the chosen experts, then their weights; room for `n_used` of each, of which a draft may take fewer.
    pub chosen: Buf,
    /// What experts read, and their hidden rows and results side by side, in the order of the choice.
    pub src: Buf,
    pub hidden: Buf,
    pub results: Buf,
    /// Where the sum goes; it is added to what is there with `add`.
    pub dst: Buf,
    pub add: bool,
    pub gating: Gating,
    /// Added to a score for the choice alone.
    pub choice_bias: Option<WeightId>,
    pub groups: Option<Groups>,
    /// Weights are divided by their sum.
    pub renormalise: bool,
    pub scale: f32,
    /// A factor for each expert's weight.
    pub expert_scale: Option<WeightId>,
    /// The first expert's matrices, whose successors are the others', and the biases of all experts one after the
    /// other. Without a gate there is one factor.
    pub gate: Option<Linear>,
    pub up: Linear,
    pub down: Linear,
    pub activation: Activation,
}

impl MoeSpec {
    /// How many experts a row takes where at most `most` are asked for.
    pub fn taken(&self, most: Option<usize>) -> usize {
        self.choice().at_most(most).used
    }

    pub fn choice(&self) -> Choice {
        Choice { of: self.n_expert, used: self.n_used }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_experts_are_counted_as_by_lot() {
        let half = Choice { of: 4, used: 2 };
        // By hand: 2, then half of the other two, then half of what is left.
        assert_eq!([1, 2, 3].map(|rows| half.distinct(rows)), [2.0, 3.0, 3.5]);
        let all = Choice { of: 3, used: 3 };
        assert_eq!([0, 1, 9].map(|rows| all.distinct(rows)), [0.0, 3.0, 3.0]);
        assert!((Choice { of: 64, used: 8 }.distinct(1000) - 64.0).abs() < 1e-9);
    }
}
