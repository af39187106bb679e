//! The flags of a draft model: which it is, and what it has of the machine.

use std::path::PathBuf;

use clap::Args;

use super::{
    common::{self, ContextArgs, ModelArgs},
    device_args::{GpuLayers, parse_layers},
    output::note,
};
use crate::{
    ContextConfig, Gguf, Result, Tokenizer,
    context::{Device, KvType},
    placement::PlacementRequest,
    speculation::ModelSource,
};

#[derive(Args, Clone, Debug)]
pub struct DraftModelArgs {
    /// -md: draft with this model too; it needs the same vocabulary
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

    /// The draft model in a context of its own, beside that of a model with this vocabulary and configuration; `None` if none was
    /// named. It is opened before the model: a little of a GPU's memory is worth more to it.
    pub fn open(
        &self,
        models: &ModelArgs,
        context: &ContextArgs,
        vocabulary: &Tokenizer,
        beside: &ContextConfig,
    ) -> Result<Option<ModelSource>> {
        let Some(path) = self.path(models)? else { return Ok(None) };
        let (tokenizer, model) = common::load(&Gguf::open(&path)?.into())?;
        let placement = PlacementRequest {
            gpu_layers: match self.spec_draft_ngl {
                Some(GpuLayers::Last(layers)) => Some(layers),
                Some(GpuLayers::Auto) | None => None,
            },
            ..PlacementRequest::default()
        };
        let config = context.placed(beside.n_ctx.min(model.n_ctx_train), placement)?;
        let config = ContextConfig {
            device: self.spec_draft_device.clone().unwrap_or(config.device),
            key_type: self.spec_draft_type_k.unwrap_or(config.key_type),
            value_type: self.spec_draft_type_v.unwrap_or(config.value_type),
            sequences: beside.sequences,
            gpu_cache: beside.gpu_cache.clone(),
            ..config
        };
        let open = || {
            let (opened, took) = common::open_context(&model, &config, &Default::default)?;
            note!("draft model {}: {}; {took}", model.name, opened.describe());
            Ok(opened)
        };
        ModelSource::open(&model, &tokenizer, vocabulary, open).map(Some)
    }

    /// Its file, fetched if it must be.
    fn path(&self, models: &ModelArgs) -> Result<Option<PathBuf>> {
        #[cfg(feature = "download")]
        if let Some(repository) = &self.spec_draft_hf {
            return models.fetch_other(repository).map(Some);
        }
        #[cfg(not(feature = "download"))]
        let _ = models;
        Ok(self.spec_draft_model.clone())
    }
}
