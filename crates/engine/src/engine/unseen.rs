//! The tokens of a text that the head that predicts one token more has not seen yet. Each of its rows is a token together with
//! what the model's last layer left of the token before. So its rows are computed late, when the next token is known.

use crate::{
    Batch, Context, Result,
    batch::{Mtp, Row, SeqId},
    scores::Want,
};

/// Beyond this many rows the first are dropped: the head then attends to fewer tokens.
const MOST: usize = 64;

/// Consecutive tokens, and what the last layer left of each. The head has seen the tokens before.
#[derive(Default)]
pub struct Unseen {
    tokens: Vec<u32>,
    /// The position of the first.
    pos: u32,
    /// `[tokens, dim]`
    rows: Vec<f32>,
}

/// Rows for the head that are still to be computed, and their inputs.
#[derive(Default)]
pub struct Late {
    pub rows: Vec<Row>,
    pub before: Vec<f32>,
}

impl Unseen {
    /// Adds rows of which the last pass kept the hidden rows, from its row `first` on.
    pub fn add(&mut self, rows: &[Row], context: &Context, first: usize) {
        let Some(row) = rows.first() else { return };
        if row.pos != self.end() {
            self.clear();
            self.pos = row.pos;
        }
        self.tokens.extend(rows.iter().map(|row| row.token));
        (first..first + rows.len()).for_each(|i| self.rows.extend_from_slice(context.hidden(i)));
    }

    /// The position after the last of them.
    fn end(&self) -> u32 {
        self.pos + self.tokens.len() as u32
    }

    fn dim(&self) -> usize {
        self.rows.len() / self.tokens.len().max(1)
    }

    fn clear(&mut self) {
        self.tokens.clear();
        self.rows.clear();
    }

    /// Cuts to what lies before position `end`, where the text goes on, and drops what is too old.
    pub fn cut(&mut self, end: u32) {
        let kept = (end.saturating_sub(self.pos) as usize).min(self.tokens.len());
        let dim = self.dim();
        self.tokens.truncate(kept);
        self.rows.truncate(kept * dim);
        self.let_go(kept.saturating_sub(MOST));
    }

    /// Drops the first `count` tokens.
    fn let_go(&mut self, count: usize) {
        let dim = self.dim();
        self.tokens.drain(..count);
        self.rows.drain(..count * dim);
        self.pos += count as u32;
    }

    /// Whether a draft could begin at this position.
    pub fn leads_to(&self, pos: u32) -> bool {
        !self.tokens.is_empty() && self.end() == pos
    }

    /// Takes the rows up to that of `next`, the token after all of these, which asks for logits. The text is in sequence `seq`. What is
    /// needed for it once more stays here.
    pub fn take_with(&mut self, next: u32, seq: SeqId) -> Late {
        let mut late = self.take(seq);
        late.rows.push(Row { token: next, pos: self.end(), seq, logits: true });
        late.before.extend_from_slice(&self.rows);
        late
    }

    /// Takes the rows whose next token is known.
    fn take(&mut self, seq: SeqId) -> Late {
        let count = self.tokens.len().saturating_sub(1);
        let row = |(pos, &token): (u32, &u32)| Row { token, pos, seq, logits: false };
        let rows = (self.pos + 1..).zip(&self.tokens[self.tokens.len() - count..]).map(row).collect();
        let before = self.rows[..count * self.dim()].to_vec();
        self.let_go(count);
        Late { rows, before }
    }

    /// Computes the rows whose next token is known, as after a part of a prompt.
    pub fn make(&mut self, context: &mut Context, seq: SeqId) -> Result<()> {
        let Late { rows, before } = self.take(seq);
        if rows.is_empty() {
            return Ok(());
        }
        let mtp = Some(Mtp { before, after_itself: false });
        context.decode_for(&Batch { rows, mtp, ..Batch::new() }, Want::Top(1))
    }
}
