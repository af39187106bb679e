//! Ctrl-C while Rust works: Python looks for signals only when it is asked to.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use pyo3::{PyErr, PyResult, Python};

/// So often a signal is looked for.
const OFTEN: Duration = Duration::from_millis(50);

/// Looks for signals from time to time, in the middle of work that runs without Python.
pub struct Signals {
    looked: Instant,
    raised: Option<PyErr>,
}

impl Signals {
    pub fn new() -> Self {
        Signals { looked: Instant::now(), raised: None }
    }

    /// Whether the work is to end.
    pub fn came(&mut self) -> bool {
        if self.raised.is_none() && self.looked.elapsed() >= OFTEN {
            self.looked = Instant::now();
            self.raised = Python::attach(|py| py.check_signals()).err();
        }
        self.raised.is_some()
    }

    /// What a handler raised, if one did.
    pub fn outcome(self) -> PyResult<()> {
        self.raised.map_or(Ok(()), Err)
    }
}

/// What another thread says, without holding Python up; `None` when it has nothing more to say.
pub fn wait<T: Send>(py: Python<'_>, heard: &Mutex<Receiver<T>>) -> PyResult<Option<T>> {
    loop {
        match py.detach(|| lock(heard).recv_timeout(OFTEN)) {
            Ok(said) => return Ok(Some(said)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
}

/// Also after a panic of who had it, which Python has been told of.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
