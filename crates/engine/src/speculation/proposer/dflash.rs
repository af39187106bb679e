//! A DFlash head drafts a block of tokens in one pass: the text's last token and masks behind it, by keys and values that are made of
//! what full passes of the model left of the text.

use std::sync::Arc;

use super::{
    Apart, Left, Passes, Proposer, RAM_SPEED, ReadsRows, Supply,
    trained::{Late, Trained},
};
use crate::{
    Batch, Context,
    batch::{Row, SeqId},
    model::Block,
    scores::{Scores, Top, Want},
    speculation::policy::{SourceInfo, SourceKind},
};

/// Drafts for one text with a DFlash head.
pub struct DflashProposer {
    head: Arc<Trained>,
    block: Block,
    seq: SeqId,
    /// It cannot go on: a pass has failed.
    failed: bool,
    late: Late,
    /// Its cells that are the text's and no draft's.
    certain: usize,
    /// The position behind the last token that it has seen.
    next: u32,
    /// The most tokens of the draft.
    most: usize,
    /// What the block's pass said of each place, first to last.
    said: Vec<PlaceScores>,
    /// Places that were asked for.
    asked: usize,
}

enum PlaceScores {
    All(Vec<f32>),
    Top(Top),
}

impl DflashProposer {
    pub(super) fn new(head: Arc<Trained>, block: Block, seq: SeqId) -> Self {
        DflashProposer {
            head,
            block,
            seq,
            failed: false,
            late: Late::default(),
            certain: 0,
            next: 0,
            most: 0,
            said: Vec::new(),
            asked: 0,
        }
    }

    /// Makes the keys and values of the rows that wait.
    fn store_late(&mut self) {
        let mut texts = self.head.texts();
        let context = &mut texts.context;
        self.certain = self.late.cut(context, self.seq, self.certain);
        let Late { rows, before } = std::mem::take(&mut self.late);
        let count = rows.len();
        if count == 0 || self.failed || context.kv().room() < count {
            return;
        }
        let batch = Batch { rows, inject: Some(before), ..Batch::new() };
        self.failed = context.decode_for(&batch, Want::Top(1)).is_err();
        self.certain += if self.failed { 0 } else { count };
    }

    /// The pass over the block, which begins with the text's last token.
    fn draft(&mut self, last: u32, want: Want) {
        self.store_late();
        let mut texts = self.head.texts();
        let context = &mut texts.context;
        let tokens = std::iter::once(last).chain(std::iter::repeat_n(self.block.mask, self.most));
        let mut batch = Batch::new();
        for (place, token) in (0..).zip(tokens) {
            batch.push(token, self.next + place, self.seq, place > 0);
        }
        if self.failed || context.kv().room() < batch.rows.len() {
            return;
        }
        self.failed = context.decode_for(&batch, want).is_err();
        if !self.failed {
            let said = |place| match context.scores(place) {
                Scores::All(logits) => PlaceScores::All(logits.to_vec()),
                Scores::Top(top) => PlaceScores::Top(top.clone()),
            };
            self.said.extend((0..self.most).map(said));
        }
    }
}

impl ReadsRows for DflashProposer {
    fn layers(&self, _n_layer: usize) -> Vec<usize> {
        self.head.taps.clone()
    }

    fn reads_prompts(&self) -> bool {
        true
    }

    fn see(&mut self, Left { tokens, pos, rows }: Left) {
        self.late.let_go();
        for (pos, (&token, before)) in (pos..).zip(std::iter::zip(tokens, rows)) {
            self.late.push(Row { token, pos, seq: self.seq, logits: false }, before);
        }
        self.next = pos + tokens.len() as u32;
    }

    fn leads_to(&self, pos: u32) -> bool {
        self.next == pos && pos > 0
    }
}

impl Apart for DflashProposer {
    fn n_vocab(&self) -> usize {
        self.head.n_vocab
    }

    fn read(&mut self, _text: &[u32]) {
        self.store_late();
    }

    /// It has seen the text already.
    fn begin(&mut self, _text: &[u32], most: usize) {
        self.said.clear();
        (self.asked, self.most) = (0, most.min(self.block.size.saturating_sub(1)));
    }

    /// The first step is the pass; what it was given is in no later step.
    fn step(&mut self, token: u32, want: Want, look: &mut dyn FnMut(Scores)) -> bool {
        if self.asked == 0 {
            self.draft(token, want);
        }
        self.asked += 1;
        let Some(said) = self.said.get(self.asked - 1) else { return false };
        self.head.look(
            match said {
                PlaceScores::All(logits) => Scores::All(logits),
                PlaceScores::Top(top) => Scores::Top(top),
            },
            look,
        );
        true
    }
}

impl Drop for DflashProposer {
    fn drop(&mut self) {
        self.head.texts().context.remove(self.seq);
    }
}

impl Proposer for DflashProposer {
    fn info(&self, context: &Context) -> SourceInfo {
        let seconds = |context: &Context| {
            context.bytes_read(None) as f64 / context.weights_read_speed().unwrap_or(RAM_SPEED)
        };
        // A draft is one pass, however long; about so many tokens of it are looked at.
        let cost = seconds(&self.head.texts().context) / seconds(context) / 4.0;
        SourceInfo { name: "dflash".into(), kind: SourceKind::Head, cost, chance: 0.7, prefix: None }
    }

    fn supply(&mut self, _text: &[u32]) -> Supply {
        if self.failed { Supply::Nothing } else { Supply::Any }
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
