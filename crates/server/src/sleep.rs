//! An engine that is let go when nobody has asked for long, with the memory that it takes, and opened again for who asks next.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::answers::Answers;
use crate::{
    Engine, Result,
    engine::{Handle, Job, JobId, Listener, SavedText, SlotStatus, Status, TextRule, Worker},
};

/// Takes an engine that is needed no more.
pub type Close = Box<dyn FnOnce(Engine) + Send>;
/// Opens an engine, and says what is done with it in the end.
pub type Open = Box<dyn Fn() -> Result<(Engine, Close)> + Send + Sync>;

/// Wakes an engine for those that ask.
pub struct Sleeper {
    open: Open,
    /// For so long nobody has to have asked; `None`: it never sleeps.
    idle: Option<Duration>,
    state: Mutex<State>,
}

struct State {
    awake: Option<Awake>,
    last_asked: Instant,
    /// As it was before it fell asleep.
    before: Status,
    next_job: JobId,
}

struct Awake {
    worker: Worker,
    handle: Handle,
    close: Close,
}

impl Awake {
    fn new(engine: Engine, close: Close) -> Self {
        let (worker, handle) = Worker::start(engine);
        Awake { worker, handle, close }
    }
}

impl Sleeper {
    /// Opens the engine for the first time with what it is given.
    pub fn new(engine: Engine, close: Close, idle: Option<Duration>, open: Open) -> Self {
        let awake = Some(Awake::new(engine, close));
        let state = State { awake, last_asked: Instant::now(), before: Status::default(), next_job: 0 };
        Sleeper { open, idle, state: Mutex::new(state) }
    }

    fn closes(state: &mut State, status: Status) {
        let Some(Awake { worker, handle, close }) = state.awake.take() else { return };
        // With the last handle the thread ends.
        drop(handle);
        let engine = worker.join();
        state.next_job = engine.next_job();
        // What was in the cache is gone.
        let slots = vec![SlotStatus::default(); status.slots.len()];
        state.before = Status { slots, ..status };
        close(engine);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of an engine that is awake.
    fn handle(&self) -> Result<Handle> {
        let mut state = self.state();
        let awake = match state.awake.take() {
            Some(awake) => awake,
            None => {
                let (engine, close) = (self.open)()?;
                Awake::new(engine.counting_from(state.before.done.clone(), state.next_job), close)
            }
        };
        state.last_asked = Instant::now();
        Ok(state.awake.insert(awake).handle.clone())
    }

    /// Only if it is awake.
    fn awake(&self) -> Option<Handle> {
        self.state().awake.as_ref().map(|awake| awake.handle.clone())
    }
}

impl Answers for Sleeper {
    fn submit(&self, job: Job, bound: TextRule, listener: Listener) -> Result<JobId> {
        self.handle()?.submit(job, bound, listener)
    }

    fn cancel(&self, id: JobId) {
        if let Some(handle) = self.awake() {
            handle.cancel(id);
        }
    }

    fn status(&self) -> Result<Status> {
        match self.awake() {
            Some(handle) => handle.status(),
            None => Ok(self.state().before.clone()),
        }
    }

    fn is_asleep(&self) -> bool {
        self.state().awake.is_none()
    }

    fn look(&self) -> bool {
        let Some(idle) = self.idle else { return false };
        let mut state = self.state();
        let is_time = state.last_asked.elapsed() >= idle;
        if let Some(status) = state.awake.as_ref().filter(|_| is_time).and_then(|it| it.handle.status().ok())
        {
            if status.running + status.waiting == 0 {
                Sleeper::closes(&mut state, status);
            } else {
                state.last_asked = Instant::now();
            }
        }
        true
    }

    fn end(&self) {
        let mut state = self.state();
        let status = state.awake.as_ref().and_then(|it| it.handle.status().ok()).unwrap_or_default();
        Sleeper::closes(&mut state, status);
    }

    fn save(&self, slot: usize) -> Result<SavedText> {
        self.handle()?.ask(move |engine| engine.save_slot(slot))?
    }

    fn restore(&self, slot: usize, saved: SavedText) -> Result<usize> {
        self.handle()?.ask(move |engine| engine.restore_slot(slot, saved))?
    }

    fn erase(&self, slot: usize) -> Result<usize> {
        self.handle()?.ask(move |engine| engine.erase_slot(slot))?
    }
}
