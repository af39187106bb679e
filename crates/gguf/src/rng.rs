//! xoshiro256++ (Blackman and Vigna), its state filled by splitmix64 from a seed.
//!
//! Written out here so that a seed means the same stream on every platform and in every version of this program.

/// A stream of random numbers, the same on every machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        let mut seed = seed;
        // splitmix64 is a bijection of distinct counters, so the state is never all zero.
        Self { state: std::array::from_fn(|_| splitmix64(&mut seed)) }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (-53f64).exp2()
    }
}

fn splitmix64(counter: &mut u64) -> u64 {
    *counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = *counter;
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xoshiro_gives_the_reference_stream() {
        // The vector of rand_xoshiro's tests, made with the authors' C code.
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let expected = [
            41943041,
            58720359,
            3588806011781223,
            3591011842654386,
            9228616714210784205,
            9973669472204895162,
            14011001112246962877,
            12406186145184390807,
            15849039046786891736,
            10450023813501588000,
        ];
        assert_eq!(expected.map(|_| rng.next_u64()), expected);
    }

    #[test]
    fn splitmix_gives_the_reference_stream() {
        let mut counter = 1234567;
        let expected = [
            6457827717110365317,
            3203168211198807973,
            9817491932198370423,
            4593380528125082431,
            16408922859458223821,
        ];
        assert_eq!(expected.map(|_| splitmix64(&mut counter)), expected);
    }

    #[test]
    fn uniform_numbers_stay_below_one_and_fill_the_interval() {
        let mut rng = Rng::new(7);
        let mut bins = [0u32; 10];
        for _ in 0..100_000 {
            let u = rng.next_f64();
            assert!((0.0..1.0).contains(&u));
            bins[(u * 10.0) as usize] += 1;
        }
        // Chi-square with 9 degrees of freedom stays below 33.7 with probability 0.9999.
        let chi2: f64 = bins.iter().map(|&n| (f64::from(n) - 1e4).powi(2) / 1e4).sum();
        assert!(chi2 < 33.7, "{chi2} from {bins:?}");
    }
}
