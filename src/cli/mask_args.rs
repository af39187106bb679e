//! The flags that name a mask of layers: a file of masks, or the layers themselves.

use std::path::PathBuf;

use clap::Args;

use super::output::warning;
use crate::{
    Context, Error, Model, Result, RunLayers,
    mask::{
        LayerList,
        skips::{NamedMask, Skips},
    },
};

/// Says so if a mask's coarse sublayers will run in full.
pub fn warn_of_coarse(context: &Context, mask: &RunLayers) {
    if mask.has_coarse() && !context.has_planes() {
        warning!(
            "the mask asks for coarse sublayers; these weights lie in one piece, so they run in full (see --planes)"
        );
    }
}

#[derive(Args, Clone, Debug)]
pub struct MaskArgs {
    /// A file of masks: skips.json, SWIFT's skip_layers.json, or llama.cpp PR 3565's array
    #[arg(long, value_name = "FILE", conflicts_with_all = ["skip_attn", "skip_mlp", "coarse"])]
    draft_skip: Option<PathBuf>,
    /// Which mask of the file, by name [default: the first; for drafts all, and the best is found]
    #[arg(long, value_name = "NAME", requires = "draft_skip")]
    mask: Option<String>,
    /// Layers whose attention is skipped, from 0: 3,5-8
    #[arg(long, value_name = "LAYERS")]
    skip_attn: Option<LayerList>,
    /// Layers whose MLP is skipped
    #[arg(long, value_name = "LAYERS")]
    skip_mlp: Option<LayerList>,
    /// Layers that run from the high bits of their weights alone, or all; what is skipped stays skipped
    #[arg(long, value_name = "LAYERS")]
    coarse: Option<LayerList>,
}

impl MaskArgs {
    /// Whether any flag asks for a mask.
    pub fn given(&self) -> bool {
        self.draft_skip.is_some()
            || [&self.skip_attn, &self.skip_mlp, &self.coarse].into_iter().any(Option::is_some)
    }

    /// The mask that the flags ask for; `None` if there are none.
    pub fn read(&self, model: &Model) -> Result<Option<RunLayers>> {
        Ok(self.family(model)?.into_iter().next().map(|best| best.mask))
    }

    /// All masks of the file, best first, or the one that the flags name or spell out.
    pub fn family(&self, model: &Model) -> Result<Vec<NamedMask>> {
        let n_layer = model.plan.dims.n_layer;
        if let Some(path) = &self.draft_skip {
            let skips = Skips::read(path, n_layer)?;
            skips.check_model(&model.id())?.iter().for_each(|w| warning!("{w}"));
            return Ok(match &self.mask {
                Some(name) => vec![skips.pick(Some(name))?.clone()],
                None => skips.masks,
            });
        }
        if !self.given() {
            return Ok(Vec::new());
        }
        let layers = |flag, list: &Option<LayerList>| match list {
            Some(list) => list.resolve(flag, n_layer),
            None => Ok(Vec::new()),
        };
        let coarse = layers("--coarse", &self.coarse)?.into_iter();
        let mask = coarse.fold(RunLayers::all(n_layer), |mask, l| mask.coarse_attn(l).coarse_mlp(l));
        let mask = layers("--skip-attn", &self.skip_attn)?.into_iter().fold(mask, RunLayers::skip_attn);
        let mask = layers("--skip-mlp", &self.skip_mlp)?.into_iter().fold(mask, RunLayers::skip_mlp);
        Ok(vec![NamedMask::new(mask.to_string(), mask)])
    }

    /// Whether attention and whether MLPs are to be skipped layer by layer; `None` if neither is.
    pub fn sweep(&self) -> Result<Option<(bool, bool)>> {
        let each = |list: &Option<LayerList>| list.as_ref().is_some_and(LayerList::is_each);
        let (attn, mlp) = (each(&self.skip_attn), each(&self.skip_mlp));
        let listed = (self.skip_attn.is_some() && !attn) || (self.skip_mlp.is_some() && !mlp);
        match (attn || mlp, listed) {
            (false, _) => Ok(None),
            (true, false) => Ok(Some((attn, mlp))),
            (true, true) => Err(Error::Usage(
                "each goes through the layers of an otherwise full model: no other layers can be skipped with it"
                    .into(),
            )),
        }
    }
}
