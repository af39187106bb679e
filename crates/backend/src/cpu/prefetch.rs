//! Weights that stay in the file are read shortly before a pass needs them, and dropped from RAM behind it. A thread follows
//! the pass's phases, prefetches up to [`LEAD`] bytes, and tells the system to forget what was used. So a pass takes no more
//! RAM than that, however much the system would like to cache, and reads each matrix once. That is faster than the pass's own
//! page faults, because the disk always has the next pieces to work at.
//!
//! Which experts a pass reads is known when the router has chosen. Then all of their matrices are asked for at once, those
//! of the second product while the first is computed. Where many rows choose nearly all of them, nobody waits for that.

use std::{
    mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::schedule::{PassShape, Phase, Work, experts_of, matrices_of};
use crate::{
    Error, Model, Result,
    plan::{ExpertMatrices, Op, WeightId},
};

/// Bytes asked for and not yet used: enough to keep a fast disk busy, and little compared with RAM.
pub const LEAD: u64 = 256 << 20;
/// Asked for at once.
const PIECE: usize = 8 << 20;
/// How often the thread looks which phase the pass is in.
const LOOK: Duration = Duration::from_micros(500);
/// The pass's phase when the pass is over.
const OVER: usize = usize::MAX;
/// If so large a share of the experts is expected to be chosen, all are prefetched.
const NEARLY_ALL: f64 = 0.75;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Item {
    /// The phase that uses it.
    phase: usize,
    id: WeightId,
    bytes: u64,
    /// Whether every pass uses it.
    always: bool,
}

#[derive(Default)]
struct State {
    /// What the pass will use, as far as that is known when it begins.
    items: Vec<Item>,
    /// Of experts that were chosen since.
    chosen: Vec<Item>,
    /// The same of an earlier pass that ended before the thread looked.
    late: Vec<Item>,
    /// By expert, while a choice is gone through.
    is_chosen: Vec<bool>,
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

    /// Until something was chosen or the pass is over, and no longer than until the next look.
    fn wait(&self, pass: u64) {
        let state = self.lock();
        if state.chosen.is_empty() && state.pass == pass && !state.ended {
            drop(self.wake.wait_timeout(state, LOOK));
        }
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

/// Experts in the file that are read when they are chosen, and the phases that use them.
struct Awaited {
    /// The first of these phases.
    phase: usize,
    matrices: Vec<(usize, ExpertMatrices)>,
}

impl Awaited {
    /// What the chosen ones among the experts read: all of the first phase before the next, expert by expert, as they
    /// are gone through.
    fn items(&self, model: &Model, is_chosen: &[bool]) -> impl Iterator<Item = Item> {
        self.matrices.chunk_by(|a, b| a.0 == b.0).flat_map(move |uses| {
            let chosen = (0..is_chosen.len()).filter(|&expert| is_chosen[expert]);
            chosen.flat_map(move |expert| {
                uses.iter().map(move |(phase, matrices)| {
                    let id = matrices.first.after(expert);
                    Item { phase: *phase, id, bytes: model.weight(id).bytes, always: false }
                })
            })
        })
    }
}

pub struct Prefetch {
    shared: Arc<Shared>,
    model: Arc<Model>,
    /// By weight id: whether it is read from the file.
    in_file: Vec<bool>,
    /// By phase of the present pass.
    reads: Vec<bool>,
    awaited: Vec<Awaited>,
    by_choice: bool,
    started: Instant,
    clock: Clock,
    thread: Option<JoinHandle<()>>,
}

impl Prefetch {
    /// Without `by_choice` the experts that are chosen come by the pass's own page faults; a bench compares.
    pub fn new(model: Arc<Model>, in_file: Vec<bool>, by_choice: bool) -> Result<Self> {
        if by_choice {
            let matrices = model.plan.ops().flat_map(|op| model.plan.operands(op).experts());
            for id in matrices.flat_map(ExpertMatrices::ids).filter(|id| in_file[id.0 as usize]) {
                let weight = model.weight(id);
                model.gguf.read_apart(&weight.tensor, weight.range_of(0..weight.rows));
            }
        }
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name("prefetch".into()).spawn({
            let (shared, model) = (shared.clone(), model.clone());
            move || follow_passes(&shared, &model, by_choice)
        });
        let thread =
            thread.map_err(|e| Error::Memory(format!("cannot start a thread to prefetch weights: {e}")))?;
        Ok(Prefetch {
            shared,
            model,
            in_file,
            reads: Vec::new(),
            awaited: Vec::new(),
            by_choice,
            started: Instant::now(),
            clock: Clock::default(),
            thread: Some(thread),
        })
    }

    /// A pass begins.
    pub fn begin(&mut self, phases: &[Phase], shape: &PassShape) {
        let in_file = |id: WeightId| self.in_file[id.0 as usize];
        self.reads.clear();
        self.awaited.clear();
        self.started = Instant::now();
        self.clock = Clock::default();
        let mut state = self.shared.lock();
        let State { items, chosen, late, .. } = &mut *state;
        late.append(chosen);
        items.clear();
        for (i, phase) in phases.iter().enumerate() {
            let before = items.len();
            let item = |id, always| Item { phase: i, id, bytes: self.model.weight(id).bytes, always };
            items.extend(matrices_of(&self.model, phase).filter(|&id| in_file(id)).map(|id| item(id, true)));
            let mut experts = experts_of(&self.model, phase).filter(|m| in_file(m.first)).peekable();
            let waits = match experts.peek() {
                None => false,
                Some(&ExpertMatrices { choice, .. }) => {
                    let rows = if phase.narrow { shape.asked.outputs } else { shape.asked.rows };
                    choice.at_most(phase.experts).distinct(rows) < NEARLY_ALL * choice.of as f64
                }
            };
            if waits && matches!(phase.work, Work::Op(Op::ExpertsGate(_))) {
                self.awaited.push(Awaited { phase: i, matrices: Vec::new() });
            }
            match self.awaited.last_mut().filter(|_| waits) {
                Some(awaited) => awaited.matrices.extend(experts.map(|m| (i, m))),
                None => items.extend(experts.flat_map(ExpertMatrices::ids).map(|id| item(id, false))),
            }
            self.reads.push(waits || items.len() > before);
        }
        if self.reads.contains(&true) {
            state.pass += 1;
            self.shared.phase.store(0, Relaxed);
            self.shared.wake.notify_one();
        }
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

    /// The first phase of some experts begins, which rows have chosen: of each row those that it goes through.
    pub fn chose(&self, phase: usize, experts: impl Iterator<Item = usize>) {
        let Some(awaited) = self.awaited.iter().find(|awaited| awaited.phase == phase) else { return };
        let mut state = self.shared.lock();
        let State { chosen, is_chosen, .. } = &mut *state;
        is_chosen.clear();
        is_chosen.resize(awaited.matrices[0].1.choice.of, false);
        if self.by_choice {
            experts.for_each(|expert| is_chosen[expert] = true);
        } else {
            // Page faults bring what lies around them along, which is to go too.
            is_chosen.fill(true);
        }
        chosen.extend(awaited.items(&self.model, is_chosen));
        self.shared.wake.notify_one();
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

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn follow_passes(shared: &Shared, model: &Model, by_choice: bool) {
    let mut seen = 0;
    loop {
        let (items, late) = {
            let mut state = shared.lock();
            while state.pass == seen && !state.ended {
                state = shared.wake.wait(state).unwrap_or_else(|e| e.into_inner());
            }
            if state.ended {
                return;
            }
            seen = state.pass;
            (mem::take(&mut state.items), mem::take(&mut state.late))
        };
        late.iter().for_each(|item| let_go(item, model));
        Follower { shared, model, by_choice, pass: seen, items: &items, used: 0, chosen: Vec::new() }
            .follow();
    }
}

/// Goes along with one pass.
struct Follower<'a> {
    shared: &'a Shared,
    model: &'a Model,
    by_choice: bool,
    pass: u64,
    items: &'a [Item],
    /// So many of them have been used and let go of.
    used: usize,
    /// Asked for and not let go of.
    chosen: Vec<Item>,
}

impl Follower<'_> {
    fn follow(mut self) {
        'ask: for (i, item) in self.items.iter().enumerate() {
            for from in (0..item.bytes).step_by(PIECE) {
                loop {
                    let phase = self.look();
                    if bytes_before(&self.items[..i], from, phase) <= LEAD {
                        break;
                    }
                    if self.shared.has_moved_on(self.pass) {
                        break 'ask;
                    }
                    self.shared.wait(self.pass);
                }
                ask(item, from, self.model);
            }
        }
        while self.look() != OVER && !self.shared.has_moved_on(self.pass) {
            self.shared.wait(self.pass);
        }
        self.let_go_before(OVER);
        // The next full pass begins like this one. Until then, while drafts run from RAM, the disk has nothing to do.
        let mut asked = 0;
        for item in self.items.iter().filter(|item| item.always) {
            for from in (0..item.bytes).step_by(PIECE) {
                if asked >= LEAD || self.shared.has_moved_on(self.pass) {
                    return;
                }
                ask(item, from, self.model);
                asked += PIECE as u64;
            }
        }
    }

    /// Lets go of what was used, asks for what was chosen, and says where the pass is.
    fn look(&mut self) -> usize {
        let phase = self.shared.phase.load(Relaxed);
        self.let_go_before(phase);
        let new = {
            let mut state = self.shared.lock();
            if state.pass == self.pass { mem::take(&mut state.chosen) } else { Vec::new() }
        };
        for item in new.iter().filter(|_| self.by_choice) {
            (0..item.bytes).step_by(PIECE).for_each(|from| ask(item, from, self.model));
        }
        self.chosen.extend(new);
        phase
    }

    fn let_go_before(&mut self, phase: usize) {
        while let Some(item) = self.items.get(self.used).filter(|item| item.phase < phase) {
            let_go(item, self.model);
            self.used += 1;
        }
        self.chosen.retain(|item| {
            let used = item.phase < phase;
            if used {
                let_go(item, self.model);
            }
            !used
        });
    }
}

/// For a piece of an item.
fn ask(item: &Item, from: u64, model: &Model) {
    let to = (from + PIECE as u64).min(item.bytes);
    let weight = model.weight(item.id);
    let begin = weight.begin as usize;
    model.gguf.will_need(&weight.tensor, begin + from as usize..begin + to as usize);
}

fn let_go(item: &Item, model: &Model) {
    let weight = model.weight(item.id);
    model.gguf.evict(&weight.tensor, weight.range_of(0..weight.rows));
}

/// Bytes asked for that the pass, now in `phase`, has not used: of the items before and so much of the next.
fn bytes_before(before: &[Item], so_far: u64, phase: usize) -> u64 {
    before.iter().rev().take_while(|item| item.phase >= phase).map(|item| item.bytes).sum::<u64>() + so_far
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cpu::schedule::{Asked, schedule},
        plan::BufSet,
    };
    use spec_run_test_models::fixtures;

    #[test]
    fn what_a_pass_has_used_is_not_ahead_of_it() {
        let item = |i: usize| Item { phase: 10 * i, id: WeightId(i as u32), bytes: 100, always: true };
        let items: Vec<Item> = (0..4).map(item).collect();
        assert_eq!(bytes_before(&items, 7, 0), 407);
        assert_eq!(bytes_before(&items, 7, 10), 307);
        assert_eq!(bytes_before(&items, 7, 11), 207);
        assert_eq!(bytes_before(&items, 7, 31), 7);
    }

    /// Of few rows the experts are awaited, the first product's before the second's; of many all are prefetched.
    #[test]
    fn experts_are_awaited_where_few_are_chosen() {
        let mut seen = 0;
        for model in fixtures() {
            let Some(choice) = model.plan.experts.first().map(|moe| moe.choice()) else { continue };
            let model = Arc::new(model);
            let with_experts =
                model.plan.layers.iter().filter(|l| l.mlp.iter().any(Op::is_of_experts)).count();
            let mut prefetch = Prefetch::new(model.clone(), vec![true; model.weights.len()], true).unwrap();
            let mut awaited = |rows| {
                let asked = Asked {
                    rows,
                    outputs: rows,
                    threads: 1,
                    long: false,
                    leaves: BufSet::NONE,
                    adapted: false,
                };
                let steps = model.plan.steps(None);
                let shape = PassShape::new(&model, &steps, asked);
                let mut phases = Vec::new();
                schedule(&model, &[], &steps, &shape, &mut phases);
                prefetch.begin(&phases, &shape);
                prefetch.end();
                mem::take(&mut prefetch.awaited)
            };
            let few = awaited(1);
            let waits = choice.distinct(1) < NEARLY_ALL * choice.of as f64;
            assert_eq!(few.len(), if waits { with_experts } else { 0 }, "{}", model.arch);
            assert!(awaited(500).is_empty(), "{}", model.arch);
            for awaited in few {
                let mut is_chosen = vec![false; choice.of];
                is_chosen[choice.of - 1] = true;
                let items: Vec<Item> = awaited.items(&model, &is_chosen).collect();
                assert_eq!(items.len(), awaited.matrices.len());
                assert!(items.is_sorted_by_key(|item| item.phase) && items[0].phase == awaited.phase);
                for (item, (phase, matrices)) in items.iter().zip(&awaited.matrices) {
                    assert_eq!((item.phase, item.id), (*phase, matrices.first.after(choice.of - 1)));
                }
                seen += 1;
            }
        }
        let required = std::env::var_os("SPEC_RUN_REQUIRE_FIXTURES").is_some();
        assert!(seen > 0 || !required);
    }
}
