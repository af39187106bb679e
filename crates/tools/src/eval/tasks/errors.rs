//! How far an accuracy may be off.

/// 95 % of a normal distribution lie within so many standard deviations.
const DEVIATIONS: f64 = 1.959_963_984_54;

/// Where a share lies, by a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

/// Wilson's interval of 95 %, for `right` out of `n`: what llama-perplexity shows of HellaSwag.
pub fn wilson(right: usize, n: usize) -> Interval {
    let (share, n) = (right as f64 / n as f64, n as f64);
    let z = DEVIATIONS * DEVIATIONS / n;
    let half = (z * (share * (1.0 - share) + z / 4.0)).sqrt();
    let middle = share + z / 2.0;
    Interval { low: (middle - half) / (1.0 + z), high: (middle + half) / (1.0 + z) }
}

/// One standard error of a share of `n`: what llama-perplexity shows of the other tasks.
pub fn standard_error(share: f64, n: usize) -> f64 {
    (share * (1.0 - share) / (n as f64 - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilsons_interval_is_that_of_the_books() {
        // Newcombe 1998 (Statistics in Medicine 17, table I, method 3): 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        for (right, n, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let found = wilson(right, n);
            assert!((found.low - low).abs() < 5e-5 && (found.high - high).abs() < 5e-5, "{found:?}");
        }
    }

    #[test]
    fn the_standard_error_is_that_of_a_sample() {
        // Of 1, 1, 0, 0, 0 by hand: a variance of 6/25 · 5/4 = 3/10, over 5.
        assert!((standard_error(0.4, 5) - 0.06f64.sqrt()).abs() < 1e-12);
    }
}
