//! A DFlash head drafts a block of tokens in one pass: the text's last token and masks after it, with keys and values that are made
//! of the rows that full passes left of the text. A DSpark head is one whose logits also depend on the token before.

use super::{
    Apart, Left, Passes, Proposer, RAM_SPEED, ReadsRows, Supply,
    trained::{HeadState, Late},
};
use crate::{
    Batch, Context,
    batch::Row,
    model::Block,
    scores::{Scores, Top, Want},
    speculation::policy::{SourceInfo, SourceKind},
};

/// Drafts for one text with a DFlash head.
pub struct DflashProposer {
    text: HeadState,
    block: Block,
    /// The position after the last token that it has seen.
    next: u32,
    /// The most tokens of the draft.
    most: usize,
    /// The scores of each position of the block, first to last.
    scores: Vec<PlaceScores>,
    /// How many positions were asked for.
    asked: usize,
}

enum PlaceScores {
    All(Vec<f32>),
    Top(Top),
}

impl DflashProposer {
    pub(super) fn new(text: HeadState, block: Block) -> Self {
        DflashProposer { text, block, next: 0, most: 0, scores: Vec::new(), asked: 0 }
    }

    /// Makes the keys and values of the rows that wait.
    fn store_late(&mut self) {
        let batch = |Late { rows, before }| Batch { rows, inject: Some(before), ..Batch::new() };
        self.text.evaluate_late(batch, Want::Top(1), |_| ());
    }

    /// The pass over the block, which begins with the text's last token.
    fn draft(&mut self, last: u32, want: Want) {
        self.store_late();
        let Block { mask, from_last, .. } = self.block;
        let masks = self.most - usize::from(from_last);
        let mut batch = Batch::new();
        batch.push(last, self.next, self.text.seq, from_last);
        for place in 1..=masks as u32 {
            batch.push(mask, self.next + place, self.text.seq, true);
        }
        // A DSpark head adds to the logits, so that any of them may become the best.
        let want = if self.text.head.markov.is_some() { Want::Logits } else { want };
        let (scores, most) = (&mut self.scores, self.most);
        self.text.evaluate(&batch, want, |context| {
            scores.extend((0..most).map(|place| match context.scores(place) {
                Scores::All(logits) => PlaceScores::All(logits.to_vec()),
                Scores::Top(top) => PlaceScores::Top(top.clone()),
            }));
        });
    }
}

impl ReadsRows for DflashProposer {
    fn layers(&self, _n_layer: usize) -> Vec<usize> {
        self.text.head.taps.clone()
    }

    fn reads_prompts(&self) -> bool {
        true
    }

    fn see(&mut self, Left { before, tokens, pos, rows }: Left) {
        self.text.begin_with(before);
        self.text.late.let_go();
        for (pos, (&token, before)) in (pos..).zip(std::iter::zip(tokens, rows)) {
            self.text.late.push(Row { token, pos, seq: self.text.seq, logits: false }, before);
        }
        self.next = pos + tokens.len() as u32;
    }

    fn leads_to(&self, pos: u32) -> bool {
        self.next == pos && pos > 0
    }
}

impl Apart for DflashProposer {
    fn n_vocab(&self) -> usize {
        self.text.head.n_vocab
    }

    fn read(&mut self, _text: &[u32]) {
        self.store_late();
    }

    /// It has seen the text already.
    fn begin(&mut self, _text: &[u32], most: usize) {
        self.scores.clear();
        (self.asked, self.most) = (0, most.min(self.block.most_drafted()));
    }

    /// The first step runs the pass. Later steps only add what a DSpark head adds for their token.
    fn step(&mut self, token: u32, want: Want, look: &mut dyn FnMut(Scores)) -> bool {
        if self.asked == 0 && self.most > 0 {
            self.draft(token, want);
        }
        self.asked += 1;
        let Some(scores) = self.scores.get_mut(self.asked - 1) else { return false };
        if let (Some(markov), PlaceScores::All(logits)) = (&self.text.head.markov, &mut *scores) {
            let context = &mut self.text.head.texts().context;
            markov.add(token, logits, &mut |job| context.together(job));
        }
        self.text.head.look(
            match scores {
                PlaceScores::All(logits) => Scores::All(logits),
                PlaceScores::Top(top) => Scores::Top(top),
            },
            look,
        );
        true
    }
}

impl Proposer for DflashProposer {
    fn info(&self, context: &Context) -> SourceInfo {
        let seconds = |context: &Context| {
            context.bytes_read(None) as f64 / context.weights_read_speed().unwrap_or(RAM_SPEED)
        };
        // A draft is one pass, however long. About this many tokens of it are used.
        let added = self.text.head.markov.as_ref().map_or(0.0, |markov| markov.bytes() as f64 / RAM_SPEED);
        let of_pass = seconds(&self.text.head.texts().context) / 4.0;
        let cost = (of_pass + added) / seconds(context);
        SourceInfo { name: "dflash".into(), kind: SourceKind::Head, cost, chance: 0.7, prefix: None }
    }

    fn supply(&mut self, _text: &[u32]) -> Supply {
        if self.text.failed { Supply::Nothing } else { Supply::Any }
    }

    fn passes(&self) -> Option<Passes<'_>> {
        Some(Passes::Apart)
    }

    fn reader(&mut self) -> Option<&mut dyn ReadsRows> {
        Some(self)
    }

    fn apart(&mut self) -> Option<&mut dyn Apart> {
        Some(self)
    }
}
