//! A team of threads that goes through one forward pass together: one parallel region per pass with a spin
//! barrier between phases, because waking threads up costs more than most phases do. Who waits longer than
//! that goes to sleep, so that on a busy machine the core goes to whoever everybody is waiting for; and where that
//! happens much, fewer threads take part ([`Crew`]).

use std::{
    any::Any,
    cell::{Cell, UnsafeCell},
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::crew::Crew;
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
    crew: Crew,
}

struct Shared {
    start: Start,
    phases: Barrier,
    end: Barrier,
    /// Written by the caller while all others wait at `start`, and read by those who take part until `end`.
    work: UnsafeCell<Option<Work>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Nanoseconds that each thread has worked in the last region it took part in.
    useful: Vec<Useful>,
}

/// Alone in its cache line.
#[derive(Default)]
#[repr(align(64))]
struct Useful(AtomicU64);

/// What a region runs. It is borrowed for longer than it says: the region ends before the borrow does.
type Work = &'static (dyn Fn(Member) + Sync);

// SAFETY: `work` is handed over by the barriers, as said there; the rest is made for sharing.
unsafe impl Sync for Shared {}

/// One thread's view of a region.
pub struct Member<'a> {
    pub index: usize,
    pub threads: usize,
    barrier: &'a Barrier,
    spun: &'a Spun,
}

impl Team {
    pub fn new(threads: usize) -> Result<Self> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            start: Start::new(threads),
            phases: Barrier::new(),
            end: Barrier::new(),
            work: UnsafeCell::new(None),
            panic: Mutex::new(None),
            useful: (0..threads).map(|_| Useful::default()).collect(),
        });
        let mut helpers = Vec::new();
        for index in 1..threads {
            let of_helper = shared.clone();
            let thread = thread::Builder::new().name(format!("spec-run-{index}"));
            match thread.spawn(move || of_helper.help(index)) {
                Ok(helper) => helpers.push(helper),
                Err(e) => {
                    shared.start.dismiss(&helpers);
                    return Err(Error::Memory(format!(
                        "cannot start {threads} threads: {e}: fewer `threads`"
                    )));
                }
            }
        }
        Ok(Team { shared, helpers, crew: Crew::new(threads) })
    }

    /// All there are.
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Those who take part in the next region.
    pub fn crew(&self) -> usize {
        self.crew.threads()
    }

    /// The share of all regions' time in which some were left out.
    pub fn crowded(&self) -> f64 {
        self.crew.crowded()
    }

    /// Runs `work` once on every thread of the crew. A panic in one ends all and comes out here.
    pub fn run(&mut self, work: impl Fn(Member) + Sync) {
        let work: &(dyn Fn(Member) + Sync) = &work;
        // SAFETY: only the lifetime changes; nobody calls it after `end`, which is passed before this returns.
        let work = unsafe { std::mem::transmute::<&(dyn Fn(Member) + Sync), Work>(work) };
        // SAFETY: the helpers wait at `start` and look at it after that.
        unsafe { *self.shared.work.get() = Some(work) };
        let (threads, started) = (self.crew.threads(), Instant::now());
        self.shared.start.open(threads, &self.helpers);
        self.shared.take_part(0, threads, work);
        self.shared.end.wait(threads, &Spun::default());
        if self.threads() > 1 {
            let useful =
                self.shared.useful[..threads].iter().map(|Useful(ns)| ns.load(Ordering::Relaxed)).sum();
            let now = Instant::now();
            self.crew.passed(now - started, Duration::from_nanos(useful), now);
        }
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
        self.shared.start.dismiss(&self.helpers);
        for helper in self.helpers.drain(..) {
            // What it panicked with has come out of `run`.
            let _ = helper.join();
        }
    }
}

impl Shared {
    fn help(&self, index: usize) {
        let mut last = 0;
        while let Some((region, threads)) = self.start.wait(index, last) {
            last = region;
            // SAFETY: written before `start` opened, and not again before `end` does.
            let work = unsafe { *self.work.get() }.expect("it opens when there is work");
            self.take_part(index, threads, work);
            self.end.wait(threads, &Spun::default());
        }
    }

    fn take_part(&self, index: usize, threads: usize, work: Work) {
        let (spun, before) = (Spun::default(), self.cpu_time());
        let member = Member { index, threads, barrier: &self.phases, spun: &spun };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(member))) {
            // The first one tells; those that follow only say that another has failed.
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            self.phases.poison();
        }
        let useful = self.cpu_time().saturating_sub(before).saturating_sub(spun.0.get());
        // Seen by the caller after `end`.
        self.useful[index].0.store(useful.as_nanos() as u64, Ordering::Relaxed);
    }

    /// What this thread has had of a core. Of use to a team only.
    fn cpu_time(&self) -> Duration {
        if self.useful.len() > 1 { cpu_time() } else { Duration::ZERO }
    }
}

#[cfg(unix)]
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Elsewhere, time on the clock: the crew then never looks slow, and stays whole.
#[cfg(not(unix))]
fn cpu_time() -> Duration {
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}

/// How long a thread has spun for nothing before it went to sleep. Shorter waits are not counted: they would have to be timed.
#[derive(Default)]
struct Spun(Cell<Duration>);

/// Where helpers wait for a region that they take part in.
struct Start {
    /// The region's number, times `REGION`, and how many threads take part; none dismisses all.
    now: AtomicU64,
    /// By helper's number.
    asleep: Vec<AtomicBool>,
}

const REGION: u64 = 1 << 16;

impl Start {
    fn new(threads: usize) -> Self {
        assert!((threads as u64) < REGION);
        Start { now: 1.into(), asleep: (0..threads).map(|_| false.into()).collect() }
    }

    /// The next region and how many take part, once this helper is one of them; `None` if all are dismissed.
    fn wait(&self, index: usize, last: u64) -> Option<(u64, usize)> {
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
    fn open(&self, threads: usize, helpers: &[JoinHandle<()>]) {
        let region = self.now.load(Ordering::Relaxed) / REGION + 1;
        self.now.store(region * REGION + threads as u64, Ordering::SeqCst);
        self.wake(&helpers[..threads - 1]);
    }

    fn dismiss(&self, helpers: &[JoinHandle<()>]) {
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

impl Member<'_> {
    /// Waits until every thread of the team is here; what each wrote before is seen by all after.
    pub fn sync(&self) {
        if self.barrier.wait(self.threads, self.spun) == Passed::Poisoned {
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
    fn new() -> Self {
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
    fn wait(&self, threads: usize, spun: &Spun) -> Passed {
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
        let (barrier, spun) = (Barrier::new(), Spun::default());
        for (count, grain, threads) in [(0, 8, 2), (1, 8, 3), (31, 8, 2), (64, 8, 3), (100, 1, 7)] {
            let mut next = 0;
            for index in 0..threads {
                let share = Member { index, threads, barrier: &barrier, spun: &spun }.share(count, grain);
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
        let (barrier, spun) = (Barrier::new(), Spun::default());
        let taken = AtomicUsize::new(0);
        let [first, late] = [0, 1].map(|index| Member { index, threads: 2, barrier: &barrier, spun: &spun });
        let of_first: usize = first.deal(Some(&taken), 800, 10).map(|items| items.len()).sum();
        let of_late: usize = late.deal(Some(&taken), 800, 10).map(|items| items.len()).sum();
        assert_eq!((of_first, of_late), (500, 300));
        let of_one: usize = late.deal(None, 800, 10).map(|items| items.len()).sum();
        assert_eq!(of_one, 400, "without a counter, shares are equal");
    }

    #[test]
    fn a_region_uses_the_whole_crew_and_ends_before_run_returns() {
        for threads in 1..5 {
            let mut team = Team::new(threads).unwrap();
            for _ in 0..500 {
                let (seen, crew) = (AtomicU64::new(0), team.crew());
                team.run(|m| {
                    seen.fetch_add(1 << (8 * m.index), Ordering::Relaxed);
                });
                let expected: u64 = (0..crew).map(|i| 1 << (8 * i)).sum();
                assert_eq!(seen.into_inner(), expected);
            }
            // Long enough for everybody to fall asleep.
            thread::sleep(4 * SPIN_BETWEEN_PASSES);
            team.run(|m| m.sync());
        }
    }

    #[test]
    fn whoever_takes_part_does_it_in_every_region() {
        let mut team = Team::new(5).unwrap();
        for round in 0..3000 {
            let threads = [5, 1, 3, 2, 2, 4][round % 6];
            team.crew = Crew::new(threads);
            let seen: [AtomicU64; 5] = Default::default();
            team.run(|m| {
                assert_eq!(m.threads, threads);
                seen[m.index].fetch_add(1, Ordering::Relaxed);
                m.sync();
                let all: u64 = seen.iter().map(|seen| seen.load(Ordering::Relaxed)).sum();
                assert_eq!(all, threads as u64);
            });
            if round % 500 == 0 {
                // Long enough for everybody to fall asleep.
                thread::sleep(4 * SPIN_BETWEEN_PASSES);
            }
        }
    }

    /// Passes of short phases on a machine whose every core somebody else has too. Where threads of a team wait for
    /// each other through whole turns of the scheduler, two get a fifth of what one does. Half would be fair to
    /// expect; how turns fall is chance, hence the best of several tries.
    #[test]
    fn on_a_busy_machine_a_team_is_not_much_slower_than_one_thread() {
        if cfg!(not(unix)) {
            eprintln!("skipped: a thread's time on a core is told on Unix only");
            return;
        }
        let busy = AtomicBool::new(true);
        let passes = |team: &mut Team| {
            let (started, mut passes) = (Instant::now(), 0);
            while started.elapsed() < Duration::from_millis(400) {
                team.run(|m| {
                    for _ in 0..45 {
                        m.sync();
                        for i in m.share(1000, 1) {
                            std::hint::black_box((0..20).fold(i, |sum, i| std::hint::black_box(sum ^ i)));
                        }
                    }
                });
                passes += 1;
            }
            passes
        };
        let stop = AtOnce(&busy);
        thread::scope(|scope| {
            let stop = stop;
            for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
                scope.spawn(|| {
                    while busy.load(Ordering::Relaxed) {
                        std::hint::spin_loop()
                    }
                });
            }
            let threads = thread::available_parallelism().map_or(2, usize::from).max(2);
            let (mut one, mut all) = (Team::new(1).unwrap(), Team::new(threads).unwrap());
            let ratio = || f64::from(passes(&mut all)) / f64::from(passes(&mut one));
            let ratios: Vec<f64> = std::iter::repeat_with(ratio).take(5).collect();
            let best = ratios.iter().copied().fold(0.0, f64::max);
            drop(stop);
            assert!(best > 0.5, "{threads} threads against one: {ratios:.2?}");
        });
    }

    /// Ends those who look at it, also where a test fails.
    struct AtOnce<'a>(&'a AtomicBool);

    impl Drop for AtOnce<'_> {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
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
