//! An EAGLE-3 head: one layer that was trained for the model. It reads the rows that full passes leave before three of the model's
//! layers, and has keys and values of its own, in a context of its own.

use super::{
    Apart, Left, Passes, Proposer, RAM_SPEED, ReadsRows, Supply,
    trained::{HeadState, Late},
};
use crate::{
    Batch, Context,
    batch::{Mtp, Row},
    scores::{Scores, Want},
    speculation::policy::{SourceInfo, SourceKind},
};

/// The rows of a token whose next token was not known yet.
struct Last {
    pos: u32,
    row: Vec<f32>,
}

/// Drafts for one text with an EAGLE-3 head. Its row at a position is made of the next token and of the model's rows at that
/// position.
pub struct EagleProposer {
    text: HeadState,
    last: Option<Last>,
    /// The position of the next step.
    next: u32,
    /// The output of the last step.
    left: Vec<f32>,
}

impl EagleProposer {
    pub(super) fn new(text: HeadState) -> Self {
        EagleProposer { text, last: None, next: 0, left: Vec::new() }
    }
}

fn batch(Late { rows, before }: Late, after_itself: bool) -> Batch {
    Batch { rows, mtp: Some(Mtp { before, after_itself }), ..Batch::new() }
}

impl ReadsRows for EagleProposer {
    fn layers(&self, _n_layer: usize) -> Vec<usize> {
        self.text.head.taps.clone()
    }

    fn reads_prompts(&self) -> bool {
        true
    }

    fn see(&mut self, Left { before, tokens, pos, rows }: Left) {
        let (seq, first) = (self.text.seq, &tokens[..tokens.len().min(1)]);
        self.text.begin_with(&[before.get(1..).unwrap_or_default(), first].concat());
        let row = |token, pos| Row { token, pos, seq, logits: false };
        self.text.late.let_go();
        // Rows of tokens in between may be missing.
        let last = self.last.take().filter(|last| last.pos + 1 == pos);
        let last = last.map(|Last { pos, row }| (pos, row));
        if let (Some((pos, before)), Some(&next)) = (last, tokens.first()) {
            self.text.late.push(row(next, pos), &before);
        }
        for (pos, (&next, before)) in (pos..).zip(std::iter::zip(tokens.iter().skip(1), rows)) {
            self.text.late.push(row(next, pos), before);
        }
        self.last = (pos..).zip(rows).last().map(|(pos, row)| Last { pos, row: row.to_vec() });
    }

    fn leads_to(&self, pos: u32) -> bool {
        self.last.as_ref().is_some_and(|last| last.pos + 1 == pos)
    }
}

impl Apart for EagleProposer {
    fn n_vocab(&self) -> usize {
        self.text.head.n_vocab
    }

    fn read(&mut self, _text: &[u32]) {
        self.text.evaluate_late(|late| batch(late, false), Want::Top(1), |_| ());
    }

    /// It has seen the text already.
    fn begin(&mut self, _text: &[u32], _most: usize) {}

    fn step(&mut self, token: u32, want: Want, look: &mut dyn FnMut(Scores)) -> bool {
        let EagleProposer { text, last, next, left } = self;
        let head = text.head.clone();
        let row = |pos| Row { token, pos, seq: text.seq, logits: true };
        // The last row is the one that asks.
        let mut read = |left: &mut Vec<f32>, context: &Context, end: usize| {
            left.clear();
            left.extend_from_slice(context.hidden(end));
            head.look(context.scores(0), look);
        };
        if let Some(Last { pos, row: before }) = last.take() {
            text.late.push(row(pos), &before);
            *next = pos + 1;
            let end = text.late.rows.len() - 1;
            return text.evaluate_late(|late| batch(late, false), want, |context| read(left, context, end));
        }
        let rows = Late { rows: vec![row(*next)], before: left.clone() };
        *next += 1;
        text.evaluate(&batch(rows, true), want, |context| read(left, context, 0))
    }
}

impl Proposer for EagleProposer {
    fn info(&self, context: &Context) -> SourceInfo {
        let speed = |context: &Context| context.weights_read_speed().unwrap_or(RAM_SPEED);
        let texts = self.text.head.texts();
        let seconds = texts.context.mtp_bytes() as f64 / speed(&texts.context);
        let cost = seconds / (context.bytes_read(None) as f64 / speed(context));
        // EAGLE-3 heads are right about three times of four where texts are like those that they were trained on.
        SourceInfo { name: "eagle3".into(), kind: SourceKind::Head, cost, chance: 0.7, prefix: None }
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
