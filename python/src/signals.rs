//! Ctrl-C while Rust works: Python looks for signals only when it is asked to.

use std::time::{Duration, Instant};

use pyo3::{PyErr, PyResult, Python};

/// So often a signal is looked for.
pub const OFTEN: Duration = Duration::from_millis(50);

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
