//! How many threads of a team take part. Where other programs have the cores, a thread that is off its core keeps all others
//! waiting at the next barrier, so that fewer threads are faster, down to one. The measure is how much processor time the
//! threads get in a second of passes, whatever the work is. From time to time fewer threads are tried, and later more again. No
//! result depends on how many there are.

use std::time::{Duration, Instant};

/// What is compared: several turns of a scheduler.
const WINDOW: Duration = Duration::from_millis(20);
/// Between trials, at first and at most: each that fails doubles it.
const REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(2);
/// More threads have to get so much more done; those that share a core also share the memory.
const WORTH_IT: f64 = 1.1;

pub struct Crew {
    most: usize,
    now: usize,
    wall: Duration,
    /// Of all threads together.
    useful: Duration,
    /// A trial: how many took part before it, and what a second gave.
    before: Option<(usize, f64)>,
    rest: Duration,
    rests_until: Option<Instant>,
    /// Of all passes, and of those without all threads.
    total: Duration,
    crowded: Duration,
}

impl Crew {
    pub fn new(threads: usize) -> Self {
        Crew {
            most: threads,
            now: threads,
            wall: Duration::ZERO,
            useful: Duration::ZERO,
            before: None,
            rest: REST,
            rests_until: None,
            total: Duration::ZERO,
            crowded: Duration::ZERO,
        }
    }

    pub fn threads(&self) -> usize {
        self.now
    }

    /// The time of all passes.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// The time of those in which not all took part.
    pub fn crowded(&self) -> Duration {
        self.crowded
    }

    /// Told of each pass: how long it took, and what of that its threads worked in sum.
    pub fn passed(&mut self, wall: Duration, useful: Duration, at: Instant) {
        self.total += wall;
        if self.now < self.most {
            self.crowded += wall;
        }
        self.wall += wall;
        self.useful += useful;
        if self.wall < WINDOW {
            return;
        }
        let got = self.useful.as_secs_f64() / self.wall.as_secs_f64();
        (self.wall, self.useful) = Default::default();
        match self.before.take() {
            Some((before, gave)) => {
                let better = if self.now < before { got >= gave } else { got > gave * WORTH_IT };
                if !better {
                    self.now = before;
                    self.rest = (2 * self.rest).min(LONGEST_REST);
                }
                // If fewer threads were better, still fewer may be.
                if !better || self.now < before && !self.is_slow(got) {
                    self.rests_until = Some(at + self.rest);
                }
            }
            None if self.rests_until.is_some_and(|until| at < until) => {}
            None if self.is_slow(got) => self.try_out((self.now - self.now / 4).min(self.now - 1), got),
            None if self.now < self.most => {
                self.try_out((self.now + self.now.div_ceil(3)).min(self.most), got)
            }
            None => self.rest = REST,
        }
    }

    /// Less than half of what so many threads could do: most of them wait.
    fn is_slow(&self, got: f64) -> bool {
        self.now > 1 && got < self.now as f64 / 2.0
    }

    fn try_out(&mut self, threads: usize, got: f64) {
        self.before = Some((self.now, got));
        self.now = threads;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes of a millisecond each, of which `got` says how much its threads work; how many took part in each.
    fn after(crew: &mut Crew, from: Instant, passes: u64, got: impl Fn(usize) -> f64) -> Vec<usize> {
        let wall = Duration::from_millis(1);
        let pass = |i: u64| {
            let threads = crew.threads();
            crew.passed(wall, wall.mul_f64(got(threads)), from + wall * i as u32);
            threads
        };
        (0..passes).map(pass).collect()
    }

    #[test]
    fn a_quiet_machine_keeps_all() {
        let mut crew = Crew::new(4);
        // Also where a quarter of all time is waiting.
        let took_part = after(&mut crew, Instant::now(), 5000, |threads| 0.75 * threads as f64);
        assert!(took_part.iter().all(|&threads| threads == 4));
        assert_eq!(crew.crowded(), Duration::ZERO);
    }

    #[test]
    fn where_strangers_have_the_cores_one_is_left_until_they_are_gone() {
        let (mut crew, start) = (Crew::new(2), Instant::now());
        let took_part = after(&mut crew, start, 20_000, |threads| if threads == 1 { 0.5 } else { 0.2 });
        let both = took_part.iter().filter(|&&threads| threads == 2).count();
        assert_eq!(took_part[..21], [[2].repeat(20), vec![1]].concat());
        assert!((40..20_000 / 25).contains(&both), "tried now and then: {both}");
        assert_eq!(
            (crew.crowded(), crew.total()),
            (Duration::from_millis(20_000 - both as u64), Duration::from_secs(20))
        );
        let later = start + Duration::from_secs(20);
        after(&mut crew, later, 2500, |threads| threads as f64);
        assert_eq!(crew.threads(), 2);
    }

    #[test]
    fn fewer_are_not_kept_where_they_do_less() {
        let mut crew = Crew::new(2);
        // Long phases: each has half a core, and they seldom wait for each other.
        let took_part = after(&mut crew, Instant::now(), 20_000, |threads| 0.45 * threads as f64);
        let one = took_part.iter().filter(|&&threads| threads == 1).count();
        assert!((20..20_000 / 25).contains(&one), "{one}");
    }

    #[test]
    fn more_threads_than_cores_come_down_to_the_cores() {
        // Two cores: more threads wait for each other most of the time.
        let got = |threads: usize| if threads <= 2 { 0.9 * threads as f64 } else { 3.0 / threads as f64 };
        for threads in [3, 4, 16, 100] {
            let mut crew = Crew::new(threads);
            let took_part = after(&mut crew, Instant::now(), 20_000, got);
            let right = took_part[3000..].iter().filter(|&&threads| threads == 2).count();
            assert!(right > 15_000, "{threads}: {right}");
        }
    }
}
