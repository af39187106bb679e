//! Texts in the making, by an engine on a thread of its own.

use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
};

use pyo3::{prelude::*, types::PyDict};
use spec_run::{
    EngineConfig, Tokenizer,
    chat::{Shown, StopStrings},
    engine::{Event, Handle, JobId, MakeProposers, Stop, TextRule, TokenScore, Worker},
    speculation::{MaskProposer, candidates::Drafters, learned},
    tokenizer::Utf8,
};

use crate::{
    config,
    errors::{SpecRunError, raised, wrong},
    job::Job,
    layers::{self, RunLayers},
    model::Model,
    proposer::{Failure, PyProposer},
    signals,
};

/// Makes texts, many at once if there are many.
#[pyclass(module = "spec_run", frozen)]
pub struct Engine {
    /// None when it has ended.
    handle: Option<Handle>,
    model: Py<Model>,
    /// What drafts, in the order of the report's sources.
    #[pyo3(get)]
    sources: Vec<String>,
    failed: Failure,
    /// Ends when the last handle is gone.
    worker: Mutex<Option<Worker>>,
}

#[pymethods]
impl Engine {
    /// `texts` at once at most. It drafts with what suits the model, with `masks` instead of its own, and with `proposers`,
    /// which are functions from a text's tokens to those that may come next.
    #[new]
    #[pyo3(signature = (model, *, texts=4, drafts=true, masks=None, proposers=Vec::new(), **settings))]
    fn new(
        py: Python<'_>,
        model: Py<Model>,
        texts: usize,
        drafts: bool,
        masks: Option<Vec<(String, RunLayers)>>,
        proposers: Vec<(String, Py<PyAny>)>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        const MOST_TEXTS: usize = 1024;
        if !(1..=MOST_TEXTS).contains(&texts) {
            return Err(wrong(format!("texts {texts}: 1 to {MOST_TEXTS}")));
        }
        let Model { model: opened, tokenizer } = model.get();
        let mut config = config::config(opened, settings)?;
        config.sequences = config.sequences.max(texts + 1);
        config.mtp = drafts && opened.has_mtp();
        for (_, mask) in masks.iter().flatten() {
            let mask = layers::fits(&mask.0, opened.n_layer())?;
            config.extra_slots = config.extra_slots.max(mask.extra_repetitions());
        }
        let mut context = config::open(py, opened, &config)?;
        let default = EngineConfig::default();
        let engine_config = EngineConfig { texts, chunk: default.chunk.min(config.n_ubatch), ..default };
        let failed = Failure::default();
        let mut engine = None;
        let mut sources = Vec::new();
        if drafts {
            let mut drafters = Drafters::all(&context);
            if let Some(masks) = masks {
                let proposer = |(name, mask): (String, RunLayers)| MaskProposer::new(name, mask.0);
                drafters.masks = masks.into_iter().map(proposer).collect();
            }
            let make = make_proposers(drafters, proposers, &failed);
            sources = make().iter().map(|proposer| proposer.info(&context).name).collect();
            engine = Some(py.detach(|| {
                let controller = learned::prepare_for(&mut context, &make(), None)?;
                let engine = spec_run::Engine::new(context, tokenizer.clone(), engine_config.clone());
                Ok(engine.drafting(make, controller))
            }));
        } else if masks.is_some() || !proposers.is_empty() {
            return Err(wrong("masks and proposers draft: they need drafts=True"));
        } else {
            engine.replace(Ok(spec_run::Engine::new(context, tokenizer.clone(), engine_config)));
        }
        let engine = engine.expect("it was made").map_err(raised)?;
        let (worker, handle) = Worker::start(engine);
        Ok(Engine { handle: Some(handle), model, sources, failed, worker: Mutex::new(Some(worker)) })
    }

    #[getter]
    fn model(&self, py: Python<'_>) -> Py<Model> {
        self.model.clone_ref(py)
    }

    /// Begins a text; others go on beside it.
    fn submit(slf: &Bound<'_, Self>, job: &Job) -> PyResult<Text> {
        let (py, engine) = (slf.py(), slf.get());
        let model = engine.model.get();
        let (says, heard) = channel();
        let listener = Listener {
            says,
            tokenizer: model.tokenizer.clone(),
            text: String::new(),
            utf8: Utf8::default(),
            stops: StopStrings::new(job.stop.iter().cloned()),
            stopped_by: None,
            streams: job.streams,
        };
        let asked = job.job(py, model.model.n_layer())?;
        let submit = || engine.handle().submit(asked, TextRule::default(), listener.boxed());
        let id = py.detach(submit).map_err(raised)?;
        Ok(Text { id, engine: slf.clone().unbind(), heard: Mutex::new(heard) })
    }

    /// What it is at: texts that are made and that wait, cells, and what was drafted by now.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = py.detach(|| self.handle().status()).map_err(raised)?;
        let dict = PyDict::new(py);
        dict.set_item("running", status.running)?;
        dict.set_item("waiting", status.waiting)?;
        dict.set_item("cells", status.cells)?;
        dict.set_item("free_cells", status.free_cells)?;
        dict.set_item("passes", status.done.passes)?;
        dict.set_item("drafted", status.done.drafted)?;
        dict.set_item("accepted", status.done.accepted)?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        format!("<spec_run.Engine of {:?}>", self.model.get().model.name)
    }
}

impl Engine {
    fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("only its end takes it")
    }
}

impl Drop for Engine {
    /// The memory of the model is free when this is over. A proposer may be waiting for Python meanwhile.
    fn drop(&mut self) {
        let worker = self.worker.lock().map_or(None, |mut worker| worker.take());
        // The thread ends when nobody can ask it any more.
        drop(self.handle.take());
        if let Some(worker) = worker {
            Python::attach(|py| py.detach(|| drop(worker.join())));
        }
    }
}

/// What drafts for each text.
fn make_proposers(
    drafters: Drafters,
    functions: Vec<(String, Py<PyAny>)>,
    failed: &Failure,
) -> MakeProposers {
    let functions: Vec<_> = functions.into_iter().map(|(name, f)| (name, Arc::new(f))).collect();
    let failed = failed.clone();
    Box::new(move || {
        let functions = functions
            .iter()
            .map(|(name, f)| Box::new(PyProposer::new(f.clone(), name.clone(), failed.clone())) as _);
        drafters.proposers().into_iter().chain(functions).collect()
    })
}

enum Said {
    Piece(String),
    Ended(Result<Box<Ended>, String>),
}

/// Hears of a text on the engine's thread.
struct Listener {
    says: Sender<Said>,
    tokenizer: Arc<Tokenizer>,
    text: String,
    utf8: Utf8,
    stops: StopStrings,
    stopped_by: Option<String>,
    streams: bool,
}

impl Listener {
    fn boxed(mut self) -> spec_run::engine::Listener {
        Box::new(move |event| match event {
            Event::Begun { .. } | Event::Evaluated(_) => ControlFlow::Continue(()),
            Event::Token { token, .. } => {
                let hidden = self.tokenizer.is_control(token.id);
                let piece = self.utf8.push(if hidden { &[] } else { self.tokenizer.piece(token.id) });
                let shown = self.stops.push(&piece);
                self.show(shown)
            }
            Event::Ended(ended) => {
                if self.stopped_by.is_none() {
                    let rest = self.utf8.finish();
                    let shown = [self.stops.push(&rest), self.stops.finish()];
                    let _ = shown.into_iter().try_for_each(|shown| self.show(shown));
                }
                let (text, stopped_by) = (std::mem::take(&mut self.text), self.stopped_by.take());
                let ended = ended.map(|ended| Box::new(Ended::of(*ended, text, stopped_by)));
                let ended = ended.map_err(|error| error.to_string());
                // Nobody may wait for it any more.
                let _ = self.says.send(Said::Ended(ended));
                ControlFlow::Continue(())
            }
        })
    }

    fn show(&mut self, shown: Shown) -> ControlFlow<()> {
        let (piece, word) = match shown {
            Shown::More(piece) => (piece, None),
            Shown::Stop { text, word } => (text, Some(word)),
        };
        self.text.push_str(&piece);
        self.stopped_by = word;
        if self.streams && !piece.is_empty() && self.says.send(Said::Piece(piece)).is_err() {
            return ControlFlow::Break(());
        }
        if self.stopped_by.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A text in the making. Dropping it ends it.
#[pyclass(module = "spec_run", frozen)]
pub struct Text {
    id: JobId,
    engine: Py<Engine>,
    heard: Mutex<Receiver<Said>>,
}

#[pymethods]
impl Text {
    /// The next piece of the text where it is streamed, or what became of it.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match signals::wait(py, &self.heard)? {
            Some(Said::Piece(piece)) => Ok(piece.into_pyobject(py)?.into_any()),
            Some(Said::Ended(Ok(ended))) => match signals::lock(&self.engine.get().failed).take() {
                None => Ok(Bound::new(py, *ended)?.into_any()),
                Some(error) => Err(error),
            },
            Some(Said::Ended(Err(line))) => Err(SpecRunError::new_err(line)),
            None => Err(SpecRunError::new_err("the text has ended already")),
        }
    }

    /// What became of the text, at its end.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Ended>> {
        loop {
            if let Ok(ended) = self.next(py)?.cast_into::<Ended>() {
                return Ok(ended);
            }
        }
    }

    /// Ends the text with the tokens that are there.
    fn cancel(&self) {
        self.engine.get().handle().cancel(self.id);
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        self.engine.get().handle().cancel(self.id);
    }
}

/// What became of a text.
#[pyclass(module = "spec_run", frozen, get_all)]
pub struct Ended {
    text: String,
    tokens: Vec<u32>,
    /// `stop`, `length`, or `abort`.
    finish_reason: &'static str,
    /// The text that ended it, if one did.
    stopped_by: Option<String>,
    /// Of each token, if that was asked for: its log-probability, and the likeliest tokens with theirs.
    logprobs: Vec<(f32, Vec<(u32, f32)>)>,
    /// The same of the prompt, from where it was asked for.
    scored: Vec<(f32, Vec<(u32, f32)>)>,
    prompt_tokens: usize,
    /// Tokens of the prompt that were in the cache.
    cached_tokens: usize,
    /// With it the text can be had again.
    seed: u32,
    prefill_seconds: f64,
    decode_seconds: f64,
    /// What drafting did, as JSON.
    report: String,
}

fn plain(scores: Vec<TokenScore>) -> Vec<(f32, Vec<(u32, f32)>)> {
    scores.into_iter().map(|score| (score.logprob, score.likely)).collect()
}

impl Ended {
    fn of(ended: spec_run::engine::Ended, text: String, stopped_by: Option<String>) -> Self {
        let report = ended.report.to_json().to_string();
        let made = ended.generation;
        Ended {
            text,
            finish_reason: match made.stop {
                Stop::EndOfText => "stop",
                Stop::Interrupted if stopped_by.is_some() => "stop",
                Stop::MaxTokens | Stop::ContextFull => "length",
                Stop::Interrupted => "abort",
            },
            stopped_by,
            tokens: made.tokens,
            logprobs: plain(made.logprobs),
            scored: plain(ended.scored),
            prompt_tokens: ended.prompt_tokens,
            cached_tokens: ended.cached,
            seed: ended.seed,
            prefill_seconds: made.prefill_seconds,
            decode_seconds: made.decode_seconds,
            report,
        }
    }
}
