//! Median and spread of repeated measurements.

/// What is shown of a set of samples: its middle, and how far it reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// # Panics
    /// If there are no samples.
    pub fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        assert!(n > 0, "a spread needs a sample");
        Spread { median: (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0, min: sorted[0], max: sorted[n - 1] }
    }

    /// Of `a[i] / b[i]`: what drifts over the rounds falls out, because each pair is of the same moment.
    pub fn of_ratios(a: &[f64], b: &[f64]) -> Self {
        Self::of(&std::iter::zip(a, b).map(|(a, b)| a / b).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn the_middle_of_odd_and_even_counts() {
        assert_eq!(Spread::of(&[3.0, 1.0, 10.0]), Spread { median: 3.0, min: 1.0, max: 10.0 });
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 9.0]), Spread { median: 3.0, min: 1.0, max: 9.0 });
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        // A machine that slows down twofold from round to round: each pair still says 2.
        let spread = Spread::of_ratios(&[2.0, 4.0, 8.0], &[1.0, 2.0, 4.0]);
        assert_eq!(spread, Spread { median: 2.0, min: 2.0, max: 2.0 });
    }
}
