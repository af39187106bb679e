//! A text under several masks, each beside the full model.

use std::{ops::ControlFlow, sync::Mutex};

use pyo3::{prelude::*, types::PyDict};
use spec_run::eval::{
    perplexity::PerplexitySettings,
    sweep::{self, Step, Sweep},
};

use crate::{
    config,
    errors::{raised, wrong},
    layers::{self, RunLayers},
    model::Model,
    signals::{Signals, lock},
};

/// Scores texts under masks, as `spec-run perplexity` does: in chunks, the second half of each scored. The weights are
/// loaded once, for all texts and masks.
#[pyclass(module = "spec_run", frozen)]
pub struct Evaluator {
    context: Mutex<spec_run::Context>,
    model: Py<Model>,
    #[pyo3(get)]
    chunk: usize,
    extra_slots: usize,
}

#[pymethods]
impl Evaluator {
    /// `chunk` tokens at a time. `extra_slots` are for masks that repeat layers.
    #[new]
    #[pyo3(signature = (model, *, chunk=512, **settings))]
    fn new(
        py: Python<'_>,
        model: Py<Model>,
        chunk: usize,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let opened = &model.get().model;
        let mut config = config::config(opened, settings)?;
        let chunk = chunk.min(opened.n_ctx_train as usize);
        sweep::make_room(&mut config, chunk);
        let context = config::open(py, opened, &config)?;
        Ok(Evaluator { context: Mutex::new(context), model, chunk, extra_slots: config.extra_slots })
    }

    #[getter]
    fn model(&self, py: Python<'_>) -> Py<Model> {
        self.model.clone_ref(py)
    }

    /// What each mask does to a text of tokens; `chunks` are scored at most. A dict of sums of the full model, and one for
    /// each mask.
    #[pyo3(signature = (tokens, masks, chunks=None))]
    fn sweep<'py>(
        &self,
        py: Python<'py>,
        tokens: Vec<u32>,
        masks: Vec<RunLayers>,
        chunks: Option<usize>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let model = self.model.get();
        let masks: Vec<_> = masks.into_iter().map(|mask| mask.0).collect();
        for mask in &masks {
            layers::fits(mask, model.model.n_layer())?;
            if mask.extra_repetitions() > self.extra_slots {
                let needed = mask.extra_repetitions();
                return Err(wrong(format!(
                    "a mask repeats layers {needed} times: open the Evaluator with extra_slots={needed}"
                )));
            }
        }
        let settings = PerplexitySettings {
            n_ctx: self.chunk,
            bos: model.tokenizer.added_bos(),
            draft: None,
            max_chunks: chunks,
        };
        let mut signals = Signals::new();
        let swept = py.detach(|| {
            let mut context = lock(&self.context);
            let goes_on = |_: Step| match signals.came() {
                true => Ok(ControlFlow::Break(())),
                false => Ok(ControlFlow::Continue(())),
            };
            let swept = sweep::sweep(&mut context, &tokens, &settings, &masks, Sweep::default(), goes_on);
            context.remove_all();
            let costs: Vec<f64> = masks.iter().map(|mask| context.mask_cost(mask)).collect();
            swept.map(|swept| (swept, costs))
        });
        signals.outcome()?;
        let (swept, costs) = swept.map_err(raised)?;
        dict(py, &swept, &costs)
    }

    /// The device in a line.
    fn describe(&self, py: Python<'_>) -> String {
        py.detach(|| lock(&self.context).describe())
    }
}

fn dict<'py>(py: Python<'py>, swept: &Sweep, costs: &[f64]) -> PyResult<Bound<'py, PyDict>> {
    let n = swept.tokens;
    let of_mask = |(mask, cost): (&sweep::Swept, &f64)| {
        let dict = PyDict::new(py);
        dict.set_item("ppl", mask.nll.perplexity(n))?;
        dict.set_item("stderr", mask.nll.standard_error(n))?;
        dict.set_item("delta_stderr", swept.difference_error(mask))?;
        dict.set_item("agreement", mask.sums.agreement(n))?;
        dict.set_item("overlap", mask.sums.overlap(n))?;
        dict.set_item("kl", mask.sums.kl(n))?;
        dict.set_item("acceptance", mask.acceptance(n))?;
        dict.set_item("cost", cost)?;
        dict.set_item("nll_by_chunk", mask.by_chunk.clone())?;
        Ok(dict)
    };
    let dict = PyDict::new(py);
    dict.set_item("ppl", swept.full.perplexity(n))?;
    dict.set_item("stderr", swept.full.standard_error(n))?;
    dict.set_item("nll_by_chunk", swept.full_by_chunk.clone())?;
    dict.set_item("tokens", n)?;
    dict.set_item("chunks", swept.chunks)?;
    let masks = std::iter::zip(&swept.masks, costs).map(of_mask).collect::<PyResult<Vec<_>>>()?;
    dict.set_item("masks", masks)?;
    Ok(dict)
}
