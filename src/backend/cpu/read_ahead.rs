//! Weights that stay in the file are asked of it a little before a pass comes to them: a thread goes along the
//! pass's phases and keeps so many bytes ahead. Faster than the pass's own page faults, and no memory is taken
//! that the system could not take back.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use super::schedule::{Phase, matrices_of};
use crate::{Error, Model, Result, plan::WeightId};

/// Bytes asked for and not yet used: enough to keep a fast disk busy, little beside what RAM there is.
const LEAD: u64 = 256 << 20;
/// Asked for at once.
const PIECE: usize = 8 << 20;
/// How often the thread looks where the pass is.
const LOOK: Duration = Duration::from_micros(500);

/// Passes with reading ahead between two without, which show whether it is needed.
const PASSES: u32 = 16;
/// Pages that a pass had to wait for, from which on it is.
const FAULTS: u64 = 64;

/// Asking for what is in memory anyway costs time, so now and then a pass goes without and its faults are counted.
#[derive(Debug)]
struct Need {
    passes_left: u32,
    /// Faults before a pass that went without.
    before: Option<u64>,
}

impl Need {
    /// Whether to read ahead of the next pass; `faults` is how many pages the process has waited for so far.
    fn decide(&mut self, faults: u64) -> bool {
        if self.before.take().is_some_and(|before| faults >= before + FAULTS) {
            self.passes_left = PASSES;
        }
        if self.passes_left > 0 {
            self.passes_left -= 1;
            return true;
        }
        self.before = Some(faults);
        false
    }
}

/// Pages that this process has waited for; where the system does not tell, always more.
fn major_faults() -> u64 {
    let count = || {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The second field is a name in brackets, which may hold anything; this is the twelfth.
        stat.rsplit_once(')')?.1.split_whitespace().nth(9)?.parse().ok()
    };
    static CALLS: AtomicU64 = AtomicU64::new(0);
    count().unwrap_or_else(|| CALLS.fetch_add(FAULTS, Ordering::Relaxed))
}

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
}

pub struct ReadAhead {
    shared: Arc<Shared>,
    model: Arc<Model>,
    /// By weight id: whether it is read from the file.
    in_file: Vec<bool>,
    need: Need,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    pub fn new(model: Arc<Model>, in_file: Vec<bool>) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name("read ahead".into()).spawn({
            let (shared, model) = (shared.clone(), model.clone());
            move || read(&shared, &model)
        });
        let thread =
            thread.map_err(|e| Error::Memory(format!("cannot start a thread to read ahead: {e}")))?;
        let need = Need { passes_left: PASSES, before: None };
        Ok(ReadAhead { shared, model, in_file, need, thread: Some(thread) })
    }

    /// A pass begins.
    pub fn begin(&mut self, phases: &[Phase]) {
        if !self.need.decide(major_faults()) {
            return;
        }
        let items = phases.iter().enumerate().flat_map(|(phase, p)| {
            matrices_of(p).filter(|id| self.in_file[id.0 as usize]).map(move |id| (phase, id))
        });
        let items =
            items.map(|(phase, id)| Item { phase, id, bytes: self.model.weight(id).tensor.bytes }).collect();
        self.shared.phase.store(0, Ordering::Relaxed);
        let mut state = self.shared.lock();
        state.items = items;
        state.pass += 1;
        self.shared.wake.notify_one();
    }

    /// The pass is in this phase.
    pub fn reached(&self, phase: usize) {
        self.shared.phase.store(phase, Ordering::Relaxed);
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

fn read(shared: &Shared, model: &Model) {
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
        let is_over = || {
            let state = shared.lock();
            state.pass != seen || state.ended
        };
        'pass: for (i, item) in items.iter().enumerate() {
            let tensor = &model.weight(item.id).tensor;
            for from in (0..item.bytes as usize).step_by(PIECE) {
                while ahead(&items[..i], from as u64, shared.phase.load(Ordering::Relaxed)) > LEAD {
                    if is_over() {
                        break 'pass;
                    }
                    std::thread::sleep(LOOK);
                }
                model.gguf.will_need(tensor, from..(from + PIECE).min(item.bytes as usize));
            }
        }
    }
}

/// Bytes asked for that the pass, now in `phase`, has not used: of the items before and so much of the next.
fn ahead(before: &[Item], so_far: u64, phase: usize) -> u64 {
    before.iter().rev().take_while(|item| item.phase >= phase).map(|item| item.bytes).sum::<u64>() + so_far
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_ahead_rests_while_everything_is_in_memory() {
        let mut need = Need { passes_left: PASSES, before: None };
        let count = |need: &mut Need, faults: &mut dyn FnMut() -> u64, n: usize| {
            (0..n).filter(|_| need.decide(faults())).count()
        };
        // Nothing is waited for: after the first passes it is not needed.
        assert_eq!(count(&mut need, &mut || 7, 100), PASSES as usize);
        // Every pass without it waits: then all but one in seventeen have it.
        let mut faults = 7;
        let mut more = || {
            faults += 1000;
            faults
        };
        assert_eq!(count(&mut need, &mut more, 170), 160);
    }

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
