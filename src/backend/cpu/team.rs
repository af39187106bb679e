//! A team of threads that goes through one forward pass together: one parallel region per pass with a spin
//! barrier between phases, because waking threads up costs more than most phases do. Who waits longer than
//! that goes to sleep, so that on a busy machine the core goes to whoever everybody is waiting for.

use std::{
    any::Any,
    cell::UnsafeCell,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// How long a waiting thread spins before it sleeps: longer than threads differ in a phase, and than one takes to wake
/// up, or who overslept one phase would be late for the next. By the clock, because the pause between two looks takes
/// from tens to thousands of cycles, depending on the processor and on who else runs there.
const SPIN: Duration = Duration::from_micros(60);
/// The same between passes: longer than it takes to choose a token.
const SPIN_BETWEEN_PASSES: Duration = Duration::from_micros(100);
const LOOKS_PER_CLOCK: u32 = 8;

/// The caller's own thread and `threads - 1` more, which live as long as the team.
pub struct Team {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Opens when there is work, or when the team is dismissed.
    start: Barrier,
    phases: Barrier,
    end: Barrier,
    /// Written by the caller while all others wait at `start`, and read by them until `end`.
    work: UnsafeCell<Option<Work>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// What a region runs. It is borrowed for longer than it says: the region ends before the borrow does.
type Work = &'static (dyn Fn(Member) + Sync);

// SAFETY: `work` is handed over by the barriers, as said there; the rest is made for sharing.
unsafe impl Sync for Shared {}

/// One thread's view of a region.
pub struct Member<'a> {
    pub index: usize,
    pub threads: usize,
    barrier: &'a Barrier,
}

impl Team {
    pub fn new(threads: usize) -> Result<Self> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            start: Barrier::new(threads, SPIN_BETWEEN_PASSES),
            phases: Barrier::new(threads, SPIN),
            end: Barrier::new(threads, SPIN),
            work: UnsafeCell::new(None),
            panic: Mutex::new(None),
        });
        let mut helpers = Vec::new();
        for index in 1..threads {
            let of_helper = shared.clone();
            let thread = thread::Builder::new().name(format!("spec-run-{index}"));
            match thread.spawn(move || of_helper.help(index)) {
                Ok(helper) => helpers.push(helper),
                Err(e) => {
                    // Those that run already wait for more than will come.
                    shared.start.poison();
                    return Err(Error::Memory(format!(
                        "cannot start {threads} threads: {e}: use a smaller -t"
                    )));
                }
            }
        }
        Ok(Team { shared, helpers })
    }

    pub fn threads(&self) -> usize {
        self.shared.start.threads
    }

    /// Runs `work` once on every thread. A panic in one ends all and comes out here.
    pub fn run(&mut self, work: impl Fn(Member) + Sync) {
        let work: &(dyn Fn(Member) + Sync) = &work;
        // SAFETY: only the lifetime changes; nobody calls it after `end`, which is passed before this returns.
        let work = unsafe { std::mem::transmute::<&(dyn Fn(Member) + Sync), Work>(work) };
        // SAFETY: the helpers wait at `start` and look at it after that.
        unsafe { *self.shared.work.get() = Some(work) };
        self.shared.start.wait();
        self.shared.take_part(0, work);
        self.shared.end.wait();
        let panic = self.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            // Everybody has left it.
            self.shared.phases.reset();
            resume_unwind(panic);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // SAFETY: the helpers wait at `start`.
        unsafe { *self.shared.work.get() = None };
        self.shared.start.wait();
        for helper in self.helpers.drain(..) {
            // What it panicked with has come out of `run`.
            let _ = helper.join();
        }
    }
}

impl Shared {
    fn help(&self, index: usize) {
        loop {
            if self.start.wait() == Passed::Poisoned {
                return;
            }
            // SAFETY: written before `start` opened, and not again before `end` does.
            let Some(work) = (unsafe { *self.work.get() }) else { return };
            self.take_part(index, work);
            self.end.wait();
        }
    }

    fn take_part(&self, index: usize, work: Work) {
        let member = Member { index, threads: self.phases.threads, barrier: &self.phases };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(member))) {
            // The first one tells; those that follow only say that another has failed.
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            self.phases.poison();
        }
    }
}

impl Member<'_> {
    /// Waits until every thread of the team is here; what each wrote before is seen by all after.
    pub fn sync(&self) {
        if self.barrier.wait() == Passed::Poisoned {
            panic!("another thread of the team failed");
        }
    }

    /// This thread's parts of `count` items, in pieces of `grain`: first a share that is its own; then, of the last
    /// quarter, what it comes to before the others, which evens out how fast threads are. `taken` counts the pieces of
    /// that quarter that are gone, from zero, and is the same for all; without it there is no such quarter.
    pub fn deal(
        &self,
        taken: Option<&AtomicUsize>,
        count: usize,
        grain: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let pieces = count.div_ceil(grain);
        let taken = taken.filter(|_| self.threads > 1);
        let fixed = if taken.is_some() { pieces - pieces / 4 } else { pieces };
        let items = move |pieces: Range<usize>| pieces.start * grain..(pieces.end * grain).min(count);
        let own = Some(self.share(fixed, 1)).filter(|own| !own.is_empty());
        let late = std::iter::from_fn(move || {
            // Nothing is handed over with it: the barriers do that.
            let next = fixed + taken?.fetch_add(1, Ordering::Relaxed);
            (next < pieces).then(|| next..next + 1)
        });
        own.into_iter().chain(late).map(items)
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
    spin: Duration,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    poisoned: AtomicBool,
    sleepers: AtomicUsize,
    asleep: Mutex<()>,
    wake: Condvar,
}

#[derive(PartialEq)]
enum Passed {
    Together,
    /// Somebody will never come.
    Poisoned,
}

impl Barrier {
    fn new(threads: usize, spin: Duration) -> Self {
        Barrier {
            threads,
            spin,
            arrived: 0.into(),
            generation: 0.into(),
            poisoned: false.into(),
            sleepers: 0.into(),
            asleep: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    fn wait(&self) -> Passed {
        if self.threads == 1 {
            return Passed::Together;
        }
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            // Sequentially consistent with the sleeper's count and check: one of the two sees the other.
            self.generation.store(generation.wrapping_add(1), Ordering::SeqCst);
            self.wake_sleepers();
            return self.passed();
        }
        let open = |order| self.generation.load(order) != generation || self.poisoned.load(order);
        let started = Instant::now();
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                if open(Ordering::Acquire) {
                    return self.passed();
                }
                std::hint::spin_loop();
            }
            if started.elapsed() > self.spin {
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
    fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
        self.wake_sleepers();
    }

    /// Makes it a new one, when nobody is at it.
    fn reset(&self) {
        self.arrived.store(0, Ordering::Relaxed);
        self.poisoned.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn a_barrier_orders_what_was_written_before_it() {
        let mut team = Team::new(3).unwrap();
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
        let barrier = Barrier::new(1, SPIN);
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
    fn what_is_dealt_is_dealt_once_whoever_comes_first() {
        for (count, grain, threads) in [(0, 8, 2), (1, 8, 3), (31, 8, 2), (4000, 32, 3), (101, 1, 1)] {
            let mut team = Team::new(threads).unwrap();
            let dealt: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
            let taken = AtomicUsize::new(0);
            team.run(|m| {
                for items in m.deal(Some(&taken), count, grain) {
                    assert!(items.start.is_multiple_of(grain) && !items.is_empty());
                    items.for_each(|i| _ = dealt[i].fetch_add(1, Ordering::Relaxed));
                }
            });
            assert!(dealt.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{count} by {grain} to {threads}");
        }
    }

    #[test]
    fn who_is_late_gets_less() {
        let barrier = Barrier::new(2, SPIN);
        let taken = AtomicUsize::new(0);
        let [first, late] = [0, 1].map(|index| Member { index, threads: 2, barrier: &barrier });
        let of_first: usize = first.deal(Some(&taken), 800, 10).map(|items| items.len()).sum();
        let of_late: usize = late.deal(Some(&taken), 800, 10).map(|items| items.len()).sum();
        assert_eq!((of_first, of_late), (500, 300));
        let fixed: Vec<_> = first.deal(None, 800, 10).collect();
        assert_eq!(fixed, [0..400]);
    }

    #[test]
    fn a_region_uses_every_thread_and_ends_before_run_returns() {
        for threads in 1..5 {
            let mut team = Team::new(threads).unwrap();
            for _ in 0..500 {
                let seen = AtomicU64::new(0);
                team.run(|m| {
                    seen.fetch_add(1 << (8 * m.index), Ordering::Relaxed);
                });
                let expected: u64 = (0..threads).map(|i| 1 << (8 * i)).sum();
                assert_eq!(seen.into_inner(), expected);
            }
            // Long enough for everybody to fall asleep.
            thread::sleep(4 * SPIN_BETWEEN_PASSES);
            team.run(|m| m.sync());
        }
    }

    #[test]
    fn a_panic_in_one_thread_does_not_hang_the_others() {
        let mut team = Team::new(2).unwrap();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            team.run(|m| {
                if m.index == 1 {
                    panic!("on purpose");
                }
                m.sync();
            })
        }));
        assert_eq!(result.unwrap_err().downcast_ref(), Some(&"on purpose"));
        team.run(|m| m.sync());
    }
}
