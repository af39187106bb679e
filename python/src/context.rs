//! A model on a device, with a cache of keys and values.

use std::sync::Mutex;

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    batch::Batch,
    config,
    errors::{raised, wrong},
    layers::{self, RunLayers},
    model::Model,
    signals::{Signals, lock},
};

/// A model on a device, with a cache of keys and values. Sequences of the cache have numbers; any will do.
#[pyclass(module = "spec_run", frozen)]
pub struct Context {
    inner: Mutex<Inner>,
    model: Py<Model>,
}

struct Inner {
    context: spec_run::Context,
    /// A longer batch is decoded in pieces, between which Ctrl-C is heard.
    most_rows: usize,
    kept: usize,
}

impl Context {
    /// Waits for what another thread has it do, without holding Python up.
    fn with<T: Send>(&self, py: Python<'_>, what: impl FnOnce(&mut Inner) -> T + Send) -> T {
        py.detach(|| what(&mut lock(&self.inner)))
    }

    /// For what works on a context of the library.
    pub fn with_context<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut spec_run::Context) -> T + Send,
    ) -> T {
        self.with(py, |inner| what(&mut inner.context))
    }
}

#[pymethods]
impl Context {
    #[new]
    #[pyo3(signature = (model, **settings))]
    fn new(py: Python<'_>, model: Py<Model>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let opened = &model.get().model;
        let config = config::config(opened, settings)?;
        let context = config::open(py, opened, &config)?;
        let inner = Inner { context, most_rows: config.n_ubatch, kept: 0 };
        Ok(Context { inner: Mutex::new(inner), model })
    }

    #[getter]
    fn model(&self, py: Python<'_>) -> Py<Model> {
        self.model.clone_ref(py)
    }

    /// Evaluates the batch, and gives the logits of the rows that asked for them: `float32[rows, n_vocab]`, which belong to
    /// the caller. On an error, and on Ctrl-C between the pieces of a long batch, the cache is as it was.
    fn decode<'py>(&self, py: Python<'py>, batch: &Batch) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let n_vocab = self.model.get().model.n_vocab();
        let logits = self.with(py, |inner| inner.decode(&batch.0))?;
        let rows = logits.len() / n_vocab;
        PyArray1::from_vec(py, logits).reshape([rows, n_vocab])
    }

    /// The rows of the last decode as they came to the layer where the batch wanted them kept: `float32[rows, dim]`.
    fn hidden<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let (rows, all) = self.with(py, |inner| {
            let rows = (0..inner.kept).map(|row| inner.context.hidden(row));
            (inner.kept, rows.flatten().copied().collect::<Vec<f32>>())
        });
        if rows == 0 {
            return Err(wrong("the last batch kept no rows: set its keep_hidden to a layer"));
        }
        let dim = all.len() / rows;
        PyArray1::from_vec(py, all).reshape([rows, dim])
    }

    /// Makes sequence `dst` the same as `src`; nothing is copied.
    fn fork(&self, py: Python<'_>, src: u32, dst: u32) {
        self.with_context(py, |context| context.fork(src, dst));
    }

    /// Gives a sequence that is empty so much of each adapter; `None`: nothing of any.
    #[pyo3(signature = (seq, scales))]
    fn adapt(&self, py: Python<'_>, seq: u32, scales: Option<Vec<f32>>) -> PyResult<()> {
        let scales = scales.as_deref().and_then(spec_run::lora::Scales::new);
        self.with_context(py, |context| context.adapt(seq, scales)).map_err(raised)
    }

    /// Keeps the first `length` tokens of a sequence.
    fn truncate(&self, py: Python<'_>, seq: u32, length: usize) -> PyResult<()> {
        self.with_context(py, |context| {
            let has = context.kv().len(seq);
            if length > has {
                return Err(spec_run::Error::Batch(format!(
                    "sequence {seq} has {has} tokens: it cannot be cut to {length}"
                )));
            }
            context.truncate(seq, length)
        })
        .map_err(raised)
    }

    /// Forgets a sequence.
    fn remove(&self, py: Python<'_>, seq: u32) {
        self.with_context(py, |context| context.remove(seq));
    }

    /// Forgets everything.
    fn remove_all(&self, py: Python<'_>) {
        self.with_context(py, spec_run::Context::remove_all);
    }

    /// The number of tokens that a sequence has.
    #[pyo3(signature = (seq=0))]
    fn length(&self, py: Python<'_>, seq: u32) -> usize {
        self.with_context(py, |context| context.kv().len(seq))
    }

    /// Cells of the cache, shared by all sequences.
    #[getter]
    fn n_ctx(&self, py: Python<'_>) -> usize {
        self.with_context(py, |context| context.kv().capacity())
    }

    /// Cells that hold nothing.
    #[getter]
    fn free_cells(&self, py: Python<'_>) -> usize {
        self.with_context(py, |context| context.kv().free_cells())
    }

    /// The share of the model's bytes that a pass under the mask reads.
    fn mask_cost(&self, py: Python<'_>, mask: &RunLayers) -> PyResult<f64> {
        let mask = layers::fits(&mask.0, self.model.get().model.n_layer())?;
        Ok(self.with_context(py, |context| context.mask_cost(mask)))
    }

    /// The device in a line.
    fn describe(&self, py: Python<'_>) -> String {
        self.with_context(py, |context| context.describe())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<spec_run.Context of {:?} on {}>", self.model.get().model.name, self.describe(py))
    }
}

impl Inner {
    fn decode(&mut self, batch: &spec_run::Batch) -> PyResult<Vec<f32>> {
        self.kept = 0;
        // What is kept of rows is of one pass.
        if batch.rows.len() <= self.most_rows || batch.keep_hidden.is_some() {
            self.context.decode(batch).map_err(raised)?;
            self.kept = batch.keep_hidden.map_or(0, |_| batch.rows.len());
            return Ok(self.context.take_logits());
        }
        let mut before: Vec<(u32, usize)> = Vec::new();
        for row in &batch.rows {
            if !before.iter().any(|(seq, _)| *seq == row.seq) {
                before.push((row.seq, self.context.kv().len(row.seq)));
            }
        }
        let whole = self.in_pieces(batch);
        if whole.is_err() {
            for (seq, length) in before {
                if self.context.truncate(seq, length).is_err() {
                    self.context.remove(seq);
                }
            }
        }
        whole
    }

    fn in_pieces(&mut self, batch: &spec_run::Batch) -> PyResult<Vec<f32>> {
        let mut signals = Signals::new();
        let mut logits = Vec::new();
        for rows in batch.rows.chunks(self.most_rows) {
            let piece = spec_run::Batch {
                rows: rows.to_vec(),
                run_layers: batch.run_layers.clone(),
                ..Default::default()
            };
            self.context.decode(&piece).map_err(raised)?;
            match logits.is_empty() {
                true => logits = self.context.take_logits(),
                false => logits.append(&mut self.context.take_logits()),
            }
            if signals.came() {
                break;
            }
        }
        signals.outcome()?;
        Ok(logits)
    }
}
