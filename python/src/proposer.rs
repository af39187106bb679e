//! Drafts by a function in Python. It may be wrong, and it may fail: neither changes a text.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use spec_run::{
    Context,
    speculation::{Proposer, Ready, SourceInfo, SourceKind, Supply},
};

use crate::signals::lock;

/// A function that is given a text's tokens and proposes those that come next.
pub struct PyProposer {
    propose: Arc<Py<PyAny>>,
    name: String,
    proposed: Vec<u32>,
    failed: Failure,
}

/// What a function raised first; after that it is not asked again.
pub type Failure = Arc<Mutex<Option<PyErr>>>;

impl PyProposer {
    pub fn new(propose: Arc<Py<PyAny>>, name: String, failed: Failure) -> Self {
        PyProposer { propose, name, proposed: Vec::new(), failed }
    }

    fn ask(&self, text: &[u32]) -> Vec<u32> {
        let mut failed = lock(&self.failed);
        if failed.is_some() {
            return Vec::new();
        }
        let said: PyResult<Vec<u32>> =
            Python::attach(|py| self.propose.call1(py, (text.to_vec(),))?.extract(py));
        said.unwrap_or_else(|error| {
            *failed = Some(error);
            Vec::new()
        })
    }
}

impl Proposer for PyProposer {
    fn info(&self, _: &Context) -> SourceInfo {
        SourceInfo { name: self.name.clone(), kind: SourceKind::Other, cost: 0.0, chance: 0.6, prefix: None }
    }

    fn supply(&mut self, text: &[u32]) -> Supply {
        self.proposed = self.ask(text);
        match self.proposed.len() {
            0 => Supply::Nothing,
            tokens => Supply::Found(Ready { tokens, match_len: tokens }),
        }
    }

    fn tokens(&mut self, _: &[u32]) -> Vec<u32> {
        std::mem::take(&mut self.proposed)
    }
}
