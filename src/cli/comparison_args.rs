//! What `spec-run perplexity` scores beside the full model: a mask, several of them, or the head for one token more.

use std::{path::Path, str::FromStr};

use clap::Args;

use super::{draft_args, mask_args::MaskArgs, sweep::Over};
use crate::{Error, Model, Result, RunLayers, mask::skips::NamedMask};

#[derive(Args, Clone, Debug)]
pub struct ComparisonArgs {
    /// each in place of layers or of a mask's name: a table with each layer by itself, or with each mask of the file
    #[command(flatten)]
    mask: MaskArgs,
    /// Each layer of --skip-attn with each of --skip-mlp, two sublayers a mask
    #[arg(long, requires_all = ["skip_attn", "skip_mlp"], conflicts_with_all = ["coarse", "experts"])]
    pairs: bool,
    /// Run only the first E layers; several (3,5,8), or each: a table of these exits
    #[arg(long, value_name = "E,..", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["draft_skip", "skip_attn", "skip_mlp", "coarse", "experts"])]
    exit: Vec<Exit>,
    /// The head that some models have for one token more (mtp): how often it agrees with the model
    #[arg(long = "spec-type", visible_alias = "draft", value_name = "KIND", value_parser = parse_draft)]
    #[arg(conflicts_with_all = ["draft_skip", "skip_attn", "skip_mlp", "coarse", "experts", "exit"])]
    draft: Option<Mtp>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exit {
    Each,
    After(usize),
}

/// The only kind that is told here: masks and exits have flags of their own, and a lookup reads no layer.
#[derive(Clone, Copy, Debug)]
pub struct Mtp;

fn parse_draft(text: &str) -> Result<Mtp, String> {
    match text {
        "mtp" | "draft-mtp" => Ok(Mtp),
        _ => Err("mtp; for masks there are --draft-skip and --skip-..., for exits --exit".into()),
    }
}

impl FromStr for Exit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "each" => Ok(Exit::Each),
            number => {
                number.parse().map(Exit::After).map_err(|_| "give numbers of layers, or each".to_string())
            }
        }
    }
}

/// What runs beside the full model.
pub enum Masks {
    None,
    One(Box<NamedMask>),
    Several(Over),
    /// The head for one token more.
    Mtp,
}

impl Masks {
    pub fn all(&self) -> Vec<&RunLayers> {
        match self {
            Masks::None | Masks::Mtp => Vec::new(),
            Masks::One(one) => vec![&one.mask],
            Masks::Several(over) => over.masks.iter().map(|(_, mask)| mask).collect(),
        }
    }

    /// To tell one run from another.
    pub fn spelled(&self) -> String {
        match self {
            Masks::None => String::new(),
            Masks::Mtp => "mtp".into(),
            Masks::One(one) => one.mask.to_string(),
            Masks::Several(over) => over.spelled(),
        }
    }
}

impl ComparisonArgs {
    /// The file of masks.
    pub fn file(&self) -> Option<&Path> {
        self.mask.file()
    }

    /// What can be refused before a file is opened.
    pub fn check(&self) -> Result<()> {
        match self.exit.len() > 1 && self.exit.contains(&Exit::Each) {
            true => Err(Error::Usage("--exit: each stands alone".into())),
            false => Ok(()),
        }
    }

    /// Whether several masks are asked for.
    pub fn is_sweep(&self) -> bool {
        self.exit.len() > 1 || self.exit.contains(&Exit::Each) || self.masks_sweep()
    }

    /// Whether the flags of masks ask for several.
    fn masks_sweep(&self) -> bool {
        self.pairs || self.mask.is_sweep()
    }

    /// What the flags ask for.
    pub fn read(&self, model: &Model) -> Result<Masks> {
        let n_layer = model.plan.dims.n_layer;
        if self.draft.is_some() {
            return match model.has_mtp() {
                true => Ok(Masks::Mtp),
                false => Err(draft_args::no_head(model)),
            };
        }
        if self.masks_sweep() {
            return Ok(Masks::Several(self.mask.sweep(model, self.pairs)?));
        }
        if self.exit.is_empty() {
            let first = self.mask.family(model)?.into_iter().next();
            return Ok(first.map_or(Masks::None, |one| Masks::One(one.into())));
        }
        let mut exits = Vec::new();
        for exit in &self.exit {
            match *exit {
                Exit::Each if n_layer == 1 => {
                    return Err(Error::Usage("--exit each: a model of one layer has no exits".into()));
                }
                Exit::Each => return Ok(Masks::Several(Over::exits(n_layer, 1..n_layer))),
                Exit::After(layers) if (1..=n_layer).contains(&layers) => exits.push(layers),
                Exit::After(layers) => {
                    return Err(Error::Usage(format!(
                        "--exit {layers}: the model has {n_layer} layers, give 1 to {n_layer}"
                    )));
                }
            }
        }
        Ok(match exits[..] {
            [layers] => {
                Masks::One(NamedMask::new(format!("exit {layers}"), RunLayers::exit(n_layer, layers)).into())
            }
            _ => Masks::Several(Over::exits(n_layer, exits)),
        })
    }
}
