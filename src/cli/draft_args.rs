//! The flags of speculation, and what they mean: which sources draft, and who decides.

use std::{io::IsTerminal, path::PathBuf};

use clap::{Args, builder::PossibleValuesParser};

use super::{
    colors,
    common::{ContextArgs, ModelArgs},
    draft_model_args::{self, DraftModelArgs},
    learned_args::LearnedArgs,
    llama_flags::NO_SUCH_DRAFT,
    mask_args::{MaskArgs, warn_of_coarse},
    output::{detail, warning},
};
use crate::{
    Context, ContextConfig, Error, Model, Result, Tokenizer, head,
    mask::skips::NamedMask,
    speculation::{
        ExitsProposer, Fixed, HeadSource, MaskProposer, Proposer,
        candidates::{self, Drafters},
    },
};

/// Beyond this a draft is a mistake: the flag of another program, or a number too many.
const LONGEST_DRAFT: usize = 1024;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Speculation")]
pub struct DraftArgs {
    #[command(flatten)]
    mask: MaskArgs,
    /// What drafts, one or several of mask, exit, ngram, head (made by `fit`), mtp (the head that some models have for it),
    /// model (a draft model); auto: whatever was named, or lookups, the model's head and its high bits; none: plain decoding
    #[arg(
        long = "spec-type",
        visible_alias = "draft",
        value_name = "KINDS",
        value_delimiter = ',',
        default_value = "auto",
        value_parser = parse_kind
    )]
    draft: Vec<DraftKind>,
    /// Draft with the first E layers and the head. Several (4,6): with each of them, and for each token with the first
    /// that is sure of it; auto: only the latter, of three that suit the model
    #[arg(long, value_name = "E,..", value_delimiter = ',', value_parser = parse_exit)]
    draft_exit: Vec<Exit>,
    /// Draft with this head, which `fit` has made [default: MODEL.head.gguf, where it lies beside the model]
    #[arg(long, value_name = "FILE")]
    head: Option<PathBuf>,
    #[command(flatten)]
    model: DraftModelArgs,
    /// Draft whenever that is possible, at most N tokens; 0 is plain decoding [default: decided round by round]
    #[arg(long = "spec-draft-n-max", visible_aliases = ["draft-max", "draft-n"], value_name = "N")]
    draft_max: Option<usize>,
    /// Draft whenever that is possible, and at least N tokens
    #[arg(long = "spec-draft-n-min", visible_aliases = ["draft-min", "draft-n-min"], value_name = "N")]
    draft_min: Option<usize>,
    /// Draft whenever that is possible, up to the first token less likely than P by the draft itself
    #[arg(long = "spec-draft-p-min", visible_alias = "draft-p-min", value_name = "P")]
    draft_p_min: Option<f32>,
    /// Verify from the first layer on, also where the draft has run the first layers in full
    #[arg(long)]
    no_prefix_reuse: bool,
    /// Draft with the whole vocabulary, also where the tokens that are frequent in the text would do
    #[arg(long)]
    no_shortlist: bool,
    /// Show accepted draft tokens in colour, the model's green, looked up ones blue: on, off, or auto at a terminal
    /// alone; NO_COLOR in the environment is off [default: off; on, where no value follows]
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "off", default_missing_value = "on", hide_default_value = true)]
    #[arg(value_parser = PossibleValuesParser::new(["on", "off", "auto"]))]
    color: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DraftKind {
    Auto,
    Mask,
    Exit,
    Ngram,
    Head,
    Model,
    Trained,
    Mtp,
    None,
}

/// Where a draft may leave the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Auto,
    After(usize),
}

fn parse_exit(text: &str) -> Result<Exit, String> {
    match text {
        "auto" => Ok(Exit::Auto),
        _ => text.parse().map(Exit::After).map_err(|_| "a number of layers, or auto".into()),
    }
}

fn parse_kind(text: &str) -> Result<DraftKind, String> {
    Ok(match text {
        "auto" => DraftKind::Auto,
        "mask" => DraftKind::Mask,
        "exit" => DraftKind::Exit,
        "ngram" => DraftKind::Ngram,
        "head" => DraftKind::Head,
        "model" | "draft-simple" => DraftKind::Model,
        "eagle3" | "draft-eagle3" | "dflash" | "draft-dflash" | "dspark" | "draft-dspark" => {
            DraftKind::Trained
        }
        "mtp" | "draft-mtp" => DraftKind::Mtp,
        "none" => DraftKind::None,
        // llama.cpp's lookups, which differ in how they look.
        "ngram-simple" | "ngram-map-k" | "ngram-map-k4v" | "ngram-mod" | "ngram-cache" => DraftKind::Ngram,
        other if other.starts_with("draft-") => return Err(NO_SUCH_DRAFT.into()),
        number if number.parse::<usize>().is_ok() => {
            return Err(format!(
                "it names what drafts; for the length of drafts there is --spec-draft-n-max or --draft-max {number}"
            ));
        }
        _ => {
            return Err(
                "auto, none, or one or several of mask, exit, ngram, head, model, eagle3, dflash, dspark and mtp"
                    .into(),
            );
        }
    })
}

/// What drafts, before there is a context: the costs of masks are measured, and repetitions need room in the cache.
#[derive(Default)]
pub struct Sources {
    pub drafters: Drafters,
    /// The file of a head, and whether it was named.
    head_file: Option<(PathBuf, bool)>,
    /// What a grammar leaves no choice about.
    pub forced: Option<Box<dyn Proposer>>,
    /// How often the first mask is right, by its file.
    pub promised: Option<f64>,
    /// Kinds of which nothing was named.
    open: Vec<DraftKind>,
    keep_nothing: bool,
    whole_vocabulary: bool,
}

impl Sources {
    /// Adds what may suit the model, where nothing was named; the policy finds out what does.
    pub fn complete(&mut self, context: &Context) -> Result<()> {
        let drafters = &mut self.drafters;
        drafters.masks.iter().for_each(|p| warn_of_coarse(context, p.layers()));
        if drafters.mtp && !context.has_mtp() {
            detail!(
                "the model's head for one token more is left out: it runs where all of the model is, and that is divided here"
            );
            drafters.mtp = false;
        }
        // One pass cannot leave rows for both heads: a fitted one drafts in place of the model's own where it was named.
        if let Some((file, is_named)) =
            self.head_file.take().filter(|(_, is_named)| *is_named || !drafters.mtp)
        {
            match HeadSource::open(&file, context) {
                Ok(head) => drafters.head = Some(head),
                Err(error) if is_named => return Err(error),
                Err(error) => warning!("drafts go without the head beside the model: {error}"),
            }
            drafters.mtp &= drafters.head.is_none();
        }
        let n_layer = context.model().plan.dims.n_layer;
        if self.open.contains(&DraftKind::Auto) {
            drafters.masks.extend(candidates::masks_by_default(context));
        }
        if self.open.contains(&DraftKind::Mask) {
            drafters.masks.extend(candidates::masks(
                n_layer,
                context.has_planes(),
                context.model().experts_used(),
            ));
        }
        if self.open.contains(&DraftKind::Exit) {
            drafters.masks.extend(candidates::exits(n_layer));
        }
        if self.keep_nothing {
            self.drafters = std::mem::take(&mut self.drafters).keeping_nothing();
        }
        Ok(())
    }

    /// A context in which they can draft. What is where does not depend on whether anything does: plain text is to be the
    /// same, and GPU and CPU round differently.
    pub fn context(
        &self,
        context: &ContextArgs,
        learned: &LearnedArgs,
        model: &Model,
    ) -> Result<ContextConfig> {
        let mut config = context.config(model)?;
        // K/V slots beyond the model's own.
        config.extra_slots =
            self.drafters.masks.iter().map(|p| p.layers().extra_repetitions()).max().unwrap_or(0);
        config.mtp = self.drafters.mtp;
        config.shortlists = !self.whole_vocabulary;
        config.placement.draft = self.drafters.masks.first().map(|mask| mask.layers().clone());
        if learned.is_off() && !context.device.names_cache() {
            config.gpu_cache = None;
        }
        Ok(config)
    }

    /// Opens the draft model, if one was named; before the model itself takes what there is of a GPU.
    pub fn open_draft_model(
        &mut self,
        draft: &DraftArgs,
        models: &ModelArgs,
        context: &ContextArgs,
        model: (&Model, &Tokenizer),
        config: &ContextConfig,
    ) -> Result<()> {
        if draft.off_reason().is_some() {
            return Ok(());
        }
        let wants_head = draft.has(DraftKind::Trained);
        draft.model.open(models, context, model, config, wants_head, &mut self.drafters)?;
        if wants_head && self.drafters.trained.is_none() {
            return Err(Error::Usage(
                "--spec-type draft-eagle3, draft-dflash or draft-dspark: the draft model is no such head"
                    .into(),
            ));
        }
        if self.drafters.trained.is_some() {
            // One pass cannot leave rows for two heads.
            if matches!(self.head_file, Some((_, true))) || draft.has(DraftKind::Mtp) {
                return Err(Error::Usage(
                    "one head drafts at a time: the draft model is one too, so leave out --head and mtp"
                        .into(),
                ));
            }
            (self.head_file, self.drafters.mtp) = (None, false);
        }
        Ok(())
    }

    /// What a grammar forces costs nothing, so it comes first.
    pub fn proposers(self) -> Vec<Box<dyn Proposer>> {
        self.forced.into_iter().chain(self.drafters.proposers()).collect()
    }
}

impl DraftArgs {
    /// Whether accepted draft tokens are shown in colour.
    pub fn is_colored(&self) -> bool {
        let wanted = match self.color.as_str() {
            "auto" => std::io::stdout().is_terminal(),
            other => other == "on",
        };
        wanted && colors::allowed()
    }

    /// What can be refused before a file is opened.
    pub fn check(&self) -> Result<()> {
        if self.draft.len() > 1 && (self.has(DraftKind::Auto) || self.has(DraftKind::None)) {
            return Err(Error::Usage("--draft: auto and none stand alone".into()));
        }
        for (flag, n) in [("--spec-draft-n-max", self.draft_max), ("--spec-draft-n-min", self.draft_min)] {
            if n.is_some_and(|n| n > LONGEST_DRAFT) {
                let n = n.unwrap_or_default();
                return Err(Error::Usage(format!(
                    "{flag} {n}: at most {LONGEST_DRAFT} tokens; 2 to 16 make sense"
                )));
            }
        }
        let fixed = self.fixed().unwrap_or_default();
        if fixed.max > 0 && fixed.min > fixed.max {
            return Err(Error::Usage(format!(
                "--spec-draft-n-min {} is more than --spec-draft-n-max {}",
                fixed.min, fixed.max
            )));
        }
        if !(0.0..=1.0).contains(&fixed.p_min) {
            return Err(Error::Usage(format!("--spec-draft-p-min {}: a probability, 0 to 1", fixed.p_min)));
        }
        Ok(())
    }

    /// Why nothing drafts, if the flags say so.
    pub fn off_reason(&self) -> Option<&'static str> {
        match self.draft_max {
            _ if self.has(DraftKind::None) => Some("--draft none asks for plain decoding"),
            Some(0) => Some("--draft-max 0 asks for plain decoding"),
            _ => None,
        }
    }

    /// Fixed numbers, where any is given.
    pub fn fixed(&self) -> Option<Fixed> {
        let Self { draft_max, draft_min, draft_p_min, .. } = *self;
        if draft_max.is_none() && draft_min.is_none() && draft_p_min.is_none() {
            return None;
        }
        let Fixed { max, min, p_min } = Fixed::default();
        let min = draft_min.unwrap_or(min);
        Some(Fixed { max: draft_max.unwrap_or(max.max(min)), min, p_min: draft_p_min.unwrap_or(p_min) })
    }

    fn has(&self, kind: DraftKind) -> bool {
        self.draft.contains(&kind)
    }

    /// The exits that were named.
    fn exits(&self, n_layer: usize) -> Result<Vec<usize>> {
        let mut exits = Vec::new();
        for exit in &self.draft_exit {
            match *exit {
                Exit::Auto => exits.extend(candidates::exits_to_choose_from(n_layer)),
                Exit::After(layers) if (1..n_layer).contains(&layers) => exits.push(layers),
                Exit::After(layers) => {
                    return Err(Error::Mask(format!(
                        "--draft-exit {layers}: the model has {n_layer} layers, so 1 to {} can draft for it",
                        n_layer.saturating_sub(1)
                    )));
                }
            }
        }
        exits.sort_unstable();
        exits.dedup();
        Ok(exits)
    }

    /// What was asked for; [`Sources::complete`] adds the rest once there is a context.
    pub fn sources(&self, model: &Model) -> Result<Sources> {
        let n_layer = model.plan.dims.n_layer;
        let auto = self.has(DraftKind::Auto);
        let family = self.mask.family(model)?;
        let promised = family.first().and_then(|best| best.agreement.or(best.overlap));
        let mut masks: Vec<MaskProposer> = family.into_iter().map(proposer).collect();
        let exits = self.exits(n_layer)?;
        if !self.draft_exit.contains(&Exit::Auto) || exits.len() == 1 {
            masks.extend(exits.iter().map(|&layers| MaskProposer::exit(n_layer, layers)));
        }
        let exits = (exits.len() > 1).then(|| ExitsProposer::new(n_layer, exits));
        let named = !masks.is_empty() || exits.is_some();
        let mut open = if auto && !named { vec![DraftKind::Auto] } else { Vec::new() };
        for (kind, given) in
            [(DraftKind::Mask, self.mask.given()), (DraftKind::Exit, !self.draft_exit.is_empty())]
        {
            if self.has(kind) && !given {
                open.push(kind);
            }
        }
        // Somebody who fixes the numbers for a mask wants to see that mask. Else these may also guess for its steps.
        let guides = auto && !((named || self.model.is_given()) && self.fixed().is_some());
        let ngram = self.has(DraftKind::Ngram) || guides;
        if self.has(DraftKind::Mtp) && !model.has_mtp() {
            return Err(no_head(model));
        }
        if self.has(DraftKind::Model) && !self.model.is_given() {
            return Err(draft_model_args::unnamed("model"));
        }
        let default_head = || head::find_default(model);
        let head_file = match &self.head {
            Some(file) => Some((file.clone(), true)),
            None if self.has(DraftKind::Head) => {
                Some((default_head().ok_or_else(|| no_fitted_head(model))?, true))
            }
            None if guides => default_head().map(|file| (file, false)),
            None => None,
        };
        let mtp = self.has(DraftKind::Mtp) || (auto && !named && model.has_mtp());
        let whole_vocabulary = self.no_shortlist;
        let forced = None;
        let drafters = Drafters { ngram, head: None, model: None, trained: None, mtp, exits, masks };
        let keep_nothing = self.no_prefix_reuse;
        Ok(Sources { drafters, head_file, forced, promised, open, keep_nothing, whole_vocabulary })
    }
}

fn no_fitted_head(model: &Model) -> Error {
    Error::Usage(format!(
        "--spec-type head: {} has no head beside its file: make one with `spec-run fit`, or name it with --head FILE",
        model.name
    ))
}

/// The error for who asks for a head that there is not.
pub fn no_head(model: &Model) -> Error {
    Error::Usage(format!(
        "--spec-type mtp: {} has no head that was trained to predict one token more, or none that is known here",
        model.name
    ))
}

fn proposer(named: NamedMask) -> MaskProposer {
    if named.mask.steps().next().is_none() {
        warning!("mask `{}` skips everything: what it drafts will hardly ever be accepted", named.name);
    }
    MaskProposer::new(named.name, named.mask)
}
