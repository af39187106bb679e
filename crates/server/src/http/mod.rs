//! The server: routes, who may use them, and how answers are sent.

mod answering;
mod connections;
mod embeddings;
mod errors;
mod guard;
mod log;
mod models;
mod predict;
mod routes;
mod slots;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc, time::Duration};

use axum::Router;

pub use connections::{listen, serve};
pub use guard::Origins;
pub use log::{Log, Record};

use super::{
    models::Models,
    served::Served,
    wire::{ApiError, Reason, Timings},
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

/// A file of the page: its path, its type, its bytes.
pub type Asset = (&'static str, &'static str, &'static [u8]);

/// All that a request may need.
pub struct App {
    /// Of flags.
    pub config: Config,
    /// Who answers.
    pub models: Models,
    /// The page.
    pub assets: &'static [Asset],
    /// Its security policy.
    pub policy: &'static str,
    /// Writes down what is done.
    pub log: Option<Log>,
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
    /// An app without a page.
    pub fn new(config: Config, models: Models) -> Self {
        App { config, models, assets: &[], policy: "default-src 'none'", log: None }
    }

    /// An answer has ended, or nobody waits for it any more.
    fn has_answered(
        &self,
        model: &Served,
        id: JobId,
        path: &str,
        reason: Option<&Reason>,
        timings: &Timings,
    ) {
        model.has_answered(id, timings);
        if let Some(log) = &self.log {
            let (reason, timings) = (reason.cloned(), timings.clone());
            log(&Record::Answered { id, path: log::shortened(path), reason, timings });
        }
    }
}

/// Does what takes its time where no other request waits for it.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(ApiError::server("the request could not be answered")))
}

/// The routes of an app.
pub fn router(app: Arc<App>) -> Router {
    routes::router(app)
}
