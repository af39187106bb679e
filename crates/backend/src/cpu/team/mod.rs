//! A team of threads that goes through one forward pass together: one parallel region per pass with a spin
//! barrier between phases, because waking threads up costs more than most phases do. Who waits longer than
//! that goes to sleep, so that on a busy machine the core goes to whoever everybody is waiting for; and where that
//! happens much, fewer threads take part ([`Crew`]).

#[cfg(test)]
mod tests;
mod waits;

use std::{
    any::Any,
    cell::UnsafeCell,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use self::waits::{Barrier, Passed, Spun, Start};
use super::{
    cores::{self, Seat},
    crew::Crew,
};
use crate::{Error, Result};

/// From so many rows on, a pass is a piece of a prompt: it is bound by arithmetic, not by the memory.
const MANY_ROWS: usize = 33;

/// The caller's own thread and `threads - 1` more, which live as long as the team.
pub struct Team {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// For passes of few rows.
    crew: Crew,
    /// For prompts, where as many threads are not wanted.
    for_prompts: Option<Crew>,
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
    /// Where shares of work end that go by the speed of threads: of the first n threads, for n from 0.
    bounds: Vec<u64>,
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
    bounds: &'a [u64],
    barrier: &'a Barrier,
    spun: &'a Spun,
}

/// How much is gone of what is dealt to whoever comes: a counter alone in its cache line.
#[derive(Default)]
#[repr(align(64))]
pub struct WorkCounter(AtomicUsize);

impl WorkCounter {
    pub fn reset(&mut self) {
        *self.0.get_mut() = 0;
    }

    /// The next of it.
    pub fn next(&self) -> usize {
        // Nothing is handed over with it: the barriers do that.
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// A range of a whole.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub from: u64,
    pub to: u64,
    pub whole: u64,
}

impl Team {
    /// `few` threads for passes of few rows, `many` for prompts; at least as many as the more of both have a seat. The
    /// caller's own thread has the first one, but is bound to nothing: it is not the team's.
    pub fn new(few: usize, many: usize, seats: &[Seat]) -> Result<Self> {
        let threads = few.max(many).max(1);
        let ends = seats[..threads].iter().scan(0, |end, seat| {
            *end += u64::from(seat.speed);
            Some(*end)
        });
        let shared = Arc::new(Shared {
            start: Start::new(threads),
            phases: Barrier::new(),
            end: Barrier::new(),
            work: UnsafeCell::new(None),
            panic: Mutex::new(None),
            useful: (0..threads).map(|_| Useful::default()).collect(),
            bounds: std::iter::once(0).chain(ends).collect(),
        });
        let mut helpers = Vec::new();
        for (index, seat) in seats.iter().enumerate().take(threads).skip(1) {
            let (of_helper, cpus) = (shared.clone(), seat.cpus.clone());
            let thread = thread::Builder::new().name(format!("spec-run-{index}"));
            let helps = move || {
                // Where the system does not do it, it places the thread.
                cores::bind(&cpus);
                of_helper.help(index);
            };
            match thread.spawn(helps) {
                Ok(helper) => helpers.push(helper),
                Err(e) => {
                    shared.start.dismiss(&helpers);
                    return Err(Error::Memory(format!(
                        "cannot start {threads} threads: {e}: fewer `threads`"
                    )));
                }
            }
        }
        let for_prompts = (few != many).then(|| Crew::new(many.max(1)));
        Ok(Team { shared, helpers, crew: Crew::new(few.max(1)), for_prompts })
    }

    /// All there are.
    fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Those who take part in the next region for so many rows.
    pub fn crew(&self, rows: usize) -> usize {
        let for_prompts = self.for_prompts.as_ref().filter(|_| rows >= MANY_ROWS);
        for_prompts.unwrap_or(&self.crew).threads()
    }

    fn crew_mut(&mut self, rows: usize) -> &mut Crew {
        let for_prompts = self.for_prompts.as_mut().filter(|_| rows >= MANY_ROWS);
        for_prompts.unwrap_or(&mut self.crew)
    }

    /// The share of all regions' time in which some were left out.
    pub fn crowded(&self) -> f64 {
        let crews = || std::iter::once(&self.crew).chain(&self.for_prompts);
        let [crowded, total]: [Duration; 2] =
            [crews().map(Crew::crowded).sum(), crews().map(Crew::total).sum()];
        crowded.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Runs `work`, which is for so many rows, once on every thread of their crew. A panic in one ends all and comes out
    /// here.
    pub fn run(&mut self, rows: usize, work: impl Fn(Member) + Sync) {
        let work: &(dyn Fn(Member) + Sync) = &work;
        // SAFETY: only the lifetime changes; nobody calls it after `end`, which is passed before this returns.
        let work = unsafe { std::mem::transmute::<&(dyn Fn(Member) + Sync), Work>(work) };
        // SAFETY: the helpers wait at `start` and look at it after that.
        unsafe { *self.shared.work.get() = Some(work) };
        let (threads, started) = (self.crew(rows), Instant::now());
        self.shared.start.open(threads, &self.helpers);
        self.shared.take_part(0, threads, work);
        self.shared.end.wait(threads, &Spun::default());
        if self.threads() > 1 {
            let useful =
                self.shared.useful[..threads].iter().map(|Useful(ns)| ns.load(Ordering::Relaxed)).sum();
            let now = Instant::now();
            self.crew_mut(rows).passed(now - started, Duration::from_nanos(useful), now);
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
        let member = Member { index, threads, bounds: &self.bounds, barrier: &self.phases, spun: &spun };
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

#[cfg(windows)]
use crate::windows::cpu_time;

impl Member<'_> {
    /// Waits until every thread of the team is here; what each wrote before is seen by all after.
    pub fn sync(&self) {
        if self.barrier.wait(self.threads, self.spun) == Passed::Poisoned {
            panic!("another thread of the team failed");
        }
    }

    /// This thread's parts of `count` items, in pieces of `grain`: first a share that is its own; then, of the last
    /// quarter, what it comes to before the others, which evens out how fast threads are. `taken` counts the parts of
    /// that quarter that are gone, from zero, and is the same for all; without it there is no such quarter.
    pub fn deal(
        &self,
        taken: Option<&WorkCounter>,
        count: usize,
        grain: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let pieces = count.div_ceil(grain);
        let taken = taken.filter(|_| self.threads > 1);
        let fixed = if taken.is_some() { pieces - pieces / 4 } else { pieces };
        let own = Some(self.share(fixed, 1)).filter(|own| !own.is_empty());
        let (mut parts, mut seen) = (ever_smaller(fixed..pieces, self.threads), 0);
        let late = std::iter::from_fn(move || {
            let turn = taken?.next();
            let part = parts.nth(turn - seen);
            seen = turn + 1;
            part
        });
        let items = move |pieces: Range<usize>| pieces.start * grain..(pieces.end * grain).min(count);
        own.into_iter().chain(late).map(items)
    }

    /// This thread's share of `count` items by its speed, dealt in pieces of `grain`.
    pub fn share(&self, count: usize, grain: usize) -> Range<usize> {
        let pieces = count.div_ceil(grain) as u64;
        let part = self.part();
        let bound = |end: u64| ((pieces * end / part.whole) as usize * grain).min(count);
        bound(part.from)..bound(part.to)
    }

    /// Which part of all work is this thread's.
    pub fn part(&self) -> Part {
        let [from, to, whole] = [self.index, self.index + 1, self.threads].map(|end| self.bounds[end]);
        Part { from, to, whole }
    }
}

/// Cuts pieces into parts, each of half of a thread's equal share in those that are left. Small ones at the end even out how
/// fast threads are; long ones before are read faster, since each begins with memory that has not been prefetched.
fn ever_smaller(mut pieces: Range<usize>, threads: usize) -> impl Iterator<Item = Range<usize>> {
    // Single pieces are for those who get no more than a few.
    let least = (pieces.len() / (4 * threads)).clamp(1, 2);
    std::iter::from_fn(move || {
        let len = (pieces.len() / (2 * threads)).max(least).min(pieces.len());
        let part = pieces.start..pieces.start + len;
        pieces.start = part.end;
        Some(part).filter(|part| !part.is_empty())
    })
}
