//! The flags that name a mask of layers: a file of masks, or the layers themselves.

use std::path::PathBuf;

use clap::Args;

use crate::{
    Context, Model, Result, RunLayers,
    model::{layers::LayerList, skips::Skips},
};

/// Says so if a mask's coarse sublayers will run in full.
pub fn warn_of_coarse(context: &Context, mask: &RunLayers) {
    if mask.has_coarse() && !context.has_planes() {
        eprintln!(
            "warning: the mask asks for coarse sublayers; these weights lie in one piece, so they run in full (see --planes)"
        );
    }
}

#[derive(Args, Clone, Debug)]
pub struct MaskArgs {
    /// A file of masks: skips.json, SWIFT's skip_layers.json, or llama.cpp PR 3565's array
    #[arg(long, value_name = "FILE", conflicts_with_all = ["skip_attn", "skip_mlp"])]
    draft_skip: Option<PathBuf>,
    /// Which mask of the file, by name [default: the first]
    #[arg(long, value_name = "NAME", requires = "draft_skip")]
    mask: Option<String>,
    /// Layers whose attention is skipped, from 0: 3,5-8
    #[arg(long, value_name = "LAYERS")]
    skip_attn: Option<LayerList>,
    /// Layers whose MLP is skipped
    #[arg(long, value_name = "LAYERS")]
    skip_mlp: Option<LayerList>,
}

impl MaskArgs {
    /// The mask that the flags ask for; `None` if there are none.
    pub fn read(&self, model: &Model) -> Result<Option<RunLayers>> {
        let n_layer = model.plan.dims.n_layer;
        if let Some(path) = &self.draft_skip {
            let skips = Skips::read(path, n_layer)?;
            skips.check_model(&model.id())?.iter().for_each(|w| eprintln!("warning: {w}"));
            let named = skips.pick(self.mask.as_deref())?;
            return Ok(Some(named.mask.clone()));
        }
        if self.skip_attn.is_none() && self.skip_mlp.is_none() {
            return Ok(None);
        }
        let layers = |flag, list: &Option<LayerList>| match list {
            Some(list) => list.resolve(flag, n_layer),
            None => Ok(Vec::new()),
        };
        let mask = RunLayers::all(n_layer);
        let mask = layers("--skip-attn", &self.skip_attn)?.into_iter().fold(mask, RunLayers::skip_attn);
        let mask = layers("--skip-mlp", &self.skip_mlp)?.into_iter().fold(mask, RunLayers::skip_mlp);
        Ok(Some(mask))
    }
}
