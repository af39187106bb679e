//! What a sampler may choose from at one position.

/// Tokens with their probabilities: ascending ids, all probabilities above 0, sum 1.
///
/// By id and not by rank, so that two of them (the p and q of a draft) are compared in one walk, and a
/// distribution over a whole vocabulary needs no sort.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Distribution {
    pub(super) entries: Vec<(u32, f64)>,
}

impl Distribution {
    /// Certainty of one token.
    pub fn one_hot(id: u32) -> Self {
        Self { entries: vec![(id, 1.0)] }
    }

    /// From weights in ascending order of ids; `None` if nothing has any weight.
    pub fn normalized(mut entries: Vec<(u32, f64)>) -> Option<Self> {
        debug_assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
        let total: f64 = entries.iter().map(|e| e.1).sum();
        entries.iter_mut().for_each(|e| e.1 /= total);
        entries.retain(|e| e.1 > 0.0);
        (!entries.is_empty()).then_some(Self { entries })
    }

    /// Tokens with their probabilities, ascending by id.
    pub fn entries(&self) -> &[(u32, f64)] {
        &self.entries
    }

    /// The probability of a token, 0 for those that were cut off.
    pub fn p(&self, id: u32) -> f64 {
        self.entries.binary_search_by_key(&id, |e| e.0).map_or(0.0, |i| self.entries[i].1)
    }

    /// The token at `u`, uniform in [0, 1), of the cumulative distribution.
    ///
    /// # Panics
    /// If the distribution is empty, which [`super::distribution`] never gives.
    pub fn draw(&self, u: f64) -> u32 {
        let mut below = 0.0;
        let reached = self.entries.iter().find(|(_, p)| {
            below += p;
            u < below
        });
        // Rounding may leave the sum a little below 1.
        reached.or(self.entries.last()).expect("a distribution has at least one token").0
    }

    pub(super) fn set_one_hot(&mut self, id: u32) {
        self.entries.clear();
        self.entries.push((id, 1.0));
    }
}
