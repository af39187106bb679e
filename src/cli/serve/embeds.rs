//! A model that is served for its embeddings.

use std::sync::Arc;

use clap::Args;

use super::host::{Names, Ready, template};
use crate::{
    ContextConfig, Error, Result,
    cli::{common, engine_args::Loaded},
    embed::{Embedder, Pairs, Pooling},
    server::{Adapters, Embeds, NoText, Served},
};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Embeddings")]
pub struct EmbedsArgs {
    /// Make embeddings, at /v1/embeddings, and no text; it goes without saying for a model that makes no text
    #[arg(long, visible_alias = "embedding")]
    embeddings: bool,
    /// Say how well answers fit a question, at /v1/rerank: as --embeddings --pooling rank
    #[arg(long, visible_alias = "reranking")]
    rerank: bool,
}

impl EmbedsArgs {
    /// Whether they ask for embeddings.
    pub fn are_wanted(&self) -> bool {
        self.embeddings || self.rerank
    }
}

impl Ready {
    /// Whether the model is served for its embeddings.
    pub(super) fn embeds(&self) -> bool {
        self.args.embeds.are_wanted() || !self.loaded.model.writes_text()
    }

    /// How its context is opened.
    pub(super) fn embeds_config(&self) -> Result<ContextConfig> {
        if self.args.server.sleep_idle_seconds.is_some() {
            return Err(Error::Usage(
                "--sleep-idle-seconds: a model that makes embeddings is not let go; leave it out".into(),
            ));
        }
        let mut config = self.args.engine.context.config(&self.loaded.model)?;
        Embedder::prepare(&mut config, &self.loaded.model);
        Ok(config)
    }

    pub(super) fn serve_embeds(self, names: Names) -> Result<(Served, String)> {
        let Loaded { gguf, tokenizer, model } = &self.loaded;
        let defaults = self.args.defaults(&self.loaded)?;
        let (template, template_from) = template(&self.args.template, gguf, tokenizer)?;
        let config = self.embeds_config()?;
        let device = &self.args.engine.context.device;
        let basis = || device.basis(model, &config, None);
        let (context, took) = common::open_context(model, &config, &basis)?;
        let pooling = Some(Pooling::Rank).filter(|_| self.args.embeds.rerank);
        let embedder = Embedder::new(context, pooling.or(self.args.embeddings.pooling()))?;
        let described = format!(
            "{}; {took}; embeddings of {} numbers, pooling {}",
            embedder.context().describe(),
            embedder.width(),
            embedder.pooling().name(),
        );
        let n_ctx = embedder.most_tokens();
        let adapters = Adapters::new(embedder.context().loras());
        let embeds = Arc::new(Embeds::start(embedder, Pairs::of(gguf)?, self.args.embeddings.embd_normalize));
        let facts = self.facts(names, &[], &[], None, template_from);
        let preparer = self.preparer(template, Vec::new(), adapters, n_ctx);
        let served = Served::new(defaults, facts, preparer, Box::new(NoText(embeds.clone())));
        Ok((served.with_embeds(embeds), described))
    }
}
