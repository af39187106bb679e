//! `spec-run serve`: answers over HTTP, many at once.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::{
    chat_args::TemplateArgs,
    chat_template,
    common::{MOST_TEXT, read_text},
    drafting::keep,
    engine_args::{EngineArgs, Loaded, Opened, Texts},
    interrupt,
    output::{detail, note},
    sampler_args::SamplerArgs,
};
use crate::{
    Error, Gguf, Result, RunLayers, Tokenizer,
    chat::{TemplateSource, known_template},
    constraint::Vocabulary,
    engine::Worker,
    mask::skips::Skips,
    server::{self, App, Config, Controls, Facts, Origins, Preparer, wire::Defaults},
    speculation::SourceInfo,
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
    /// Texts at once; each has its share of the context unless --kv-unified [default: 4 that share it]
    #[arg(long, value_name = "N")]
    parallel: Option<usize>,
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
    /// Templates are always Jinja
    #[arg(long, hide = true)]
    jinja: bool,
    #[arg(long, hide = true)]
    no_jinja: bool,
    /// Seconds that answers may take to end after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    /// MiB that a request may have
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    max_body: usize,
    /// Requests that may wait; further ones get status 503
    #[arg(long, value_name = "N", default_value_t = MOST_WAITING)]
    max_waiting: usize,
}

pub fn run(args: ServeArgs) -> Result<()> {
    args.engine.check()?;
    let config = args.server.config()?;
    let mut defaults = args.server.defaults()?;
    let mut sampler = args.sampler.config()?;
    let loaded = args.engine.load()?;
    let Loaded { gguf, tokenizer, model } = &loaded;
    args.sampler.complete(&mut sampler, model, tokenizer, true)?;
    // A request may turn DRY on.
    sampler.dry.breakers = args.sampler.breakers(tokenizer, true);
    defaults.settings.sampler = sampler;
    defaults.settings.max_tokens = usize::try_from(args.n_predict).ok();
    defaults.settings.keep = usize::try_from(args.keep).ok();
    let template = args.server.template(&args.template, gguf, tokenizer)?;
    let divided = args.server.parallel.is_some() && !args.server.kv_unified;
    let Opened { engine, described, sources, masks, memory } =
        args.engine.open(&loaded, Texts { most: config.texts, divided })?;
    let facts = args.server.facts(&loaded, &sources, &masks, &template);
    let n_layer = model.n_layer();
    let preparer = Preparer {
        vocabulary: Vocabulary::new(tokenizer).ok(),
        controls: Controls::of(tokenizer),
        tokenizer: tokenizer.clone(),
        template: Some(template.clone()),
        render: Box::new(move |conversation| chat_template::render(template.clone(), conversation.clone())),
        mask: Box::new(move |json| mask(json, &masks, n_layer)),
        n_ctx: engine.tokens_of_text().min(model.n_ctx_train as usize),
        shifts: args.context_shift,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| Error::io("threads for the server", e))?;
    // A port in use is known before the engine starts.
    let listeners = runtime.block_on(server::listen(&config))?;
    for listener in &listeners {
        let at = listener.local_addr().map_err(|e| Error::io("the server's address", e))?;
        note!("{}: {described}; listening on http://{at}", model.name);
    }
    let (worker, handle) = Worker::start(engine);
    let mut app = App::new(config, defaults, facts, preparer, Box::new(handle));
    if !args.server.no_ui {
        (app.assets, app.policy) = (server::PAGE, server::POLICY.trim());
    }
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
    // With the app goes the last handle, and with that the engine's thread ends.
    runtime.shutdown_timeout(Duration::from_secs(1));
    keep(worker.join().controller(), &memory);
    Ok(())
}

/// A mask by its name, or spelled out as in a file of masks.
fn mask(json: &Value, named: &[(SourceInfo, RunLayers)], n_layer: usize) -> Result<RunLayers> {
    if let Some(name) = json.as_str() {
        let found = named.iter().find(|(known, _)| known.name == name);
        let unknown = || Error::Mask(format!("no mask is named {name:?}; /props lists those that there are"));
        return found.map(|(_, mask)| mask.clone()).ok_or_else(unknown);
    }
    let skips = Skips::parse("`mask`", json.to_string().as_bytes(), n_layer)?;
    Ok(skips.pick(None)?.mask.clone())
}

fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

impl ServerArgs {
    fn config(&self) -> Result<Config> {
        let mut api_keys = self.api_key.as_deref().map(words).unwrap_or_default();
        if let Some(path) = &self.api_key_file {
            let text = read_text(path, MOST_TEXT)?;
            api_keys.extend(text.lines().map(|line| line.trim().to_owned()).filter(|key| !key.is_empty()));
        }
        if (self.api_key.is_some() || self.api_key_file.is_some()) && api_keys.is_empty() {
            return Err(Error::Usage("--api-key, --api-key-file: there is no key in it".into()));
        }
        let texts = self.parallel.unwrap_or(TEXTS);
        if texts == 0 {
            return Err(Error::Usage("--parallel 0: at least one text has to be made at a time".into()));
        }
        Ok(Config {
            hosts: words(&self.host),
            port: self.port,
            api_keys,
            origins: Origins::parse(&self.cors_origins),
            most_body: self.max_body << 20,
            most_waiting: self.max_waiting,
            texts,
            slots: self.slots || !self.no_slots,
            metrics: self.metrics,
            grace: Duration::from_secs(self.grace),
        })
    }

    fn defaults(&self) -> Result<Defaults> {
        let variables = match &self.chat_template_kwargs {
            None => Map::new(),
            Some(text) => serde_json::from_str(text).map_err(|e| {
                Error::Usage(format!("--chat-template-kwargs: a JSON object is needed ({e})"))
            })?,
        };
        Ok(Defaults {
            thinking: self.reasoning != "off",
            splits_reasoning: self.reasoning_format != "none",
            prefills: !self.no_prefill_assistant,
            variables,
            ..Defaults::default()
        })
    }

    /// The model's own, unless another is given; without any, chatml as in llama-server.
    fn template(&self, given: &TemplateArgs, gguf: &Gguf, tokenizer: &Tokenizer) -> Result<TemplateSource> {
        if self.jinja || self.no_jinja {
            detail!("--jinja and --no-jinja change nothing: templates are always Jinja");
        }
        match given.source(gguf, tokenizer) {
            Err(_) if !given.is_given() => {
                TemplateSource::new(known_template("chatml").unwrap_or_default().into(), tokenizer)
            }
            source => source,
        }
    }

    fn facts(
        &self,
        loaded: &Loaded,
        sources: &[SourceInfo],
        masks: &[(SourceInfo, RunLayers)],
        template: &TemplateSource,
    ) -> Facts {
        let Loaded { gguf, model, .. } = loaded;
        let mut names = self.alias.as_deref().map(words).unwrap_or_default();
        // llama-server's order, whose first is the model's.
        names.sort_unstable();
        if names.is_empty() {
            names.push(model.name.clone());
        }
        let mask = |(info, _): &(SourceInfo, RunLayers)| json!({ "name": info.name, "cost": info.cost });
        Facts {
            names,
            tags: self.tags.as_deref().map(words).unwrap_or_default(),
            path: gguf.name().into(),
            fingerprint: format!("b{}-spec-run", env!("CARGO_PKG_VERSION")),
            n_ctx_train: model.n_ctx_train as usize,
            n_embd: model.plan.dims.dim,
            n_params: gguf.tensors().iter().map(|tensor| tensor.elements()).sum(),
            size: gguf.file_bytes(),
            sources: sources.iter().map(|info| info.name.clone()).collect(),
            masks: masks.iter().map(mask).collect(),
            caps: chat_template::caps(template.clone()).ok(),
        }
    }
}
