//! Perplexity as `llama-perplexity` counts it: the text in chunks of the context, each chunk's first token
//! replaced by BOS where the model wants one, the second half of every chunk scored.
//!
//! Of a mask, or of the head that predicts one token more, each scored position is also compared with the full model.

use std::ops::{ControlFlow, Range};

use serde::{Deserialize, Serialize};

use super::agreement::{Agreement, Comparison, LogProbs};
use crate::{
    Batch, Context, Error, Result, RunLayers,
    batch::{Mtp, Row, SeqId},
};

pub(super) const FULL: SeqId = 0;
pub(super) const MASKED: SeqId = 1;
/// Logits kept at once, in bytes; long chunks are scored in pieces.
const LOGITS_BYTES: usize = 64 << 20;
/// Of a shorter chunk too few tokens are scored for a standard error.
pub(super) const SHORTEST_CHUNK: usize = 8;

/// What is scored, and how.
#[derive(Clone, Debug)]
pub struct PerplexitySettings {
    /// Tokens in a chunk.
    pub n_ctx: usize,
    /// Put in place of each chunk's first token.
    pub bos: Option<u32>,
    /// What is scored beside the full model; `None`: the full model alone.
    pub draft: Option<Draft>,
    /// The most chunks to score.
    pub max_chunks: Option<usize>,
}

/// What could draft.
#[derive(Clone, Debug, PartialEq)]
pub enum Draft {
    /// The model under a mask, which reads keys and values of its own.
    Mask(RunLayers),
    /// The head that predicts one token more: see [`Context::has_mtp`].
    Mtp,
}

impl PerplexitySettings {
    /// Cells that the context must have.
    pub fn cells(&self) -> usize {
        match self.draft {
            Some(Draft::Mask(_)) => 2 * self.n_ctx,
            Some(Draft::Mtp) | None => self.n_ctx,
        }
    }
}

/// Sums over the chunks scored so far; kept on disk, they let a run go on where it stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Chunks scored.
    pub chunks: usize,
    /// Positions scored.
    pub tokens: u64,
    /// Of what drafts, if anything does, else of the full model.
    pub nll: Nll,
    /// The comparison with the full model, if something drafts.
    pub against_full: Option<AgainstFull>,
}

/// Sum and sum of squares of negative log-likelihoods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nll {
    sum: f64,
    squares: f64,
}

/// What drafts beside the full model, summed over positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgainstFull {
    /// The full model's.
    pub full: Nll,
    /// How far both agree.
    pub sums: Agreement,
}

impl Nll {
    pub(super) fn add(&mut self, nll: f64) {
        self.sum += nll;
        self.squares += nll * nll;
    }

    pub(super) fn add_all(&mut self, other: &Nll) {
        self.sum += other.sum;
        self.squares += other.squares;
    }

    pub(super) fn sum(&self) -> f64 {
        self.sum
    }

    /// The perplexity over `tokens` positions.
    pub fn perplexity(&self, tokens: u64) -> f64 {
        (self.sum / tokens as f64).exp()
    }

    /// One standard error of the perplexity, from the spread of the log-likelihoods.
    pub fn standard_error(&self, tokens: u64) -> f64 {
        let n = tokens as f64;
        let mean = self.sum / n;
        let variance = (self.squares / n - mean * mean).max(0.0);
        (variance / (n - 1.0)).sqrt() * mean.exp()
    }
}

impl Tally {
    /// The perplexity so far.
    pub fn ppl(&self) -> f64 {
        self.nll.perplexity(self.tokens)
    }

    /// One standard error of it.
    pub fn stderr(&self) -> f64 {
        self.nll.standard_error(self.tokens)
    }

    /// Adds the sums of other chunks. Whoever adds single chunks in their order gets the same bits, wherever these were scored.
    pub fn add(&mut self, other: &Tally) {
        self.chunks += other.chunks;
        self.tokens += other.tokens;
        self.nll.add_all(&other.nll);
        if let Some(against) = &other.against_full {
            let sums = self.against_full.get_or_insert_default();
            sums.full.add_all(&against.full);
            sums.sums.add_all(&against.sums);
        }
    }
}

/// How many chunks a text of `n_tokens` gives.
pub fn count_chunks(n_tokens: usize, settings: &PerplexitySettings) -> Result<usize> {
    let n_ctx = settings.n_ctx;
    if n_ctx < SHORTEST_CHUNK {
        return Err(Error::Usage(format!(
            "perplexity needs chunks of at least {SHORTEST_CHUNK} tokens, not {n_ctx}: a larger `n_ctx`"
        )));
    }
    if settings.max_chunks == Some(0) {
        return Err(Error::Usage(
            "`chunks` 0: nothing would be scored; give 1 or more, or leave it out".into(),
        ));
    }
    let chunks = n_tokens / n_ctx;
    if chunks == 0 {
        return Err(Error::Input(format!(
            "the text has {n_tokens} tokens, a chunk needs {n_ctx}: a longer text or a smaller `n_ctx`"
        )));
    }
    Ok(settings.max_chunks.map_or(chunks, |most| chunks.min(most)))
}

/// Scores `tokens`, going on after the chunks that `tally` already has. `on_chunk` sees each new state and
/// may end the run early.
pub fn perplexity(
    context: &mut Context,
    tokens: &[u32],
    settings: &PerplexitySettings,
    tally: Tally,
    on_chunk: impl FnMut(&Tally) -> Result<ControlFlow<()>>,
) -> Result<Tally> {
    perplexity_seeing(context, tokens, settings, tally, |_, _| Ok(()), on_chunk)
}

/// The same, where `see` is told of the logits of each scored position and the token that came next.
pub fn perplexity_seeing(
    context: &mut Context,
    tokens: &[u32],
    settings: &PerplexitySettings,
    mut tally: Tally,
    mut see: impl FnMut(&[f32], u32) -> Result<()>,
    mut on_chunk: impl FnMut(&Tally) -> Result<ControlFlow<()>>,
) -> Result<Tally> {
    let chunks = count_chunks(tokens.len(), settings)?;
    while tally.chunks < chunks {
        tally.add(&score_seeing(context, tokens, settings, tally.chunks, &mut see)?);
        if on_chunk(&tally)?.is_break() {
            break;
        }
    }
    Ok(tally)
}

/// The sums of the `i`-th chunk alone.
pub fn score_chunk(
    context: &mut Context,
    tokens: &[u32],
    settings: &PerplexitySettings,
    i: usize,
) -> Result<Tally> {
    score_seeing(context, tokens, settings, i, &mut |_, _| Ok(()))
}

/// The `i`-th chunk, as the model sees it.
pub(super) fn chunk(tokens: &[u32], settings: &PerplexitySettings, i: usize) -> Vec<u32> {
    let mut chunk = tokens[i * settings.n_ctx..][..settings.n_ctx].to_vec();
    chunk[0] = settings.bos.unwrap_or(chunk[0]);
    chunk
}

/// Positions of a chunk that are evaluated at once.
pub(super) struct Piece {
    from: usize,
    to: usize,
    scored: bool,
}

impl Piece {
    /// The first half, which is only read, then as much of the rest at a time as memory for logits allows, and `most_rows`.
    /// The logits at a position predict the next token, so the last position has nothing to predict.
    pub fn all(n_ctx: usize, n_vocab: usize, most_rows: usize) -> Vec<Piece> {
        let at_once = (LOGITS_BYTES / (4 * n_vocab)).clamp(1, most_rows);
        let (half, last) = (n_ctx / 2, n_ctx - 1);
        let scored = (half..last).step_by(at_once);
        let scored = scored.map(|from| Piece { from, to: last.min(from + at_once), scored: true });
        std::iter::once(Piece { from: 0, to: half, scored: false }).chain(scored).collect()
    }

    fn rows(&self, chunk: &[u32], seq: SeqId) -> Vec<Row> {
        let row = |pos: usize| Row { token: chunk[pos], pos: pos as u32, seq, logits: self.scored };
        (self.from..self.to).map(row).collect()
    }

    /// Evaluates it on a sequence that has what comes before it.
    pub fn decode(
        &self,
        context: &mut Context,
        chunk: &[u32],
        seq: SeqId,
        mask: Option<&RunLayers>,
    ) -> Result<()> {
        context.decode(&Batch { rows: self.rows(chunk, seq), run_layers: mask.cloned(), ..Batch::new() })
    }

    /// The same on the full model's, for the head that predicts one token more, after what the last pass kept and, from the
    /// piece before, what was left of the token `before` this one.
    fn decode_mtp(&self, context: &mut Context, chunk: &[u32], before: &mut Vec<f32>) -> Result<()> {
        let mut rows = self.rows(chunk, FULL);
        // Nothing was before the first token.
        if before.is_empty() {
            rows.remove(0);
        }
        let mut given = std::mem::take(before);
        let last = self.to - self.from - 1;
        (0..last).for_each(|i| given.extend_from_slice(context.hidden(i)));
        *before = context.hidden(last).to_vec();
        let mtp = Some(Mtp { before: given, after_itself: false });
        context.decode(&Batch { rows, mtp, ..Batch::new() })
    }

    /// The positions with logits, in the order of these.
    pub fn scored(&self) -> Range<usize> {
        if self.scored { self.from..self.to } else { self.to..self.to }
    }
}

fn score_seeing(
    context: &mut Context,
    tokens: &[u32],
    settings: &PerplexitySettings,
    i: usize,
    see: &mut impl FnMut(&[f32], u32) -> Result<()>,
) -> Result<Tally> {
    let chunk = &chunk(tokens, settings, i)[..];
    let draft = settings.draft.as_ref();
    let against_full = draft.map(|_| AgainstFull::default());
    let mut tally = Tally { chunks: 1, against_full, ..Tally::default() };
    let n_vocab = context.model().plan.dims.n_vocab;
    context.remove(FULL);
    context.remove(MASKED);
    let mut full_logits = Vec::new();
    let mut before = Vec::new();
    for piece in Piece::all(chunk.len(), n_vocab, usize::MAX) {
        let keep_hidden = (draft == Some(&Draft::Mtp)).then(|| context.model().n_layer());
        context.decode(&Batch { rows: piece.rows(chunk, FULL), keep_hidden, ..Batch::new() })?;
        if let Some(draft) = draft {
            full_logits.clear();
            for i in 0..piece.scored().len() {
                full_logits.extend_from_slice(context.logits(i));
            }
            match draft {
                Draft::Mask(mask) => piece.decode(context, chunk, MASKED, Some(mask))?,
                Draft::Mtp => piece.decode_mtp(context, chunk, &mut before)?,
            }
        }
        for (i, pos) in piece.scored().enumerate() {
            let next = chunk[pos + 1] as usize;
            let masked = LogProbs::new(context.logits(i));
            tally.tokens += 1;
            let nll = -masked.at(next);
            if nll.is_nan() {
                return Err(context.not_a_number(pos as u32));
            }
            see(context.logits(i), chunk[pos + 1])?;
            tally.nll.add(nll);
            if let Some(against) = &mut tally.against_full {
                let full = LogProbs::new(&full_logits[i * n_vocab..][..n_vocab]);
                against.sums.add(&Comparison::exact(&full, &masked));
                against.full.add(-full.at(next));
            }
        }
    }
    context.remove(FULL);
    context.remove(MASKED);
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perplexity_of_uniform_guesses_is_the_vocabulary() {
        let mut nll = Nll::default();
        for _ in 0..10 {
            nll.add(-LogProbs::new(&[0.5; 8]).at(3));
        }
        assert!((nll.perplexity(10) - 8.0).abs() < 1e-9);
        assert!(nll.standard_error(10) < 1e-6);
    }

    #[test]
    fn standard_error_follows_the_spread() {
        // Log-likelihoods 1 and 3: mean 2, variance 1, so e² · sqrt(1 / (2 - 1)).
        let mut nll = Nll::default();
        nll.add(1.0);
        nll.add(3.0);
        assert!((nll.standard_error(2) - 2f64.exp()).abs() < 1e-9);
    }
}
