//! A model that is served: from the flags to what answers requests.

use std::{path::Path, time::Duration};

use serde_json::{Map, Value, json};

use super::{ServeArgs, ServerArgs, TEXTS, words};
use crate::{
    Error, Gguf, Result, RunLayers, Tokenizer,
    chat::{Caps, TemplateSource, known_template},
    cli::{
        chat_args::TemplateArgs,
        chat_template,
        drafting::{Memory, keep},
        engine_args::{Loaded, Opened, Texts},
        output::warning,
        verbosity::{Verbosity, verbosity},
    },
    constraint::Vocabulary,
    embedded,
    mask::skips::Skips,
    runtime,
    server::{
        self, Adapters, Controls, FINGERPRINT, Facts, Preparer, Served, Sleeper, TemplateFrom, wire::Defaults,
    },
    speculation::SourceInfo,
};

/// What a model is called.
pub struct Names {
    /// The first is its own; none: its file's.
    pub names: Vec<String>,
    pub tags: Vec<String>,
}

impl Names {
    pub fn of_flags(args: &ServerArgs) -> Self {
        let mut names = args.alias.as_deref().map(words).unwrap_or_default();
        // llama-server's order, whose first is the model's.
        names.sort_unstable();
        Names { names, tags: args.tags.as_deref().map(words).unwrap_or_default() }
    }
}

/// A model whose file is open, and whose weights are not loaded.
pub struct Ready {
    pub(super) args: ServeArgs,
    pub(super) loaded: Loaded,
    texts: Texts,
}

impl ServeArgs {
    /// What can be refused before a file is opened.
    pub fn check(&self) -> Result<()> {
        self.engine.check()?;
        self.server.parallel()?;
        self.server.defaults()?;
        self.sampler.config()?;
        Ok(())
    }
}

impl Ready {
    pub fn new(mut args: ServeArgs) -> Result<Self> {
        if args.server.lora_init_without_apply {
            args.engine.context.adapters.without_applying();
        }
        let loaded = args.engine.load_any()?;
        let divided = args.server.parallel()?.is_some() && !args.server.kv_unified;
        let texts = Texts { most: args.server.parallel()?.unwrap_or(TEXTS), divided };
        Ok(Ready { args, loaded, texts })
    }

    /// What its file calls it.
    pub fn name(&self) -> &str {
        &self.loaded.model.name
    }

    /// With --dry-run: prints what would go where. The caller is done then.
    pub fn dry_run(&self) -> Result<bool> {
        if self.embeds() {
            let device = &self.args.engine.context.device;
            return device.dry_run(&self.loaded.model, &self.embeds_config()?, None, false);
        }
        self.args.engine.dry_run(&self.loaded, self.texts)
    }

    /// Bytes of memory that it will take.
    pub fn bytes(&self) -> Result<u64> {
        if self.embeds() {
            return runtime::memory_needed(&self.loaded.model, &self.embeds_config()?);
        }
        self.args.engine.bytes(&self.loaded, self.texts)
    }

    /// The model, and where it lies.
    pub fn serve(self, names: Names) -> Result<(Served, String)> {
        if self.embeds() {
            return self.serve_embeds(names);
        }
        let Ready { args, loaded, texts } = &self;
        let Loaded { gguf, tokenizer, model: _ } = loaded;
        let defaults = args.defaults(loaded)?;
        let (template, template_from) = template(&args.template, gguf, tokenizer)?;
        let Opened { engine, described, sources, masks, memory } = args.engine.open(loaded, *texts)?;
        let caps = chat_template::caps(template.clone());
        if template_from == TemplateFrom::Assumed {
            warning!(
                "{}: no chat template in the file; conversations are written in ChatML, which the model may not know: \
                 --chat-template gives another",
                gguf.name()
            );
        } else if let Err(error) = &caps {
            warning!(
                "{}: {error}; conversations may be refused: --chat-template gives another template",
                gguf.name()
            );
        }
        let facts = self.facts(names, &sources, &masks, caps.ok(), template_from);
        let n_ctx = engine.tokens_of_text().min(self.loaded.model.n_ctx_train as usize);
        let preparer = self.preparer(template, masks, Adapters::new(engine.context().loras()), n_ctx);
        let Ready { args, loaded, texts } = self;
        let idle = args.server.sleep_idle_seconds.map(Duration::from_secs);
        let open: server::Open = Box::new(move || {
            let Opened { engine, memory, .. } = args.engine.open(&loaded, texts)?;
            Ok((engine, closes(memory)))
        });
        let sleeper = Sleeper::new(engine, closes(memory), idle, open);
        Ok((Served::new(defaults, facts, preparer, Box::new(sleeper)), described))
    }

    /// What clients are told.
    pub(super) fn facts(
        &self,
        names: Names,
        sources: &[SourceInfo],
        masks: &[(SourceInfo, RunLayers)],
        caps: Option<Caps>,
        template_from: TemplateFrom,
    ) -> Facts {
        let Loaded { gguf, model, .. } = &self.loaded;
        let shown = |(info, _): &(SourceInfo, RunLayers)| json!({ "name": info.name, "cost": info.cost });
        Facts {
            names: if names.names.is_empty() { vec![file_name(gguf.name())] } else { names.names },
            tags: names.tags,
            // Not what stands in for it elsewhere, which is the path.
            model_name: gguf.metadata().str("general.name").ok().flatten().map(|_| model.name.clone()),
            path: gguf.name().into(),
            fingerprint: FINGERPRINT.into(),
            texts: self.texts.most,
            n_ctx_train: model.n_ctx_train as usize,
            n_embd: model.plan.dims.dim,
            n_params: gguf.tensors().iter().map(|tensor| tensor.elements()).sum(),
            size: gguf.file_bytes(),
            sources: sources.iter().map(|info| info.name.clone()).collect(),
            masks: masks.iter().map(shown).collect(),
            caps,
            template_from,
        }
    }

    /// What makes jobs of requests.
    pub(super) fn preparer(
        &self,
        template: TemplateSource,
        masks: Vec<(SourceInfo, RunLayers)>,
        adapters: Adapters,
        n_ctx: usize,
    ) -> Preparer {
        let tokenizer = &self.loaded.tokenizer;
        let n_layer = self.loaded.model.n_layer();
        Preparer {
            vocabulary: Vocabulary::new(tokenizer).ok(),
            controls: Controls::of(tokenizer),
            tokenizer: tokenizer.clone(),
            template: Some(template.clone()),
            render: Box::new(move |conversation| {
                chat_template::render(template.clone(), conversation.clone())
            }),
            mask: Box::new(move |json| mask(json, &masks, n_layer)),
            adapters,
            n_ctx,
            shifts: self.args.context_shift,
        }
    }
}

impl ServeArgs {
    /// Of requests that say nothing.
    pub(super) fn defaults(&self, loaded: &Loaded) -> Result<Defaults> {
        let Loaded { tokenizer, model, .. } = loaded;
        let mut sampler = self.sampler.config()?;
        self.sampler.complete(&mut sampler, model, tokenizer, true)?;
        // A request may turn DRY on.
        sampler.dry.breakers = self.sampler.breakers(tokenizer, true);
        let mut defaults = self.server.defaults()?;
        defaults.settings.sampler = sampler;
        defaults.settings.max_tokens = usize::try_from(self.n_predict).ok();
        defaults.settings.keep = usize::try_from(self.keep).ok();
        defaults.settings.verbose = verbosity() == Verbosity::Verbose;
        defaults.settings.speculation = self.server.speculation_stats;
        Ok(defaults)
    }
}

impl ServerArgs {
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
}

/// What an engine has learnt is kept when it is let go.
fn closes(memory: Memory) -> server::Close {
    Box::new(move |engine| keep(engine.controller(), &memory))
}

/// What a model is called where nobody says: the name of its file, as in llama-server, but never the folder.
fn file_name(path: &str) -> String {
    let path = if path == embedded::NAME { path.split(' ').next().unwrap_or(path) } else { path };
    let name = Path::new(path).file_name().unwrap_or(path.as_ref());
    name.to_string_lossy().into_owned()
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

/// The model's own, unless another is given; without any, chatml as in llama-server.
pub(super) fn template(
    given: &TemplateArgs,
    gguf: &Gguf,
    tokenizer: &Tokenizer,
) -> Result<(TemplateSource, TemplateFrom)> {
    if given.is_given() {
        return Ok((given.source(gguf, tokenizer)?, TemplateFrom::Flag));
    }
    if TemplateSource::is_in(gguf)? {
        return Ok((TemplateSource::of(gguf, tokenizer)?, TemplateFrom::Model));
    }
    let chatml = known_template("chatml").unwrap_or_default().to_owned();
    Ok((TemplateSource::new(chatml, tokenizer)?, TemplateFrom::Assumed))
}
