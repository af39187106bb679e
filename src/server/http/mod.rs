//! The server: routes, who may use them, and how answers are sent.

mod answering;
mod guard;
mod metrics;
mod routes;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use tokio::{net::TcpListener, sync::watch};

pub use guard::Origins;

use self::metrics::Metrics;
use super::{desk::Answers, prepare::Preparer, wire::Defaults};
use crate::{Error, Result};

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
    /// Jobs that wait; further ones are refused.
    pub most_waiting: usize,
    /// Texts at once.
    pub texts: usize,
    /// Tells what is being made at /slots.
    pub slots: bool,
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
    metrics: Metrics,
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
        App { config, defaults, facts, preparer, answers, assets: &[], policy: "default-src 'none'", metrics }
    }
}

/// The routes of an app.
pub fn router(app: Arc<App>) -> Router {
    routes::router(app)
}

/// Listens at all addresses, and says where.
pub async fn listen(config: &Config) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for host in &config.hosts {
        let at = |e: std::io::Error| {
            let what = match e.kind() {
                std::io::ErrorKind::AddrInUse => {
                    "the port is in use by another program; choose one with `port`"
                }
                std::io::ErrorKind::AddrNotAvailable => "this machine has no such address",
                _ => return Error::io(format!("{host}:{}", config.port), e),
            };
            Error::Usage(format!("{host}:{}: {what}", config.port))
        };
        listeners.push(TcpListener::bind((host.trim_matches(['[', ']']), config.port)).await.map_err(at)?);
    }
    Ok(listeners)
}

/// Serves until `ends` changes, then finishes the answers that have begun, as long as that may take.
pub async fn serve(app: Arc<App>, listeners: Vec<TcpListener>, ends: watch::Receiver<bool>) -> Result<()> {
    let grace = app.config.grace;
    let mut servers = tokio::task::JoinSet::new();
    for listener in listeners {
        let router = router(app.clone()).into_make_service_with_connect_info::<SocketAddr>();
        let ended = ended(ends.clone());
        servers.spawn(async move { axum::serve(listener, router).with_graceful_shutdown(ended).await });
    }
    let all = async {
        while let Some(served) = servers.join_next().await {
            served.map_err(|e| Error::Input(e.to_string()))?.map_err(|e| Error::io("the server", e))?;
        }
        Ok(())
    };
    tokio::select! {
        served = all => served,
        () = async { ended(ends).await; tokio::time::sleep(grace).await } => Ok(()),
    }
}

async fn ended(mut ends: watch::Receiver<bool>) {
    // Nobody left who could end it ends it as well.
    let _ = ends.wait_for(|end| *end).await;
}
