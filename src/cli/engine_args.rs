//! An engine from the flags of the commands that talk with somebody.

use std::sync::Arc;

use clap::Args;

use super::{
    common::{self, ContextArgs, ModelArgs},
    draft_args::{DraftArgs, Sources},
    drafting::{Memory, controller},
    learned_args::LearnedArgs,
    output::warning,
};
use crate::{
    ContextConfig, Engine, EngineConfig, Gguf, Model, Result, RunLayers, Tokenizer,
    speculation::{MaskProposer, Proposer, SourceInfo},
};

#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub draft: DraftArgs,
    #[command(flatten)]
    pub learned: LearnedArgs,
}

/// How many texts an engine makes at once.
#[derive(Clone, Copy, Debug)]
pub struct Texts {
    pub most: usize,
    /// Each has its share of the context, instead of what others leave.
    pub divided: bool,
}

/// A model that is ready for a context.
#[derive(Clone)]
pub struct Loaded {
    pub gguf: Arc<Gguf>,
    pub tokenizer: Arc<Tokenizer>,
    pub model: Arc<Model>,
}

/// An engine and what belongs to it.
pub struct Opened {
    pub engine: Engine,
    /// Where the model lies, and what loading it took.
    pub described: String,
    /// What drafts, in the order of the sources.
    pub sources: Vec<SourceInfo>,
    /// Masks that have names, whether they draft or not: clients of the server may ask for them.
    #[cfg_attr(not(feature = "server"), expect(dead_code))]
    pub masks: Vec<(SourceInfo, RunLayers)>,
    /// Where what it learns is kept.
    pub memory: Memory,
}

impl EngineArgs {
    /// What can be refused before a file is opened.
    pub fn check(&self) -> Result<()> {
        self.context.check()?;
        self.draft.check()
    }

    pub fn load(&self) -> Result<Loaded> {
        let gguf = self.model.open()?;
        let (tokenizer, model) = common::load(&gguf, &self.context.rope)?;
        Ok(Loaded { gguf, tokenizer: Arc::new(tokenizer), model })
    }

    /// The same of a model that may make embeddings alone.
    #[cfg_attr(not(feature = "server"), expect(dead_code))]
    pub fn load_any(&self) -> Result<Loaded> {
        let gguf = self.model.open()?;
        let (tokenizer, model) = common::load_any(&gguf, &self.context.rope)?;
        Ok(Loaded { gguf, tokenizer: Arc::new(tokenizer), model })
    }

    /// With --dry-run: prints what would go where. The caller is done then.
    pub fn dry_run(&self, loaded: &Loaded, texts: Texts) -> Result<bool> {
        let model = &*loaded.model;
        let sources = self.draft.sources(model)?;
        let config = self.config(&sources, model, texts)?;
        self.context.device.dry_run(model, &config, sources.promised, false)
    }

    /// Bytes of memory that [`EngineArgs::open`] will take, if nothing is left in the file.
    #[cfg(feature = "server")]
    pub fn bytes(&self, loaded: &Loaded, texts: Texts) -> Result<u64> {
        let model = &*loaded.model;
        let config = self.config(&self.draft.sources(model)?, model, texts)?;
        crate::runtime::memory_needed(model, &config)
    }

    fn config(&self, sources: &Sources, model: &Model, texts: Texts) -> Result<ContextConfig> {
        let mut config = sources.context(&self.context, &self.learned, model)?;
        // One to draft on.
        config.sequences = texts.most + 1;
        Ok(config)
    }

    pub fn open(&self, loaded: &Loaded, texts: Texts) -> Result<Opened> {
        let Loaded { model, tokenizer, .. } = loaded;
        let mut sources = self.draft.sources(model)?;
        let config = self.config(&sources, model, texts)?;
        sources.open_draft_model(&self.draft, &self.model, &self.context, (model, tokenizer), &config)?;
        let device = &self.context.device;
        let basis = || device.basis(model, &config, sources.promised);
        let (mut context, took) = common::open_context(model, &config, &basis)?;
        let described = format!("{}; {took}", context.describe());
        sources.complete(&context)?;
        let mask = |mask: &MaskProposer| (mask.info(&context), mask.layers().clone());
        let masks = sources.drafters.masks.iter().map(mask).collect();
        let share = texts.divided.then(|| context.kv().capacity() / texts.most.max(1));
        let default = EngineConfig::default();
        let chunk = default.chunk.min(config.n_ubatch);
        let config = EngineConfig { texts: texts.most, tokens_of_text: share, chunk, ..default };
        if self.draft.off_reason().is_some() {
            let engine = Engine::new(context, tokenizer.clone(), config);
            return Ok(Opened { engine, described, sources: Vec::new(), masks, memory: None });
        }
        if self.draft.fixed().is_some() {
            warning!("lengths of drafts are for single texts; here they are chosen by what they give");
        }
        let drafters = sources.drafters;
        let proposers = drafters.proposers();
        let infos = proposers.iter().map(|proposer| proposer.info(&context)).collect();
        let (controller, memory) = controller(&self.learned, &proposers, &mut context, false)?;
        let make = Box::new(move || drafters.proposers());
        let engine = Engine::new(context, tokenizer.clone(), config).drafting(make, controller);
        Ok(Opened { engine, described, sources: infos, masks, memory })
    }
}
