//! An EAGLE-3 head drafts: one layer that others trained for the model. It reads what full passes leave of every token before
//! three of the model's layers, and has keys and values of its own, in a context of its own.

use std::sync::Arc;

use super::{
    Apart, Left, Passes, Proposer, RAM_SPEED, ReadsRows, Supply,
    trained::{Late, Trained},
};
use crate::{
    Batch, Context,
    batch::{Ahead, Row, SeqId},
    scores::{Scores, Want},
    speculation::policy::{SourceInfo, SourceKind},
};

/// What full passes left of a token whose next one was not known yet.
struct Last {
    pos: u32,
    row: Vec<f32>,
}

/// Drafts for one text with an EAGLE-3 head. Its row at a position is that token's, with what was left of it, and the next one.
pub struct EagleProposer {
    head: Arc<Trained>,
    seq: SeqId,
    /// It cannot go on: a pass has failed.
    failed: bool,
    late: Late,
    last: Option<Last>,
    /// Its cells that are the text's and no draft's.
    certain: usize,
    /// The position of the next step.
    next: u32,
    /// What the last step left.
    left: Vec<f32>,
}

impl EagleProposer {
    pub(super) fn new(head: Arc<Trained>, seq: SeqId) -> Self {
        EagleProposer {
            head,
            seq,
            failed: false,
            late: Late::default(),
            last: None,
            certain: 0,
            next: 0,
            left: Vec::new(),
        }
    }

    /// Evaluates rows. Of the last one `look` sees what comes next, if it asks.
    fn evaluate(
        &mut self,
        rows: Vec<Row>,
        before: Vec<f32>,
        after_itself: bool,
        want: Want,
        look: &mut dyn FnMut(Scores),
    ) -> bool {
        let mut texts = self.head.texts();
        let context = &mut texts.context;
        if self.failed || rows.is_empty() || context.kv().room() < rows.len() {
            return false;
        }
        let asks = rows.iter().any(|row| row.logits);
        let end = rows.len() - 1;
        let batch = Batch { rows, ahead: Some(Ahead { before, after_itself }), ..Batch::new() };
        if context.decode_for(&batch, want).is_err() {
            self.failed = true;
            return false;
        }
        if asks {
            self.left.clear();
            self.left.extend_from_slice(context.hidden(end));
            self.head.look(context.scores(0), look);
        }
        true
    }

    /// Evaluates the rows that wait, of which the last one may ask.
    fn evaluate_late(&mut self, want: Want, look: &mut dyn FnMut(Scores)) -> bool {
        self.certain = self.late.cut(&mut self.head.texts().context, self.seq, self.certain);
        let Late { rows, before } = std::mem::take(&mut self.late);
        let count = rows.len();
        let is_made = self.evaluate(rows, before, false, want, look);
        self.certain += if is_made { count } else { 0 };
        is_made
    }
}

impl ReadsRows for EagleProposer {
    fn layers(&self, _n_layer: usize) -> Vec<usize> {
        self.head.taps.clone()
    }

    fn reads_prompts(&self) -> bool {
        true
    }

    fn see(&mut self, Left { tokens, pos, rows }: Left) {
        let seq = self.seq;
        let row = |token, pos| Row { token, pos, seq, logits: false };
        self.late.let_go();
        // Rows of tokens in between may be missing.
        let last = self.last.take().filter(|last| last.pos + 1 == pos);
        let last = last.map(|Last { pos, row }| (pos, row));
        if let (Some((pos, before)), Some(&next)) = (last, tokens.first()) {
            self.late.push(row(next, pos), &before);
        }
        for (pos, (&next, before)) in (pos..).zip(std::iter::zip(tokens.iter().skip(1), rows)) {
            self.late.push(row(next, pos), before);
        }
        self.last = (pos..).zip(rows).last().map(|(pos, row)| Last { pos, row: row.to_vec() });
    }

    fn leads_to(&self, pos: u32) -> bool {
        self.last.as_ref().is_some_and(|last| last.pos + 1 == pos)
    }
}

impl Apart for EagleProposer {
    fn n_vocab(&self) -> usize {
        self.head.n_vocab
    }

    fn read(&mut self, _text: &[u32]) {
        self.evaluate_late(Want::Top(1), &mut |_| ());
    }

    /// It has seen the text already.
    fn begin(&mut self, _text: &[u32], _most: usize) {}

    fn step(&mut self, token: u32, want: Want, look: &mut dyn FnMut(Scores)) -> bool {
        let row = |pos| Row { token, pos, seq: self.seq, logits: true };
        if let Some(Last { pos, row: before }) = self.last.take() {
            self.late.push(row(pos), &before);
            self.next = pos + 1;
            return self.evaluate_late(want, look);
        }
        let (rows, before) = (vec![row(self.next)], self.left.clone());
        self.next += 1;
        self.evaluate(rows, before, true, want, look)
    }
}

impl Drop for EagleProposer {
    fn drop(&mut self) {
        self.head.texts().context.remove(self.seq);
    }
}

impl Proposer for EagleProposer {
    fn info(&self, context: &Context) -> SourceInfo {
        let speed = |context: &Context| context.weights_read_speed().unwrap_or(RAM_SPEED);
        let texts = self.head.texts();
        let seconds = texts.context.ahead_bytes() as f64 / speed(&texts.context);
        let cost = seconds / (context.bytes_read(None) as f64 / speed(context));
        // EAGLE-3 heads are right about three times of four where texts are like those that they were trained on.
        SourceInfo { name: "eagle3".into(), kind: SourceKind::Head, cost, chance: 0.7, prefix: None }
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
