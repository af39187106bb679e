//! An engine from the flags of the commands that talk with somebody.

use std::sync::Arc;

use clap::Args;

use super::{
    common::{self, ContextArgs, ModelArgs},
    draft_args::DraftArgs,
    learned_args::LearnedArgs,
    output::{note, warning},
};
use crate::{
    Context, Engine, EngineConfig, Error, Gguf, Result, Tokenizer,
    engine::MakeProposers,
    speculation::{
        SourceKind,
        learned::{Learned, Store, Subject, prepare_for},
    },
};

#[derive(Args, Debug)]
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

/// An engine and what belongs to it.
pub struct Opened {
    pub engine: Engine,
    pub gguf: Arc<Gguf>,
    /// Of the sources that draft, in their order.
    pub kinds: Vec<SourceKind>,
    pub keeper: Keeper,
}

/// Keeps what was learnt of costs and acceptance.
pub struct Keeper(Option<(Store, Subject)>);

impl Keeper {
    pub fn keep(&self, engine: &Engine) {
        if let Some((store, subject)) = &self.0
            && let Err(error) = store.keep(subject, &Learned::of(engine.controller()))
        {
            warning!("what was learnt is not kept: {error} (see --no-learn)");
        }
    }
}

impl EngineArgs {
    pub fn check(&self) -> Result<()> {
        self.context.check()?;
        self.draft.check()?;
        if self.draft.fixed().is_some() && self.draft.off_reason().is_none() {
            return Err(Error::Usage(
                "drafts of a fixed length are for single texts: here they are chosen for all texts together; --draft none turns them off"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Opens the model in a context for so many texts.
    pub fn open(&self, engine: EngineConfig) -> Result<Opened> {
        let gguf = self.model.open()?;
        let (tokenizer, model) = common::load(&gguf)?;
        let mut sources = self.draft.sources(&model)?;
        let mut config = self.context.config(&model)?;
        config.sequences = engine.texts + 1;
        config.extra_slots = sources.extra_slots();
        if self.learned.is_off() {
            config.gpu_cache = None;
        }
        config.placement.draft = sources.masks.first().map(|mask| mask.layers().clone());
        let device = &self.context.device;
        let basis = || device.basis(&model, &config, sources.promised);
        let (context, took) = common::open_context(&model, &config, &basis)?;
        note!("{}: {}; {took}", model.name, context.describe());
        if self.draft.off_reason().is_some() {
            let engine = Engine::new(context, Arc::new(tokenizer), engine);
            return Ok(Opened { engine, gguf, kinds: Vec::new(), keeper: Keeper(None) });
        }
        sources.complete(&context);
        let kinds = sources.kinds();
        let make: MakeProposers = Box::new(move || sources.for_another().proposers());
        self.drafting(context, tokenizer, engine, make).map(|(engine, keeper)| Opened {
            engine,
            gguf,
            kinds,
            keeper,
        })
    }

    fn drafting(
        &self,
        mut context: Context,
        tokenizer: Tokenizer,
        engine: EngineConfig,
        make: MakeProposers,
    ) -> Result<(Engine, Keeper)> {
        let memory = self.learned.store().map(|store| (store, Subject::new(&context, false)));
        let known = memory.as_ref().and_then(|(store, subject)| store.recall(subject));
        let mut controller = prepare_for(&mut context, &make(), known)?;
        let infos: Vec<_> = make().iter().map(|p| p.info(&context)).collect();
        crate::speculation::Policy::start(&mut controller, &infos);
        Ok((Engine::new(context, Arc::new(tokenizer), engine).drafting(make, controller), Keeper(memory)))
    }
}
