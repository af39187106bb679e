//! `spec-run serve`: answers over HTTP, many at once.

mod catalog;
mod embeds;
mod host;
mod preset;
mod router_args;

use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use clap::Args;
use tokio::sync::watch;

use self::{
    embeds::EmbedsArgs,
    host::{Names, Ready},
    router_args::RouterArgs,
};
use super::{
    chat_args::TemplateArgs,
    common::{MOST_TEXT, read_text},
    embedding_args::EmbeddingArgs,
    engine_args::EngineArgs,
    interrupt,
    output::note,
    sampler_args::SamplerArgs,
};
use crate::{
    Error, Result,
    server::{self, App, Config, Models, Origins, Predict},
};

/// Texts at once where nobody says; they share the context then.
const TEXTS: usize = 4;
/// Requests are refused when so many wait.
const MOST_WAITING: usize = 256;

#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    embeds: EmbedsArgs,
    #[command(flatten)]
    embeddings: EmbeddingArgs,
    #[command(flatten)]
    router: RouterArgs,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    sampler: SamplerArgs,
    /// The most tokens of an answer, where a request does not say; -1 until the text or its room ends
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N", default_value_t = -1)]
    #[arg(allow_negative_numbers = true)]
    n_predict: i64,
    /// When there is no more room for a text, drop half of it and go on
    #[arg(long)]
    context_shift: bool,
    /// Tokens of the prompt that a context shift keeps; -1 keeps all of it
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    keep: i64,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
struct ServerArgs {
    /// Addresses to listen on, with commas between them
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: String,
    /// The port; 0 takes any that is free, and says which
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Texts at once, each with its share of the context unless --kv-unified; -1 for 4 that share it
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    parallel: i64,
    /// A text may have the whole context while others leave room
    #[arg(long)]
    kv_unified: bool,
    /// Names of the model, with commas between them [default: the file's]
    #[arg(short = 'a', long, value_name = "NAMES")]
    alias: Option<String>,
    /// Words for the model, with commas between them
    #[arg(long, value_name = "WORDS")]
    tags: Option<String>,
    /// Keys of which requests must send one, with commas between them
    #[arg(long, value_name = "KEYS")]
    api_key: Option<String>,
    /// A file with such keys, one a line
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Pages that may use the server from other addresses: *, localhost, or addresses with commas between them
    #[arg(long, value_name = "ORIGINS", default_value = "*")]
    cors_origins: String,
    /// Read adapters and apply none until a request, or /lora-adapters, asks for some
    #[arg(long)]
    lora_init_without_apply: bool,
    /// Say with each answer what drafting gave, as `speculation`; without it, only requests that ask for it get that
    #[arg(long)]
    speculation_stats: bool,
    /// Count what is done, at /metrics
    #[arg(long)]
    metrics: bool,
    /// Tell at /slots what is being made (this is the default)
    #[arg(long, overrides_with = "no_slots")]
    slots: bool,
    /// Do not tell at /slots what is being made
    #[arg(long)]
    no_slots: bool,
    /// No page at /
    #[arg(long, visible_alias = "no-webui")]
    no_ui: bool,
    /// Variables for the chat template, as a JSON object
    #[arg(long, value_name = "JSON")]
    chat_template_kwargs: Option<String>,
    /// Whether models that can think do so: on, off or auto
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(["on", "off", "auto"]))]
    reasoning: String,
    /// Where what a model thinks goes: none leaves it in the text
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(["none", "auto", "deepseek", "deepseek-legacy"]))]
    reasoning_format: String,
    /// A message of the assistant at the end is an earlier answer, not the beginning of this one
    #[arg(long)]
    no_prefill_assistant: bool,
    /// Give back the model's memory when nobody has asked for so many seconds; who asks next waits until it is loaded again
    #[arg(long, value_name = "SECONDS")]
    sleep_idle_seconds: Option<u64>,
    /// A folder for texts of slots that clients ask to save; without it they cannot
    #[arg(long, value_name = "FOLDER")]
    slot_save_path: Option<PathBuf>,
    /// How answers and refused requests are written down on stderr: text, json (an object a line), or none; -q is none too
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(["text", "json", "none"]))]
    log_format: String,
    /// Seconds that answers may take to end after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    /// MiB that a request may have
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    max_body: usize,
    /// Seconds that a request may take to come whole
    #[arg(long, value_name = "SECONDS", default_value_t = 120, hide_short_help = true)]
    timeout: u64,
    /// Requests that may wait; further ones get status 503
    #[arg(long, value_name = "N", default_value_t = MOST_WAITING)]
    max_waiting: usize,
}

pub fn run(args: ServeArgs) -> Result<()> {
    let config = args.server.config()?;
    if args.router.is_wanted() {
        let (models, title) = args.router.models(&args)?;
        return listens(&args.server, config, models, &title);
    }
    args.check()?;
    let (server, names) = (args.server.clone(), Names::of_flags(&args.server));
    let ready = Ready::new(args)?;
    if ready.dry_run()? {
        return Ok(());
    }
    let name = ready.name().to_owned();
    let (served, described) = ready.serve(names)?;
    listens(&server, config, Models::one(served), &format!("{name}: {described}"))
}

/// Answers until somebody ends it.
fn listens(args: &ServerArgs, config: Config, models: Models, title: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| Error::io("threads for the server", e))?;
    let listeners = runtime.block_on(server::listen(&config))?;
    for listener in &listeners {
        let at = listener.local_addr().map_err(|e| Error::io("the server's address", e))?;
        note!("{title}; listening on http://{at}");
    }
    let keeper = thread::spawn({
        let models = models.clone();
        move || models.keep()
    });
    let mut app = App::new(config, models.clone());
    if !args.no_ui {
        (app.assets, app.policy) = (server::PAGE, server::POLICY.trim());
    }
    app.log = args.log();
    let interrupted = interrupt::flag();
    runtime.block_on(async {
        let (ends, ended) = watch::channel(false);
        tokio::spawn(async move {
            while !interrupted() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            ends.send(true)
        });
        server::serve(Arc::new(app), listeners, ended).await
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    models.end();
    keeper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok(())
}

/// What Vertex AI tells a container by its environment: paths, and the port.
fn predict(variable: impl Fn(&str) -> Option<String>) -> Result<Option<(Predict, Option<u16>)>> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    if variable("AIP_MODE").as_deref() != Some("PREDICTION") {
        return Ok(None);
    }
    let path = |name: &str| match variable(name) {
        Some(path) if !path.starts_with('/') => {
            Err(Error::Usage(format!("{name}={path}: a path is needed, which begins with /")))
        }
        other => Ok(other),
    };
    let wrong = |port: &str| Error::Usage(format!("AIP_HTTP_PORT={port}: a port is needed, 0 to 65535"));
    let port = variable("AIP_HTTP_PORT").map(|port| port.parse().map_err(|_| wrong(&port))).transpose()?;
    let predict = Predict {
        path: path("AIP_PREDICT_ROUTE")?.unwrap_or("/predict".into()),
        health: path("AIP_HEALTH_ROUTE")?,
    };
    Ok(Some((predict, port)))
}

fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

impl ServerArgs {
    fn log(&self) -> Option<server::Log> {
        match self.log_format.as_str() {
            "none" => None,
            "json" => Some(Box::new(|record| note!("{}", record.to_json()))),
            _ => Some(Box::new(|record| note!("{record}"))),
        }
    }

    fn config(&self) -> Result<Config> {
        let mut api_keys = self.api_key.as_deref().map(words).unwrap_or_default();
        if let Some(path) = &self.api_key_file {
            let text = read_text(path, MOST_TEXT)?;
            api_keys.extend(text.lines().map(|line| line.trim().to_owned()).filter(|key| !key.is_empty()));
        }
        if (self.api_key.is_some() || self.api_key_file.is_some()) && api_keys.is_empty() {
            return Err(Error::Usage("--api-key, --api-key-file: there is no key in it".into()));
        }
        if let Some(folder) = self.slot_save_path.as_ref().filter(|folder| !folder.is_dir()) {
            let what = "there is no such folder";
            return Err(Error::Usage(format!("--slot-save-path {}: {what}", folder.display())));
        }
        let hosts = words(&self.host);
        if hosts.is_empty() {
            let what = "an address to listen on is needed, such as 127.0.0.1";
            return Err(Error::Usage(format!("--host {:?}: {what}", self.host)));
        }
        if self.max_body == 0 {
            return Err(Error::Usage("--max-body 0: no request would be small enough".into()));
        }
        if self.timeout == 0 {
            return Err(Error::Usage("--timeout 0: no request would come in time".into()));
        }
        let predict = predict(|name| std::env::var(name).ok())?;
        Ok(Config {
            hosts,
            port: predict.as_ref().and_then(|(_, port)| *port).unwrap_or(self.port),
            api_keys,
            origins: Origins::parse(&self.cors_origins),
            most_body: self.max_body.saturating_mul(1 << 20),
            timeout: Duration::from_secs(self.timeout),
            most_waiting: self.max_waiting,
            slots: self.slots || !self.no_slots,
            saves_to: self.slot_save_path.clone(),
            predict: predict.map(|(predict, _)| predict),
            metrics: self.metrics,
            grace: Duration::from_secs(self.grace),
        })
    }

    /// Texts at once, where somebody says how many.
    fn parallel(&self) -> Result<Option<usize>> {
        match self.parallel {
            -1 => Ok(None),
            texts @ 1.. => Ok(Some(texts as usize)),
            texts => Err(Error::Usage(format!(
                "--parallel {texts}: give how many texts are made at once, at least 1, or -1 for {TEXTS} that share the context"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_vertex_ai() {
        let read = |all: &[(&str, &str)]| {
            predict(|name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into()))
        };
        assert_eq!(read(&[("AIP_HTTP_PORT", "1")]).unwrap(), None);
        let on = ("AIP_MODE", "PREDICTION");
        let given =
            |path: &str, health: Option<&str>| Predict { path: path.into(), health: health.map(Into::into) };
        assert_eq!(read(&[on]).unwrap(), Some((given("/predict", None), None)));
        let all = [on, ("AIP_HTTP_PORT", "80"), ("AIP_HEALTH_ROUTE", "/h"), ("AIP_PREDICT_ROUTE", "/p")];
        assert_eq!(read(&all).unwrap(), Some((given("/p", Some("/h")), Some(80))));
        for wrong in [("AIP_HTTP_PORT", "x"), ("AIP_HEALTH_ROUTE", "h")] {
            let message = read(&[on, wrong]).unwrap_err().to_string();
            assert!(message.contains(wrong.0) && message.contains(wrong.1), "{message}");
        }
    }
}
