//! Weights that stay in the file are asked of it a little before a pass comes to them, and let go of behind it: a
//! thread goes along the pass's phases, keeps so many bytes ahead, and tells the system to forget what was used. So a
//! pass takes no more of RAM than that, however much the system would like to cache, and reads each matrix once.
//! Faster than the pass's own page faults, because the disk always has the next pieces to work at.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::schedule::{Phase, matrices_of};
use crate::{Error, Model, Result, plan::WeightId};

/// Bytes asked for and not yet used: enough to keep a fast disk busy, little beside what RAM there is.
pub const LEAD: u64 = 256 << 20;
/// Asked for at once.
const PIECE: usize = 8 << 20;
/// How often the thread looks where the pass is.
const LOOK: Duration = Duration::from_micros(500);
/// What the pass's phase is when it is over.
const OVER: usize = usize::MAX;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Item {
    /// The phase that uses it.
    phase: usize,
    id: WeightId,
    bytes: u64,
}

#[derive(Default)]
struct State {
    items: Vec<Item>,
    /// Goes up with each pass.
    pass: u64,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// The phase that the pass is in.
    phase: AtomicUsize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn has_moved_on(&self, pass: u64) -> bool {
        let state = self.lock();
        state.pass != pass || state.ended
    }
}

/// Where a pass's time goes; written by one thread only.
#[derive(Default)]
struct Clock {
    /// When, in nanoseconds from the pass's begin, all that comes before which phase was done.
    at: AtomicU64,
    phase: AtomicUsize,
    /// Nanoseconds spent on matrices in the file.
    in_file: AtomicU64,
}

pub struct ReadAhead {
    shared: Arc<Shared>,
    model: Arc<Model>,
    /// By weight id: whether it is read from the file.
    in_file: Vec<bool>,
    /// By phase of the present pass.
    reads: Vec<bool>,
    started: Instant,
    clock: Clock,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    pub fn new(model: Arc<Model>, in_file: Vec<bool>) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name("read ahead".into()).spawn({
            let (shared, model) = (shared.clone(), model.clone());
            move || follow_passes(&shared, &model)
        });
        let thread =
            thread.map_err(|e| Error::Memory(format!("cannot start a thread to read ahead: {e}")))?;
        Ok(ReadAhead {
            shared,
            model,
            in_file,
            reads: Vec::new(),
            started: Instant::now(),
            clock: Clock::default(),
            thread: Some(thread),
        })
    }

    /// A pass begins.
    pub fn begin(&mut self, phases: &[Phase]) {
        let of_file = |phase| matrices_of(&self.model, phase).filter(|id| self.in_file[id.0 as usize]);
        self.reads.clear();
        self.reads.extend(phases.iter().map(|phase| of_file(phase).next().is_some()));
        self.started = Instant::now();
        self.clock = Clock::default();
        if !self.reads.contains(&true) {
            return;
        }
        let items = phases.iter().enumerate().flat_map(|(i, phase)| of_file(phase).map(move |id| (i, id)));
        let bytes = |id| self.model.weight(id).bytes;
        let mut state = self.shared.lock();
        state.items = items.map(|(phase, id)| Item { phase, id, bytes: bytes(id) }).collect();
        state.pass += 1;
        self.shared.phase.store(0, Relaxed);
        self.shared.wake.notify_one();
    }

    /// All threads have done what comes before this phase. One of them says so.
    pub fn reached(&self, phase: usize) {
        let now = self.started.elapsed().as_nanos() as u64;
        let since = now - self.clock.at.swap(now, Relaxed);
        let done = self.clock.phase.swap(phase, Relaxed)..phase;
        if self.reads[done].contains(&true) {
            self.clock.in_file.fetch_add(since, Relaxed);
            self.shared.phase.store(phase, Relaxed);
        }
    }

    /// The pass is over; seconds that it spent on matrices in the file.
    pub fn end(&self) -> f64 {
        self.reached(self.reads.len());
        if self.reads.contains(&true) {
            self.shared.phase.store(OVER, Relaxed);
        }
        self.clock.in_file.load(Relaxed) as f64 / 1e9
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn follow_passes(shared: &Shared, model: &Model) {
    let mut seen = 0;
    loop {
        let items = {
            let mut state = shared.lock();
            while state.pass == seen && !state.ended {
                state = shared.wake.wait(state).unwrap_or_else(|e| e.into_inner());
            }
            if state.ended {
                return;
            }
            seen = state.pass;
            std::mem::take(&mut state.items)
        };
        follow(&items, shared, model, seen);
    }
}

/// Goes along with one pass.
fn follow(items: &[Item], shared: &Shared, model: &Model, pass: u64) {
    let mut used = 0;
    let mut evict = |phase: usize| {
        while let Some(item) = items.get(used).filter(|item| item.phase < phase) {
            let weight = model.weight(item.id);
            model.gguf.evict(&weight.tensor, weight.range_of(0..weight.rows));
            used += 1;
        }
        used == items.len()
    };
    'ask: for (i, item) in items.iter().enumerate() {
        for from in (0..item.bytes).step_by(PIECE) {
            loop {
                let phase = shared.phase.load(Relaxed);
                evict(phase);
                if ahead(&items[..i], from, phase) <= LEAD {
                    break;
                }
                if shared.has_moved_on(pass) {
                    break 'ask;
                }
                std::thread::sleep(LOOK);
            }
            ask(item, from, model);
        }
    }
    while !evict(shared.phase.load(Relaxed)) && !shared.has_moved_on(pass) {
        std::thread::sleep(LOOK);
    }
    evict(OVER);
    // The next full pass begins like this one. Until then, while drafts run from RAM, the disk has nothing to do.
    let mut asked = 0;
    for item in items {
        for from in (0..item.bytes).step_by(PIECE) {
            if asked >= LEAD || shared.has_moved_on(pass) {
                return;
            }
            ask(item, from, model);
            asked += PIECE as u64;
        }
    }
}

/// For a piece of an item.
fn ask(item: &Item, from: u64, model: &Model) {
    let to = (from + PIECE as u64).min(item.bytes);
    let weight = model.weight(item.id);
    let begin = weight.begin as usize;
    model.gguf.will_need(&weight.tensor, begin + from as usize..begin + to as usize);
}

/// Bytes asked for that the pass, now in `phase`, has not used: of the items before and so much of the next.
fn ahead(before: &[Item], so_far: u64, phase: usize) -> u64 {
    before.iter().rev().take_while(|item| item.phase >= phase).map(|item| item.bytes).sum::<u64>() + so_far
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pass_has_used_is_not_ahead_of_it() {
        let items: Vec<Item> =
            (0..4).map(|i| Item { phase: 10 * i, id: WeightId(i as u32), bytes: 100 }).collect();
        assert_eq!(ahead(&items, 7, 0), 407);
        assert_eq!(ahead(&items, 7, 10), 307);
        assert_eq!(ahead(&items, 7, 11), 207);
        assert_eq!(ahead(&items, 7, 31), 7);
    }
}
