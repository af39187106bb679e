//! Vectors of texts.

use std::sync::Mutex;

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::{prelude::*, types::PyDict};
use spec_run::embed::{Pairs, Pooling};

use crate::{
    config,
    errors::{raised, wrong},
    model::Model,
    signals::lock,
};

/// Makes embeddings, many texts in a pass.
#[pyclass(module = "spec_run", frozen)]
pub struct Embedder {
    embedder: Mutex<spec_run::Embedder>,
    model: Py<Model>,
    pairs: Pairs,
    /// How a text's rows become its embedding.
    #[pyo3(get)]
    pooling: &'static str,
    /// Numbers of an embedding.
    #[pyo3(get)]
    width: usize,
    /// Tokens that a text may have.
    #[pyo3(get)]
    max_tokens: usize,
}

#[pymethods]
impl Embedder {
    /// `pooling` is none, mean, cls, last or rank; without it as the model's file says, or mean.
    #[new]
    #[pyo3(signature = (model, *, pooling=None, **settings))]
    fn new(
        py: Python<'_>,
        model: Py<Model>,
        pooling: Option<&str>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let named = |name: &str| {
            let found = Pooling::ALL.into_iter().find(|pooling| pooling.name() == name);
            found.ok_or_else(|| wrong(format!("pooling {name:?}: none, mean, cls, last or rank")))
        };
        let pooling = pooling.map(named).transpose()?;
        let opened = &model.get().model;
        let mut config = config::config(opened, settings)?;
        if opened.sees_both_ways() {
            // A text has to be in one pass.
            config.n_ubatch = config.n_ctx as usize;
        }
        spec_run::Embedder::prepare(&mut config, opened);
        let context = config::open(py, opened, &config)?;
        let embedder = spec_run::Embedder::new(context, pooling).map_err(raised)?;
        let pairs = Pairs::of(&opened.gguf).map_err(raised)?;
        Ok(Embedder {
            pairs,
            pooling: embedder.pooling().name(),
            width: embedder.width(),
            max_tokens: embedder.most_tokens(),
            embedder: Mutex::new(embedder),
            model,
        })
    }

    #[getter]
    fn model(&self, py: Python<'_>) -> Py<Model> {
        self.model.clone_ref(py)
    }

    /// Of each text of tokens its vectors, `[1, width]`; with pooling none `[tokens, width]`.
    fn embed<'py>(&self, py: Python<'py>, texts: Vec<Vec<u32>>) -> PyResult<Vec<Bound<'py, PyArray2<f32>>>> {
        let made = py.detach(|| lock(&self.embedder).embed(&texts)).map_err(raised)?;
        let array = |vectors: Vec<Vec<f32>>| {
            let shape = [vectors.len(), self.width];
            PyArray1::from_vec(py, vectors.concat()).reshape(shape)
        };
        made.into_iter().map(|made| array(made.vectors)).collect()
    }

    /// The tokens of a question and an answer that are read as one text.
    fn pair(&self, question: &str, answer: &str) -> Vec<u32> {
        self.pairs.encode(&self.model.get().tokenizer, question, answer)
    }

    fn __repr__(&self) -> String {
        format!("<spec_run.Embedder of {:?}>", self.model.get().model.name)
    }
}
