//! The flags of a draft model: which it is, and what it has of the machine.

use std::{path::PathBuf, sync::Arc};

use clap::Args;

use super::{
    common::{self, ContextArgs, ModelArgs},
    device_args::{GpuLayers, parse_layers},
    output::note,
};
use crate::{
    Context, ContextConfig, Error, Gguf, Model, Result, Tokenizer,
    context::{Device, KvType},
    placement::PlacementRequest,
    speculation::{ModelSource, TrainedSource, candidates::Drafters},
};

#[derive(Args, Clone, Debug)]
pub struct DraftModelArgs {
    /// -md: draft with this model too, which needs the same vocabulary, or with this EAGLE-3, DFlash or DSpark head
    #[arg(long, alias = "model-draft", value_name = "FILE")]
    spec_draft_model: Option<PathBuf>,
    /// -hfd: the same with a model of the Hugging Face hub
    #[cfg(feature = "download")]
    #[arg(
        long,
        alias = "hf-repo-draft",
        value_name = "USER/NAME[:QUANT]",
        conflicts_with = "spec_draft_model"
    )]
    spec_draft_hf: Option<String>,
    /// -ngld: how many of the draft model's layers go to the GPU [default: auto, before the model's own]
    #[arg(long, aliases = ["gpu-layers-draft", "n-gpu-layers-draft"], value_name = "N")]
    #[arg(value_parser = parse_layers, allow_negative_numbers = true)]
    spec_draft_ngl: Option<GpuLayers>,
    /// -devd: the device of the draft model [default: the model's]
    #[arg(long, alias = "device-draft", value_name = "NAME")]
    spec_draft_device: Option<Device>,
    /// -ctkd: how the draft model's keys are stored [default: as the model's]
    #[arg(long, alias = "cache-type-k-draft", value_name = "TYPE")]
    spec_draft_type_k: Option<KvType>,
    /// -ctvd: how its values are stored [default: as the model's]
    #[arg(long, alias = "cache-type-v-draft", value_name = "TYPE")]
    spec_draft_type_v: Option<KvType>,
}

impl DraftModelArgs {
    /// Whether a draft model was named.
    pub fn is_given(&self) -> bool {
        #[cfg(feature = "download")]
        if self.spec_draft_hf.is_some() {
            return true;
        }
        self.spec_draft_model.is_some()
    }

    /// The draft model in a context of its own, beside that of a model with this configuration; it becomes one of what drafts. It
    /// is opened before the model: a little of a GPU's memory is worth more to it.
    pub fn open(
        &self,
        models: &ModelArgs,
        context: &ContextArgs,
        (model, vocabulary): (&Model, &Tokenizer),
        target: &ContextConfig,
        wants_head: bool,
        drafters: &mut Drafters,
    ) -> Result<()> {
        let Some(path) = self.path(models, wants_head)? else { return Ok(()) };
        let gguf = Arc::new(Gguf::open(&path)?);
        if Model::is_head(&gguf)? {
            let open = |head: &Arc<Model>| {
                let config = ContextConfig { mtp: true, ..self.config(context, head, target)? };
                opened(head, &config)
            };
            drafters.trained = Some(TrainedSource::open(&gguf, model, open)?);
            return Ok(());
        }
        let (tokenizer, draft) = common::load(&gguf, &context.rope)?;
        let open = || opened(&draft, &self.config(context, &draft, target)?);
        drafters.model = Some(ModelSource::open(&draft, &tokenizer, vocabulary, open)?);
        Ok(())
    }

    /// What a draft model's context is to be.
    fn config(&self, context: &ContextArgs, draft: &Model, target: &ContextConfig) -> Result<ContextConfig> {
        let placement = PlacementRequest {
            gpu_layers: match self.spec_draft_ngl {
                Some(GpuLayers::Last(layers)) => Some(layers),
                Some(GpuLayers::Auto) | None => None,
            },
            ..PlacementRequest::default()
        };
        let config = context.placed(target.n_ctx.min(draft.n_ctx_train), placement)?;
        Ok(ContextConfig {
            device: self.spec_draft_device.clone().unwrap_or(config.device),
            key_type: self.spec_draft_type_k.unwrap_or(config.key_type),
            value_type: self.spec_draft_type_v.unwrap_or(config.value_type),
            sequences: target.sequences,
            gpu_cache: target.gpu_cache.clone(),
            ..config
        })
    }

    /// Its file, fetched if it must be. Where a head is wanted and none was named, it is that of the model's repository.
    fn path(&self, models: &ModelArgs, wants_head: bool) -> Result<Option<PathBuf>> {
        #[cfg(feature = "download")]
        if self.spec_draft_hf.is_some() || wants_head && self.spec_draft_model.is_none() {
            let found = models.fetch_draft(self.spec_draft_hf.as_deref())?;
            return found.map(Some).ok_or_else(|| unnamed(A_HEAD));
        }
        #[cfg(not(feature = "download"))]
        if wants_head && self.spec_draft_model.is_none() {
            let _ = models;
            return Err(unnamed(A_HEAD));
        }
        Ok(self.spec_draft_model.clone())
    }
}

/// What drafts by such a file is a head that others trained.
const A_HEAD: &str = "draft-eagle3, draft-dflash or draft-dspark";

/// The error for who asks for a draft model and names none.
pub fn unnamed(kind: &str) -> Error {
    Error::Usage(format!("--spec-type {kind}: name the draft model with --spec-draft-model FILE (-md)"))
}

fn opened(draft: &Arc<Model>, config: &ContextConfig) -> Result<Context> {
    let (opened, took) = common::open_context(draft, config, &Default::default)?;
    note!("draft model {}: {}; {took}", draft.name, opened.describe());
    Ok(opened)
}
