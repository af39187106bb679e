//! What one decode call evaluates.

use pyo3::prelude::*;

use crate::layers::RunLayers;

/// Tokens of any mix of sequences, and which layers run for them.
#[pyclass(module = "spec_run")]
#[derive(Clone, Default)]
pub struct Batch(pub spec_run::Batch);

#[pymethods]
impl Batch {
    #[new]
    #[pyo3(signature = (run_layers=None))]
    fn new(run_layers: Option<RunLayers>) -> Self {
        let mut batch = spec_run::Batch::new();
        batch.run_layers = run_layers.map(|mask| mask.0);
        Batch(batch)
    }

    /// Tokens at positions `pos` and after of one sequence; logits of the last one, or of all.
    #[staticmethod]
    #[pyo3(signature = (tokens, pos=0, seq=0, *, all_logits=false, run_layers=None))]
    fn prompt(
        tokens: Vec<u32>,
        pos: u32,
        seq: u32,
        all_logits: bool,
        run_layers: Option<RunLayers>,
    ) -> PyResult<Self> {
        let mut batch = Self::new(run_layers);
        let last = tokens.len().saturating_sub(1);
        for (i, token) in tokens.into_iter().enumerate() {
            let pos = u32::try_from(i).ok().and_then(|i| pos.checked_add(i));
            let pos = pos.ok_or_else(|| crate::errors::wrong("a batch ends beyond the last position"))?;
            batch.0.push(token, pos, seq, all_logits || i == last);
        }
        Ok(batch)
    }

    /// Adds a token.
    #[pyo3(signature = (token, pos, seq=0, logits=false))]
    fn push(&mut self, token: u32, pos: u32, seq: u32, logits: bool) {
        self.0.push(token, pos, seq, logits);
    }

    /// Which sublayers run; None runs all.
    #[getter]
    fn run_layers(&self) -> Option<RunLayers> {
        self.0.run_layers.clone().map(RunLayers)
    }

    #[setter]
    fn set_run_layers(&mut self, mask: Option<RunLayers>) {
        self.0.run_layers = mask.map(|mask| mask.0);
    }

    /// Keep every row as it comes to this layer, for `Context.hidden`; None keeps nothing.
    #[getter]
    fn keep_hidden(&self) -> Option<usize> {
        self.0.keep_hidden
    }

    #[setter]
    fn set_keep_hidden(&mut self, layer: Option<usize>) {
        self.0.keep_hidden = layer;
    }

    fn __len__(&self) -> usize {
        self.0.rows.len()
    }

    fn __repr__(&self) -> String {
        format!("<spec_run.Batch of {} tokens>", self.0.rows.len())
    }
}
