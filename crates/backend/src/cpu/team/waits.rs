//! How threads of a team wait: by spinning for as long as it is likely to take, and then asleep.

use std::{
    cell::Cell,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long a waiting thread spins before it sleeps: longer than threads differ in a phase, and than one takes to wake
/// up, or who overslept one phase would be late for the next. By the clock, because the pause between two looks takes
/// from tens to thousands of cycles, depending on the processor and on who else runs there.
const SPIN: Duration = Duration::from_micros(60);
/// The same between passes: longer than it takes to choose a token.
pub(super) const SPIN_BETWEEN_PASSES: Duration = Duration::from_micros(100);
const LOOKS_PER_CLOCK: u32 = 8;

/// How long a thread has spun for nothing before it went to sleep. Shorter waits are not counted: they would have to be timed.
#[derive(Default)]
pub(super) struct Spun(pub(super) Cell<Duration>);

/// Where helpers wait for a region that they take part in.
pub(super) struct Start {
    /// The region's number, times `REGION`, and how many threads take part; none dismisses all.
    now: AtomicU64,
    /// By helper's number.
    asleep: Vec<AtomicBool>,
}

const REGION: u64 = 1 << 16;

impl Start {
    pub(super) fn new(threads: usize) -> Self {
        assert!((threads as u64) < REGION);
        Start { now: 1.into(), asleep: (0..threads).map(|_| false.into()).collect() }
    }

    /// The next region and how many take part, once this helper is one of them; `None` if all are dismissed.
    pub(super) fn wait(&self, index: usize, last: u64) -> Option<(u64, usize)> {
        let look = |order| {
            let now = self.now.load(order);
            let (region, threads) = (now / REGION, (now % REGION) as usize);
            (threads == 0 || region != last && index < threads).then_some((region, threads))
        };
        let opened = spin_until(SPIN_BETWEEN_PASSES, || look(Ordering::Acquire)).unwrap_or_else(|| {
            // Sequentially consistent with the caller's number and check: one of the two sees the other.
            self.asleep[index].store(true, Ordering::SeqCst);
            let opened = loop {
                match look(Ordering::SeqCst) {
                    Some(opened) => break opened,
                    None => thread::park(),
                }
            };
            self.asleep[index].store(false, Ordering::Relaxed);
            opened
        });
        Some(opened).filter(|&(_, threads)| threads > 0)
    }

    /// Only the caller opens, and only after `end`.
    pub(super) fn open(&self, threads: usize, helpers: &[JoinHandle<()>]) {
        let region = self.now.load(Ordering::Relaxed) / REGION + 1;
        self.now.store(region * REGION + threads as u64, Ordering::SeqCst);
        self.wake(&helpers[..threads - 1]);
    }

    pub(super) fn dismiss(&self, helpers: &[JoinHandle<()>]) {
        self.now.store(0, Ordering::SeqCst);
        self.wake(helpers);
    }

    fn wake(&self, helpers: &[JoinHandle<()>]) {
        for (helper, asleep) in helpers.iter().zip(&self.asleep[1..]) {
            if asleep.load(Ordering::SeqCst) {
                helper.thread().unpark();
            }
        }
    }
}

/// What `look` finds, unless that takes too long.
fn spin_until<T>(most: Duration, look: impl Fn() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        for _ in 0..LOOKS_PER_CLOCK {
            if let Some(found) = look() {
                return Some(found);
            }
            std::hint::spin_loop();
        }
        if started.elapsed() > most {
            return None;
        }
    }
}

pub(super) struct Barrier {
    arrived: AtomicUsize,
    generation: AtomicUsize,
    poisoned: AtomicBool,
    sleepers: AtomicUsize,
    asleep: Mutex<()>,
    wake: Condvar,
}

#[derive(PartialEq)]
pub(super) enum Passed {
    Together,
    /// Some thread will never arrive.
    Poisoned,
}

impl Barrier {
    pub(super) fn new() -> Self {
        Barrier {
            arrived: 0.into(),
            generation: 0.into(),
            poisoned: false.into(),
            sleepers: 0.into(),
            asleep: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// All of `threads` must say so many.
    pub(super) fn wait(&self, threads: usize, spun: &Spun) -> Passed {
        if threads == 1 {
            return Passed::Together;
        }
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == threads {
            self.arrived.store(0, Ordering::Relaxed);
            // Sequentially consistent with the sleeper's count and check: one of the two sees the other.
            self.generation.store(generation.wrapping_add(1), Ordering::SeqCst);
            self.wake_sleepers();
            return self.passed();
        }
        let open = |order| self.generation.load(order) != generation || self.poisoned.load(order);
        if spin_until(SPIN, || open(Ordering::Acquire).then_some(())).is_some() {
            return self.passed();
        }
        spun.0.update(|spun| spun + SPIN);
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !open(Ordering::SeqCst) {
            asleep = self.wake.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        drop(asleep);
        self.passed()
    }

    fn wake_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // With the lock, so that nobody is between the check and the sleep.
            let _asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
            self.wake.notify_all();
        }
    }

    fn passed(&self) -> Passed {
        if self.poisoned.load(Ordering::Acquire) { Passed::Poisoned } else { Passed::Together }
    }

    /// Lets everybody out, because this thread will never arrive.
    pub(super) fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
        self.wake_sleepers();
    }

    /// Resets it, while no thread waits at it.
    pub(super) fn reset(&self) {
        self.arrived.store(0, Ordering::Relaxed);
        self.poisoned.store(false, Ordering::Release);
    }
}
