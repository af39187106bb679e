//! Which tasks of a file are taken: llama-perplexity draws some by a Mersenne Twister of seed 1, in one of two ways.

use rand_mt::Mt;

const SEED: u32 = 1;

/// All `n` or `most` of them in a random order, as GCC's `uniform_int_distribution` draws from those that are left.
pub fn shuffled(n: usize, most: usize) -> Vec<usize> {
    let mut random = Mt::new(SEED);
    let mut left: Vec<usize> = (0..n).collect();
    (0..most.min(n)).map(|_| left.remove(below(&mut random, left.len() as u32) as usize)).collect()
}

/// Lemire's way to a number below `n` without a bias (ACM Transactions on Modeling and Computer Simulation 29, 2019).
fn below(random: &mut Mt, n: u32) -> u32 {
    loop {
        let product = u64::from(random.next_u32()) * u64::from(n);
        if product as u32 >= n.wrapping_neg() % n {
            return (product >> 32) as u32;
        }
    }
}

/// `most` of `n` in a random order; all of them as they stand if `most` is 0 or not fewer.
pub fn some(n: usize, most: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..n).collect();
    if most == 0 || most >= n {
        return left;
    }
    let mut random = Mt::new(SEED);
    // In floats of 32 bits, which decides where two numbers are near.
    let scale = (-32f32).exp2();
    let draw = |_| {
        let at = (scale * random.next_u32() as f32 * left.len() as f32) as usize;
        left.swap_remove(at.min(left.len() - 1))
    };
    (0..most).map(draw).collect()
}
