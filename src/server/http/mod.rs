//! The server: routes, who may use them, and how answers are sent.

mod answering;
mod connections;
mod guard;
mod log;
mod metrics;
mod predict;
mod routes;
mod slots;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::Router;
use serde_json::Value;

pub use connections::{listen, serve};
pub use guard::Origins;
pub use log::{Log, Record};

use self::metrics::Metrics;
use super::{
    desk::Answers,
    prepare::Preparer,
    wire::{ApiError, Defaults, Reason, Settings, Timings, settings_json},
};
use crate::engine::JobId;

/// What the server is told of by flags.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to listen on.
    pub hosts: Vec<String>,
    /// The port; 0: any.
    pub port: u16,
    /// Who sends one of these may use it; none: everybody.
    pub api_keys: Vec<String>,
    /// Which pages of others may use it.
    pub origins: Origins,
    /// Bytes of a request.
    pub most_body: usize,
    /// How long a request may take to come.
    pub timeout: Duration,
    /// Jobs that wait; further ones are refused.
    pub most_waiting: usize,
    /// Texts at once.
    pub texts: usize,
    /// Tells what is being made at /slots.
    pub slots: bool,
    /// The folder where texts of slots are saved; `None`: they are not.
    pub saves_to: Option<PathBuf>,
    /// Answers as Google's Vertex AI asks for them.
    pub predict: Option<Predict>,
    /// Counts at /metrics.
    pub metrics: bool,
    /// How long answers may take to end when the server is told to.
    pub grace: Duration,
}

/// What clients are told of the model.
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
    pub masks: serde_json::Value,
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
    fn name(self) -> &'static str {
        match self {
            TemplateFrom::Model => "model",
            TemplateFrom::Flag => "flag",
            TemplateFrom::Assumed => "assumed",
        }
    }
}

/// A file of the page: its path, its type, its bytes.
pub type Asset = (&'static str, &'static str, &'static [u8]);

/// All that a request may need.
pub struct App {
    /// Of flags.
    pub config: Config,
    /// Of requests that say nothing.
    pub defaults: Defaults,
    /// Of the model.
    pub facts: Facts,
    /// Makes jobs of requests.
    pub preparer: Preparer,
    /// Makes texts.
    pub answers: Box<dyn Answers>,
    /// The page.
    pub assets: &'static [Asset],
    /// Its security policy.
    pub policy: &'static str,
    /// Writes down what is done.
    pub log: Option<Log>,
    metrics: Metrics,
    /// The settings of jobs that are asked for, as /slots shows them.
    asked: Mutex<HashMap<JobId, Value>>,
    /// Requests that were let in and whose jobs are not all among these yet.
    coming: AtomicUsize,
}

/// One of `App::coming`, as long as it lives.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Paths that Vertex AI wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predict {
    /// Of requests.
    pub path: String,
    /// Another one for /health.
    pub health: Option<String>,
}

impl App {
    /// An app that has answered nothing yet.
    pub fn new(
        config: Config,
        defaults: Defaults,
        facts: Facts,
        preparer: Preparer,
        answers: Box<dyn Answers>,
    ) -> Self {
        let metrics = Metrics::default();
        let (asked, assets, policy): (_, &[Asset], _) = (Mutex::default(), &[], "default-src 'none'");
        let (log, coming) = (None, AtomicUsize::new(0));
        App { config, defaults, facts, preparer, answers, assets, policy, log, metrics, asked, coming }
    }

    /// An answer has ended, or nobody waits for it any more.
    fn has_answered(&self, id: JobId, path: &str, reason: Option<&Reason>, timings: &Timings) {
        self.metrics.count(timings);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(log) = &self.log {
            let (reason, timings) = (reason.cloned(), timings.clone());
            log(&Record::Answered { id, path: log::shortened(path), reason, timings });
        }
    }

    fn remember_asked(&self, id: JobId, settings: &Settings) {
        let shown = settings_json(settings, settings.sampler.seed.map_or(0, u64::from));
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(id, shown);
    }

    /// A place for a request until its jobs are known, which the engine may take a pass for; `None`: no further one is taken for now.
    fn admit(&self) -> Option<Place<'_>> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.coming.fetch_add(1, Ordering::Relaxed);
        let place = Place(&self.coming);
        (asked.len() + before < self.config.texts + self.config.most_waiting).then_some(place)
    }

    fn asked(&self, id: JobId) -> Option<Value> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

/// Does what takes its time where no other request waits for it.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(ApiError::server("the request could not be answered")))
}

/// The routes of an app.
pub fn router(app: Arc<App>) -> Router {
    routes::router(app)
}
