//! A team of threads that goes through one forward pass together: one parallel region per pass with a spin
//! barrier between phases, because waking threads up costs more than most phases do. Who waits longer than
//! that goes to sleep, so that on a busy machine the core goes to whoever everybody is waiting for.

use std::{
    ops::Range,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// How long a waiting thread spins before it sleeps: longer than threads differ in a phase. By the clock, because
/// the pause between two looks takes from tens to thousands of cycles, depending on the processor and on who
/// else runs there.
const SPIN: Duration = Duration::from_micros(20);
const LOOKS_PER_CLOCK: u32 = 8;

pub struct Team {
    /// `None`: one thread, the caller's own.
    pool: Option<rayon::ThreadPool>,
    threads: usize,
}

/// One thread's view of a region.
pub struct Member<'a> {
    pub index: usize,
    pub threads: usize,
    barrier: &'a Barrier,
}

impl Team {
    pub fn new(threads: usize) -> Result<Self> {
        let pool = if threads > 1 {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(|i| format!("spec-run-{i}"))
                .build()
                .map_err(|e| {
                    Error::Memory(format!("cannot start {threads} threads: {e}: use a smaller -t"))
                })?;
            Some(pool)
        } else {
            None
        };
        Ok(Team { pool, threads: threads.max(1) })
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work`, which may use rayon, with the team's threads.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Runs `work` once on every thread. A panic in one ends all and comes out here.
    pub fn run(&self, work: impl Fn(Member) + Sync) {
        let barrier = Barrier::new(self.threads);
        let member = |index| Member { index, threads: self.threads, barrier: &barrier };
        match &self.pool {
            None => work(member(0)),
            Some(pool) => {
                pool.broadcast(|ctx| {
                    let guard = PoisonOnPanic(&barrier);
                    work(member(ctx.index()));
                    drop(guard);
                });
            }
        }
    }
}

impl Member<'_> {
    /// Waits until every thread of the team is here; what each wrote before is seen by all after.
    pub fn sync(&self) {
        self.barrier.wait();
    }

    /// This thread's share of `count` items, dealt in pieces of `grain`.
    pub fn share(&self, count: usize, grain: usize) -> Range<usize> {
        let pieces = count.div_ceil(grain);
        let bound = |i: usize| (pieces * i / self.threads * grain).min(count);
        bound(self.index)..bound(self.index + 1)
    }
}

struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    poisoned: AtomicBool,
    sleepers: AtomicUsize,
    asleep: Mutex<()>,
    wake: Condvar,
}

impl Barrier {
    fn new(threads: usize) -> Self {
        Barrier {
            threads,
            arrived: 0.into(),
            generation: 0.into(),
            poisoned: false.into(),
            sleepers: 0.into(),
            asleep: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    fn wait(&self) {
        if self.threads == 1 {
            return;
        }
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            // Sequentially consistent with the sleeper's count and check: one of the two sees the other.
            self.generation.store(generation.wrapping_add(1), Ordering::SeqCst);
            self.wake_sleepers();
            return;
        }
        let open = |order| self.generation.load(order) != generation || self.poisoned.load(order);
        let started = Instant::now();
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                if open(Ordering::Acquire) {
                    return self.leave();
                }
                std::hint::spin_loop();
            }
            if started.elapsed() > SPIN {
                break;
            }
        }
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !open(Ordering::SeqCst) {
            asleep = self.wake.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        drop(asleep);
        self.leave();
    }

    fn wake_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // With the lock, so that nobody is between the check and the sleep.
            let _asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
            self.wake.notify_all();
        }
    }

    fn leave(&self) {
        if self.poisoned.load(Ordering::Relaxed) {
            panic!("another thread of the team failed");
        }
    }
}

/// Lets the others out of the barrier when this thread will never reach it.
struct PoisonOnPanic<'a>(&'a Barrier);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.poisoned.store(true, Ordering::SeqCst);
            self.0.wake_sleepers();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn a_barrier_orders_what_was_written_before_it() {
        let team = Team::new(3).unwrap();
        let slots: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        team.run(|m| {
            for round in 1..2000 {
                slots[m.index].store(round, Ordering::Relaxed);
                m.sync();
                for slot in &slots {
                    assert_eq!(slot.load(Ordering::Relaxed), round);
                }
                m.sync();
            }
        });
    }

    #[test]
    fn shares_cover_everything_once() {
        let barrier = Barrier::new(1);
        for (count, grain, threads) in [(0, 8, 2), (1, 8, 3), (31, 8, 2), (64, 8, 3), (100, 1, 7)] {
            let mut next = 0;
            for index in 0..threads {
                let share = Member { index, threads, barrier: &barrier }.share(count, grain);
                assert_eq!(share.start, next);
                assert!(share.is_empty() || share.start.is_multiple_of(grain));
                next = share.end;
            }
            assert_eq!(next, count);
        }
    }

    #[test]
    fn a_panic_in_one_thread_does_not_hang_the_others() {
        let team = Team::new(2).unwrap();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            team.run(|m| {
                if m.index == 1 {
                    panic!("on purpose");
                }
                m.sync();
            })
        }));
        assert!(result.is_err());
        team.run(|m| m.sync());
    }
}
