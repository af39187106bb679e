//! The flags that name a mask of layers: a file of masks, or the layers themselves.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::Args;

use super::{output::warning, sweep::Over};
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
    #[arg(long, value_name = "FILE", conflicts_with_all = ["skip_attn", "skip_mlp", "coarse", "experts"])]
    draft_skip: Option<PathBuf>,
    /// Which mask of the file, by name, or each [default: the first; for drafts all, and the best is found]
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
    /// Each token goes through its N best experts only, in all layers that have some
    #[arg(long, value_name = "N", value_parser = str::parse::<ExpertCount>)]
    experts: Option<ExpertCount>,
}

/// How many experts a token goes through under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpertCount {
    /// One, two, and so on, one mask for each.
    Each,
    Most(usize),
}

impl FromStr for ExpertCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "each" => Ok(ExpertCount::Each),
            _ => match text.parse() {
                Ok(n @ 1..=255) => Ok(ExpertCount::Most(n)),
                _ => Err("give 1 to 255, or each for one after the other".into()),
            },
        }
    }
}

/// A number of experts that leaves some out.
fn check_experts(model: &Model, n: usize) -> Result<usize> {
    match experts_used(model)? {
        used if n < used => Ok(n),
        used => Err(Error::Mask(format!(
            "--experts {n}: each token goes through {used} of this model's experts: give a smaller number"
        ))),
    }
}

/// How many experts a token goes through in a model that has some.
fn experts_used(model: &Model) -> Result<usize> {
    model
        .experts_used()
        .ok_or_else(|| Error::Mask("--experts: this model has no experts; leave it out".into()))
}

impl MaskArgs {
    /// The file of masks.
    pub fn file(&self) -> Option<&Path> {
        self.draft_skip.as_deref()
    }

    /// Whether any flag asks for a mask.
    pub fn given(&self) -> bool {
        self.draft_skip.is_some()
            || self.experts.is_some()
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
                Some(_) if self.all_of_file() => skips.masks,
                Some(name) => vec![skips.pick(Some(name))?.clone()],
                None => skips.masks,
            });
        }
        if !self.given() {
            return Ok(Vec::new());
        }
        let experts = match self.experts {
            None => None,
            Some(ExpertCount::Most(n)) => Some(check_experts(model, n)?),
            Some(ExpertCount::Each) => {
                return Err(Error::Usage(
                    "--experts each: only `spec-run perplexity` goes through the numbers one by one; give one".into(),
                ));
            }
        };
        let mask = self.spelled_out(n_layer, None, experts)?;
        Ok(vec![NamedMask::new(mask.to_string(), mask)])
    }

    /// The mask of the lists, in which `each` is the one `layer`.
    fn spelled_out(&self, n_layer: usize, layer: Option<usize>, experts: Option<usize>) -> Result<RunLayers> {
        let layers = |flag, list: &Option<LayerList>| match (list, layer) {
            (None, _) => Ok(Vec::new()),
            (Some(list), Some(layer)) if list.is_each() => Ok(vec![layer]),
            (Some(list), _) => list.resolve(flag, n_layer),
        };
        let coarse = layers("--coarse", &self.coarse)?.into_iter();
        let mask = coarse.fold(RunLayers::all(n_layer), |mask, l| mask.coarse_attn(l).coarse_mlp(l));
        let mask = (0..n_layer).fold(mask, |mask, l| match experts {
            Some(n) => mask.experts(l, n),
            None => mask,
        });
        let mask = layers("--skip-attn", &self.skip_attn)?.into_iter().fold(mask, RunLayers::skip_attn);
        Ok(layers("--skip-mlp", &self.skip_mlp)?.into_iter().fold(mask, RunLayers::skip_mlp))
    }

    /// Whether several masks are asked for: all of a file, or one for each layer.
    pub fn is_sweep(&self) -> bool {
        self.all_of_file() || !self.swept().is_empty() || self.experts == Some(ExpertCount::Each)
    }

    /// The masks of a sweep; what is listed beside `each` holds in all of them. `pairs`: of the two lists of what is
    /// skipped, each layer of one with each of the other.
    pub fn sweep(&self, model: &Model, pairs: bool) -> Result<Over> {
        if pairs {
            return self.pairs(model);
        }
        if self.all_of_file() {
            return Ok(Over::named(self.family(model)?));
        }
        let n_layer = model.plan.dims.n_layer;
        let experts = match self.experts {
            Some(ExpertCount::Each) if self.swept().is_empty() => {
                // What a token does not go through in any case needs no mask.
                let masks = (1..experts_used(model)?)
                    .map(|n| Ok((vec![n.into()], self.spelled_out(n_layer, None, Some(n))?)));
                let masks = masks.collect::<Result<_>>()?;
                return Ok(Over { name: "experts", masks });
            }
            Some(ExpertCount::Each) => {
                return Err(Error::Usage("--experts each: one list that says each is enough".into()));
            }
            Some(ExpertCount::Most(n)) => Some(check_experts(model, n)?),
            None => None,
        };
        let name = match self.swept()[..] {
            [one] => one,
            _ => "layer",
        };
        let masks = (0..n_layer)
            .map(|layer| Ok((vec![layer.into()], self.spelled_out(n_layer, Some(layer), experts)?)));
        Ok(Over { name, masks: masks.collect::<Result<_>>()? })
    }

    fn pairs(&self, model: &Model) -> Result<Over> {
        let n_layer = model.plan.dims.n_layer;
        let layers = |flag, list: &Option<LayerList>| match list {
            Some(list) if list.is_each() => Ok((0..n_layer).collect()),
            Some(list) => list.resolve(flag, n_layer),
            None => Ok(Vec::new()),
        };
        let (attns, mlps) = (layers("--skip-attn", &self.skip_attn)?, layers("--skip-mlp", &self.skip_mlp)?);
        let pair = |attn: usize, mlp: usize| {
            (vec![attn.into(), mlp.into()], RunLayers::all(n_layer).skip_attn(attn).skip_mlp(mlp))
        };
        let masks = attns.iter().flat_map(|&attn| mlps.iter().map(move |&mlp| pair(attn, mlp))).collect();
        Ok(Over { name: "pair", masks })
    }

    fn all_of_file(&self) -> bool {
        self.mask.as_deref() == Some("each")
    }

    /// The lists that go through the layers.
    fn swept(&self) -> Vec<&'static str> {
        let lists = [("attn", &self.skip_attn), ("mlp", &self.skip_mlp), ("coarse", &self.coarse)];
        let each = lists.into_iter().filter(|(_, list)| list.as_ref().is_some_and(LayerList::is_each));
        each.map(|(name, _)| name).collect()
    }
}
