//! Random numbers for training: nothing depends on them but which of many equally good heads comes out.

use rand_mt::Mt64;

/// Random numbers of a seed.
pub struct Noise {
    bits: Mt64,
    /// Normal numbers come in pairs.
    spare: Option<f32>,
}

impl Noise {
    pub fn new(seed: u64) -> Self {
        Noise { bits: Mt64::new(seed), spare: None }
    }

    /// From 0, to 1 at most.
    pub fn uniform(&mut self) -> f32 {
        (self.bits.next_u64() >> 40) as f32 / (1 << 24) as f32
    }

    /// Below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        (self.bits.next_u64() % count as u64) as usize
    }

    /// Of mean 0 and variance 1, by Box and Muller.
    pub fn normal(&mut self) -> f32 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let angle = std::f32::consts::TAU * self.uniform();
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
    }
}
