//! llama.cpp's random numbers for a seed: the 32-bit Mersenne Twister, as C++'s `uniform_real_distribution` reads it.

use std::time::{SystemTime, UNIX_EPOCH};

use rand_mt::Mt;

use crate::rng::Rng;

/// The largest numbers below 1, which C++ gives where rounding would give 1.
const BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;
const BELOW_ONE_F32: f32 = 1.0 - f32::EPSILON / 2.0;

/// Random numbers in [0, 1), found by their index, so that those drawn for a rejected draft change nothing.
pub(super) struct Stream<T> {
    twister: Mt,
    next: fn(&mut Mt) -> T,
    numbers: Vec<T>,
}

impl<T: Copy> Stream<T> {
    /// The number at an index, from 0 on.
    pub fn at(&mut self, place: usize) -> T {
        while self.numbers.len() <= place {
            self.numbers.push((self.next)(&mut self.twister));
        }
        self.numbers[place]
    }
}

impl Stream<f32> {
    /// One word for each number.
    pub fn floats(seed: u32) -> Self {
        let next = |twister: &mut Mt| (twister.next_u32() as f32 / 32f32.exp2()).min(BELOW_ONE_F32);
        Stream { twister: Mt::new(seed), next, numbers: Vec::new() }
    }
}

impl Stream<f64> {
    /// Two words for each number, the low half first.
    pub fn doubles(seed: u32) -> Self {
        let next = |twister: &mut Mt| {
            let (low, high) = (f64::from(twister.next_u32()), f64::from(twister.next_u32()));
            ((low + high * 32f64.exp2()) / 64f64.exp2()).min(BELOW_ONE)
        };
        Stream { twister: Mt::new(seed), next, numbers: Vec::new() }
    }
}

/// A seed from the clock, the process id and the address of the stack. Never the number that asks for a random seed.
pub fn random_seed() -> u32 {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let on_the_stack = 0u8;
    let mixed =
        clock ^ (&raw const on_the_stack as usize as u64).rotate_left(32) ^ u64::from(std::process::id());
    let seed = (Rng::new(mixed).next_u64() >> 32) as u32;
    if seed == u32::MAX { 0 } else { seed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_standards_mersenne_twister() {
        // The C++ standard says what the ten thousandth word of the default seed is.
        let mut twister = Mt::new(5489);
        assert_eq!((0..10_000).map(|_| twister.next_u32()).last(), Some(4_123_659_995));
    }

    #[test]
    fn numbers_are_found_by_their_place_and_stay_below_one() {
        let mut forward = Stream::doubles(7);
        let in_order: Vec<f64> = (0..100_000).map(|place| forward.at(place)).collect();
        let mut bins = [0u32; 10];
        for u in &in_order {
            assert!((0.0..1.0).contains(u));
            bins[(u * 10.0) as usize] += 1;
        }
        // Chi-square with 9 degrees of freedom stays below 33.7 with probability 0.9999.
        let chi2: f64 = bins.iter().map(|&n| (f64::from(n) - 1e4).powi(2) / 1e4).sum();
        assert!(chi2 < 33.7, "{chi2} from {bins:?}");
        let mut backward = Stream::doubles(7);
        for place in [50, 3, 99, 0, 50] {
            assert_eq!(backward.at(place), in_order[place]);
        }
    }
}
