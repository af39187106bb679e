//! A model that answers: what requests are prepared with, who makes its texts, and what it is asked for at the time.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::Value;

use super::{
    answers::Answers,
    embeds::Embeds,
    metrics::Metrics,
    prepare::Preparer,
    wire::{Defaults, Settings, Timings, settings_json},
};
use crate::engine::JobId;

/// What clients are told of the program.
pub const FINGERPRINT: &str = concat!("b", env!("CARGO_PKG_VERSION"), "-spec-run");

/// What clients are told of a model.
#[derive(Clone, Debug)]
pub struct Facts {
    /// By what names it goes; the first is its own.
    pub names: Vec<String>,
    /// What its file calls it, if it does; this is no name for requests.
    pub model_name: Option<String>,
    /// Words for it.
    pub tags: Vec<String>,
    /// Its file.
    pub path: String,
    /// Of the program.
    pub fingerprint: String,
    /// Texts at once.
    pub texts: usize,
    /// What it was trained on.
    pub n_ctx_train: usize,
    /// Numbers in each position.
    pub n_embd: usize,
    /// All its numbers.
    pub n_params: u64,
    /// Bytes of them.
    pub size: u64,
    /// What drafts, by name.
    pub sources: Vec<String>,
    /// Masks that requests may name, as the page is told of them.
    pub masks: Value,
    /// What its template makes use of.
    pub caps: Option<crate::chat::Caps>,
    /// Where that comes from.
    pub template_from: TemplateFrom,
}

/// Where the chat template comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateFrom {
    /// The model's file.
    Model,
    /// Whoever started the server.
    Flag,
    /// Nobody gave one: it is ChatML, which the model may not know.
    Assumed,
}

impl TemplateFrom {
    pub(super) fn name(self) -> &'static str {
        match self {
            TemplateFrom::Model => "model",
            TemplateFrom::Flag => "flag",
            TemplateFrom::Assumed => "assumed",
        }
    }
}

/// A model that answers.
pub struct Served {
    /// Of requests that say nothing.
    pub defaults: Defaults,
    /// What clients are told.
    pub facts: Facts,
    /// Makes jobs of requests.
    pub preparer: Preparer,
    /// Makes texts.
    pub answers: Box<dyn Answers>,
    /// Makes embeddings; then it makes no texts.
    pub(super) embeds: Option<Arc<Embeds>>,
    pub(super) metrics: Metrics,
    /// The settings of jobs that are asked for, as /slots shows them.
    asked: Mutex<HashMap<JobId, Value>>,
    /// Requests that were let in and whose jobs are not all among these yet.
    coming: AtomicUsize,
}

/// A request that is one of a count as long as this lives.
pub(super) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    /// One more, and how many there were before.
    pub(super) fn among(count: &'a AtomicUsize) -> (Self, usize) {
        let before = count.fetch_add(1, Ordering::Relaxed);
        (Counted(count), before)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Served {
    /// A model that has answered nothing yet.
    pub fn new(defaults: Defaults, facts: Facts, preparer: Preparer, answers: Box<dyn Answers>) -> Self {
        let (metrics, asked, coming) = (Metrics::default(), Mutex::default(), AtomicUsize::new(0));
        Served { defaults, facts, preparer, answers, embeds: None, metrics, asked, coming }
    }

    /// The same for embeddings.
    pub fn with_embeds(self, embeds: Arc<Embeds>) -> Self {
        Served { embeds: Some(embeds), ..self }
    }

    fn all_asked(&self) -> MutexGuard<'_, HashMap<JobId, Value>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer has ended, or nobody waits for it any more.
    pub(super) fn has_answered(&self, id: JobId, timings: &Timings) {
        self.metrics.count(timings);
        self.all_asked().remove(&id);
    }

    pub(super) fn remember_asked(&self, id: JobId, settings: &Settings) {
        let shown = settings_json(settings, settings.sampler.seed.map_or(0, u64::from));
        self.all_asked().insert(id, shown);
    }

    /// Counts a request until its jobs are known, which the engine may take a pass for; `None`: no further one is taken for
    /// now, because `most_waiting` wait already.
    pub(super) fn admit(&self, most_waiting: usize) -> Option<Counted<'_>> {
        let asked = self.all_asked();
        let (counted, before) = Counted::among(&self.coming);
        (asked.len() + before < self.facts.texts + most_waiting).then_some(counted)
    }

    pub(super) fn asked(&self, id: JobId) -> Option<Value> {
        self.all_asked().get(&id).cloned()
    }
}
