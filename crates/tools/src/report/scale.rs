//! From numbers to places on an axis, and round numbers to write beside it.

/// Where the largest number is so many times the usual one, an even axis would flatten all others.
const FLAT: f64 = 20.0;
/// Of an axis, between its ends and the outermost numbers.
const AIR: f64 = 0.05;
/// Between two ticks of an uneven axis, of the room that a tick has on an even one.
const APART: f64 = 0.6;

/// An axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    /// Evenly up to about here on both sides of 0, and from there by powers; by asinh, which also takes what is below 0.
    bend: Option<f64>,
}

impl Scale {
    pub fn linear(low: f64, high: f64) -> Self {
        match high > low {
            true => Scale { low, high, bend: None },
            // One number is in the middle.
            false => Scale { low: low - 0.5, high: low + 0.5, bend: None },
        }
    }

    /// Reaches over all numbers that there are; those that are none are not looked at.
    pub fn around(numbers: impl IntoIterator<Item = f64>) -> Self {
        let numbers: Vec<f64> = numbers.into_iter().filter(|n| n.is_finite()).collect();
        let (low, high) = ends(&numbers);
        let air = AIR * if high > low { high - low } else { high.abs().max(1.0) };
        Scale::linear(low - air, high + air)
    }

    /// The same, but bent if the numbers are of very different sizes.
    pub fn around_all_sizes(numbers: impl IntoIterator<Item = f64>) -> Self {
        let numbers: Vec<f64> = numbers.into_iter().filter(|n| n.is_finite()).collect();
        let mut sizes: Vec<f64> = numbers.iter().map(|n| n.abs()).filter(|&n| n > 0.0).collect();
        sizes.sort_by(f64::total_cmp);
        let (Some(&most), Some(&usual)) = (sizes.last(), sizes.get(sizes.len() / 2)) else {
            return Scale::around(numbers);
        };
        if most <= FLAT * usual {
            return Scale::around(numbers);
        }
        let bend = 10f64.powf(usual.max(most * 1e-6).log10().floor());
        let (low, high) = ends(&numbers);
        let (low, high) = ((low / bend).asinh(), (high / bend).asinh());
        let air = AIR * (high - low);
        let back = |bent: f64| bend * bent.sinh();
        Scale { low: back(low - air), high: back(high + air), bend: Some(bend) }
    }

    /// Where a number lies: 0 at the low end, 1 at the high one.
    pub fn share(&self, number: f64) -> f64 {
        let at = |n: f64| self.bend.map_or(n, |bend| (n / bend).asinh());
        (at(number) - at(self.low)) / (at(self.high) - at(self.low))
    }

    pub fn has(&self, number: f64) -> bool {
        (self.low..=self.high).contains(&number)
    }

    pub fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Where the axis stops being even, if it does.
    pub fn bend(&self) -> Option<f64> {
        self.bend
    }

    /// Round numbers on the axis, with their texts; at most about so many.
    pub fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        match self.bend {
            None => even_ticks(self.low, self.high, most),
            Some(bend) => self.bent_ticks(bend, APART / most.max(1) as f64),
        }
    }

    /// The same for an axis of whole numbers.
    pub fn whole_ticks(&self, most: usize) -> Vec<(f64, String)> {
        let mut ticks = self.ticks(most);
        ticks.retain(|(at, _)| at.fract() == 0.0);
        ticks
    }

    fn bent_ticks(&self, bend: f64, gap: f64) -> Vec<(f64, String)> {
        let powers = (0..14).map(|power| bend * 10f64.powi(power));
        // What stands between the powers comes last, where there is room.
        let between = powers.clone().flat_map(|at| [5.0 * at, 2.0 * at]);
        let all = powers.chain(between).flat_map(|at| [at, -at]);
        let all = std::iter::once(0.0).chain(all).filter(|&at| self.has(at));
        let mut ticks: Vec<(f64, String)> = Vec::new();
        for at in all {
            let apart = |other: &(f64, String)| (self.share(other.0) - self.share(at)).abs() >= gap;
            if ticks.iter().all(apart) {
                ticks.push((at, written(at, at)));
            }
        }
        ticks
    }
}

fn ends(numbers: &[f64]) -> (f64, f64) {
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

fn even_ticks(low: f64, high: f64, most: usize) -> Vec<(f64, String)> {
    let rough = (high - low) / most.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&s| s >= rough).unwrap_or(rough);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|i| i as f64 * step).map(|at| (at, written(at, step))).collect()
}

/// A number with the digits that a step of this size needs.
fn written(number: f64, step: f64) -> String {
    if number == 0.0 {
        return "0".into();
    }
    let text = match number.abs() {
        size if size >= 1e6 || step.abs() < 1e-6 => format!("{number:e}"),
        _ => {
            let digits = (-step.abs().log10().floor()).clamp(0.0, 9.0) as usize;
            format!("{number:.digits$}")
        }
    };
    text.replace('-', "\u{2212}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: Scale, most: usize) -> Vec<String> {
        scale.ticks(most).into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(texts(Scale::linear(0.0, 1.0), 8), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(Scale::linear(-0.5, 15.5), 8), ["0", "2", "4", "6", "8", "10", "12", "14"]);
        assert_eq!(texts(Scale::linear(-0.012, 0.011), 3), ["\u{2212}0.01", "0", "0.01"]);
        assert_eq!(texts(Scale::linear(5.0, 5.0), 2), ["4.5", "5.0", "5.5"], "one number has an axis too");
    }

    #[test]
    fn numbers_of_all_sizes_are_apart_and_in_order() {
        let numbers = [-0.02, 0.01, 0.02, 0.03, 0.05, 0.1, 2.0, 4000.0];
        let scale = Scale::around_all_sizes(numbers);
        let shares: Vec<f64> = numbers.iter().map(|&n| scale.share(n)).collect();
        assert!(shares.is_sorted() && shares[0] > 0.0 && shares[7] < 1.0, "{shares:?}");
        assert!(shares[5] - shares[2] > 0.05, "the small ones are not flattened: {shares:?}");
        let ticks = texts(scale, 8);
        assert!(ticks.contains(&"1000".into()) && ticks.contains(&"0".into()), "{ticks:?}");
        assert_eq!(Scale::around_all_sizes([1.0, 2.0, 3.0]).bend(), None);
    }

    #[test]
    fn no_numbers_have_an_axis_all_the_same() {
        for scale in [Scale::around([]), Scale::around([f64::NAN]), Scale::around_all_sizes([0.0, 0.0])] {
            assert!(scale.share(0.0).is_finite() && scale.ticks(5).len() < 20, "{scale:?}");
        }
    }
}
