//! Drafts with a small head that was fitted to the model: it reads rows that full passes leave of a text, and computes the rest by
//! itself.

use std::{path::Path, sync::Arc};

use super::{Left, Passes, Proposer, RAM_SPEED, ReadsRows, Supply, confidence};
use crate::{
    Context, Error, Result,
    context::Isa,
    head::{Drafter, Head, Origin, PackedHead, Tables, Together},
    speculation::policy::{SourceInfo, SourceKind},
};

/// A head that is ready for the texts of a context.
#[derive(Clone)]
pub struct HeadSource(Arc<PackedHead>);

impl HeadSource {
    /// Reads the head of a context's model from its file.
    pub fn open(path: &Path, context: &Context) -> Result<Self> {
        let model = context.model();
        let head = Head::open(path, model)?;
        let tables = Arc::new(Tables::of(model.clone(), head.embedding_rms));
        Self::new(&head, tables, context)
    }

    /// The same for a head in memory.
    pub fn new(head: &Head, tables: Arc<Tables>, context: &Context) -> Result<Self> {
        if !context.has_taps() {
            let what = "layers hand on more than one row of each token, so no head can draft: leave it out";
            return Err(Error::model(context.model().gguf.name(), what));
        }
        Ok(HeadSource(Arc::new(PackedHead::new(head, tables, Isa::detect())?)))
    }

    /// The proposer for one text.
    pub fn proposer(&self) -> HeadProposer {
        HeadProposer {
            drafter: Drafter::new(self.0.clone()),
            read: 0,
            taps: Vec::new(),
            next: 0,
            steps: Vec::new(),
        }
    }
}

/// Drafts for one text with a head. The tokens of the text are added to those that it may choose.
pub struct HeadProposer {
    drafter: Drafter,
    /// How many tokens of the text were added to them.
    read: usize,
    /// The rows that the first step of a draft reads.
    taps: Vec<f32>,
    /// The position of that step's token.
    next: u32,
    /// The steps since.
    steps: Vec<Step>,
}

/// A step that was made.
struct Step {
    token: u32,
    output: Vec<f32>,
}

/// A step's choice.
pub struct Choice {
    /// Best first; none where nothing could be computed.
    pub tokens: Vec<u32>,
    /// The probability of each.
    pub confidences: Vec<f32>,
}

impl HeadProposer {
    /// Adds tokens that drafts may choose.
    pub fn add_tokens(&mut self, tokens: &[u32]) {
        self.drafter.add_tokens(tokens);
    }

    /// Begins a draft after the last token of which it has seen the rows.
    pub fn begin(&mut self) {
        self.steps.clear();
    }

    /// Takes the next token of the text or of the draft, and predicts the one after it.
    pub fn step(&mut self, token: u32, together: Together) -> Choice {
        let origin = if self.steps.is_empty() { Origin::Taps(&self.taps) } else { Origin::Itself };
        self.drafter.step(origin, token, together);
        self.steps.push(Step { token, output: self.drafter.output().to_vec() });
        let best = self.drafter.best(confidence::CANDIDATES);
        let highest = best.first().map_or(0.0, |of| of.logit);
        let of_best = confidence::probability_of(self.drafter.logits(), highest);
        Choice {
            tokens: best.iter().map(|of| of.token).collect(),
            confidences: best.iter().map(|of| of_best * (of.logit - highest).exp()).collect(),
        }
    }

    /// The likeliest token after these, and its probability. The first of them follows the token that left the rows. Steps for tokens
    /// that turned out to be others are dropped.
    pub fn guess(&mut self, tokens: &[u32], together: Together) -> Option<(u32, f32)> {
        // The last one is always computed again: its logits may be overwritten.
        let known = std::iter::zip(&self.steps, &tokens[..tokens.len() - 1]);
        let known = known.take_while(|(step, token)| step.token == **token).count();
        self.steps.truncate(known);
        if let Some(last) = self.steps.last() {
            self.drafter.go_on_from(&last.output);
        }
        let choice = tokens[known..].iter().map(|&token| self.step(token, together)).last()?;
        Some((*choice.tokens.first()?, choice.confidences[0]))
    }

    /// The last step's logits of all tokens; those of others are negative infinity.
    pub fn logits(&self, n_vocab: usize) -> Vec<f32> {
        let mut all = vec![f32::NEG_INFINITY; n_vocab];
        let tokens = self.drafter.vocabulary().tokens();
        tokens.iter().zip(self.drafter.logits()).for_each(|(&token, &logit)| all[token as usize] = logit);
        all
    }
}

impl ReadsRows for HeadProposer {
    fn layers(&self, n_layer: usize) -> Vec<usize> {
        self.drafter.shape().taps.iter().copied().chain([n_layer]).collect()
    }

    fn reads_prompts(&self) -> bool {
        false
    }

    /// It only needs the last row.
    fn see(&mut self, Left { pos, rows, .. }: Left) {
        self.taps.clear();
        self.taps.extend(rows.last().into_iter().copied().flatten());
        self.next = pos + rows.len() as u32;
    }

    fn leads_to(&self, pos: u32) -> bool {
        !self.taps.is_empty() && self.next == pos
    }
}

impl Proposer for HeadProposer {
    fn info(&self, context: &Context) -> SourceInfo {
        let cost = self.drafter.step_bytes() as f64 / context.bytes_read(None) as f64;
        // The head is read from RAM, whatever the layers are read from.
        let cost = cost * context.weights_read_speed().map_or(1.0, |speed| (speed / RAM_SPEED).max(1.0));
        // Fitted in minutes to some ten thousand tokens.
        SourceInfo { name: "head".into(), kind: SourceKind::Head, cost, chance: 0.38, prefix: None }
    }

    fn supply(&mut self, text: &[u32]) -> Supply {
        // Another text has begun.
        self.read = self.read.min(text.len());
        self.drafter.add_tokens(&text[self.read..]);
        self.read = text.len();
        Supply::Any
    }

    fn passes(&self) -> Option<Passes<'_>> {
        Some(Passes::Head)
    }

    fn head(&mut self) -> Option<&mut HeadProposer> {
        Some(self)
    }

    fn reader(&mut self) -> Option<&mut dyn ReadsRows> {
        Some(self)
    }
}
