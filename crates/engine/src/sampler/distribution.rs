//! The tokens that a sampler may choose from at one position, with their probabilities.

/// Tokens with their weights, all above 0, in the order in which a draw goes through them: after most settings, best
/// first.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Distribution {
    weights: Vec<(u32, f64)>,
    total: f64,
}

impl Distribution {
    /// Certainty of one token.
    pub fn one_hot(id: u32) -> Self {
        Self { weights: vec![(id, 1.0)], total: 1.0 }
    }

    /// How many tokens are possible.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Whether nothing is possible, which no sampler gives.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// Tokens with their probabilities, in the order in which a draw goes through them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, f64)> + Clone {
        self.weights.iter().map(|&(id, weight)| (id, weight / self.total))
    }

    /// The probability of a token, 0 for those that were cut off. Looks at all of them.
    pub fn p(&self, id: u32) -> f64 {
        self.iter().find(|entry| entry.0 == id).map_or(0.0, |entry| entry.1)
    }

    /// The token at `u`, uniform in [0, 1), of the cumulative distribution.
    ///
    /// # Panics
    /// If the distribution is empty, which [`super::distribution`] never gives.
    pub fn draw(&self, u: f64) -> u32 {
        let goal = self.total * u;
        let mut sum = 0.0;
        let reached = self.weights.iter().find(|(_, weight)| {
            sum += weight;
            sum >= goal
        });
        reached.or(self.weights.last()).expect("a distribution has at least one token").0
    }

    /// How likely the same random number draws the same token from both.
    pub fn agreement(&self, other: &Self) -> f64 {
        let ends = |of: &Self| {
            let ends = of.iter().scan(0.0, |end, (id, p)| {
                let start = *end;
                *end += p;
                Some((id, start, *end))
            });
            ends.collect::<Vec<_>>()
        };
        let theirs = ends(other);
        let shared = |(id, start, end): (u32, f64, f64)| {
            let same = theirs.iter().find(|other| other.0 == id)?;
            Some((end.min(same.2) - start.max(same.1)).max(0.0))
        };
        ends(self).into_iter().filter_map(shared).sum()
    }

    pub(super) fn set_one_hot(&mut self, id: u32) {
        self.set([(id, 1.0)].into_iter());
    }

    /// Tokens without weight are left out.
    pub(super) fn set(&mut self, weights: impl Iterator<Item = (u32, f64)>) {
        self.weights.clear();
        self.weights.extend(weights.filter(|entry| entry.1 > 0.0));
        self.total = self.weights.iter().map(|entry| entry.1).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(weights: &[(u32, f64)]) -> Distribution {
        let mut result = Distribution::default();
        result.set(weights.iter().copied());
        result
    }

    #[test]
    fn agreement_is_what_the_intervals_share() {
        let p = of(&[(3, 2.0), (5, 1.0), (9, 1.0)]);
        assert_eq!(p.agreement(&p), 1.0);
        // 3: [0, .5) and [0, .25); 5: [.5, .75) and [.25, .75).
        assert_eq!(p.agreement(&of(&[(3, 1.0), (5, 2.0), (8, 1.0)])), 0.5);
        assert_eq!(p.agreement(&of(&[(9, 1.0), (5, 1.0)])), 0.25);
        assert_eq!(p.agreement(&Distribution::one_hot(4)), 0.0);
    }
}
