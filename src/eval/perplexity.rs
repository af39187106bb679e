//! Perplexity as `llama-perplexity` counts it: the text in chunks of the context, each chunk's first token
//! replaced by BOS where the model wants one, the second half of every chunk scored.
//!
//! Under a mask each scored position is also compared with the full model.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use crate::{Batch, Context, Error, Result, RunLayers, batch::SeqId};

const FULL: SeqId = 0;
const MASKED: SeqId = 1;
/// Logits kept at once, in bytes; long chunks are scored in pieces.
const LOGITS_BYTES: usize = 64 << 20;
/// Of a shorter chunk too few tokens are scored for a standard error.
const SHORTEST_CHUNK: usize = 8;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Tokens in a chunk.
    pub n_ctx: usize,
    /// Put in place of each chunk's first token.
    pub bos: Option<u32>,
    pub mask: Option<RunLayers>,
    /// The most chunks to score.
    pub max_chunks: Option<usize>,
}

impl Settings {
    /// Cells that the context must have.
    pub fn cells(&self) -> usize {
        if self.mask.is_some() { 2 * self.n_ctx } else { self.n_ctx }
    }
}

/// Sums over the chunks scored so far; kept on disk, they let a run go on where it stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    pub chunks: usize,
    /// Positions scored.
    pub tokens: u64,
    /// Of the masked model if there is a mask, else of the full one.
    pub nll: Nll,
    pub against_full: Option<AgainstFull>,
}

/// Sum and sum of squares of negative log-likelihoods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nll {
    sum: f64,
    squares: f64,
}

/// The masked model beside the full one, summed over positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgainstFull {
    full: Nll,
    agreed: u64,
    overlap: f64,
    kl: f64,
}

impl Nll {
    fn add(&mut self, nll: f64) {
        self.sum += nll;
        self.squares += nll * nll;
    }

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
    pub fn ppl(&self) -> f64 {
        self.nll.perplexity(self.tokens)
    }

    pub fn stderr(&self) -> f64 {
        self.nll.standard_error(self.tokens)
    }
}

impl AgainstFull {
    pub fn base_ppl(&self, tokens: u64) -> f64 {
        self.full.perplexity(tokens)
    }

    /// Share of positions where both models' most likely token is the same.
    pub fn agreement(&self, tokens: u64) -> f64 {
        self.agreed as f64 / tokens as f64
    }

    /// Mean of Σ min(p, q): the acceptance that sampling would see.
    pub fn overlap(&self, tokens: u64) -> f64 {
        self.overlap / tokens as f64
    }

    /// Mean KL divergence of the masked model from the full one, in nats.
    pub fn kl(&self, tokens: u64) -> f64 {
        self.kl / tokens as f64
    }
}

/// How many chunks a text of `n_tokens` gives.
pub fn count_chunks(n_tokens: usize, settings: &Settings) -> Result<usize> {
    let n_ctx = settings.n_ctx;
    if n_ctx < SHORTEST_CHUNK {
        return Err(Error::Usage(format!(
            "perplexity needs chunks of at least {SHORTEST_CHUNK} tokens, not {n_ctx}: a larger -c"
        )));
    }
    if settings.max_chunks == Some(0) {
        return Err(Error::Usage(
            "--chunks 0: nothing would be scored; give 1 or more, or leave it out".into(),
        ));
    }
    let chunks = n_tokens / n_ctx;
    if chunks == 0 {
        return Err(Error::Input(format!(
            "the text has {n_tokens} tokens, a chunk needs {n_ctx}: a longer text or a smaller -c"
        )));
    }
    Ok(settings.max_chunks.map_or(chunks, |most| chunks.min(most)))
}

/// Scores `tokens`, going on after the chunks that `tally` already has. `on_chunk` sees each new state and
/// may end the run early.
pub fn perplexity(
    context: &mut Context,
    tokens: &[u32],
    settings: &Settings,
    mut tally: Tally,
    mut on_chunk: impl FnMut(&Tally) -> Result<ControlFlow<()>>,
) -> Result<Tally> {
    let chunks = count_chunks(tokens.len(), settings)?;
    if settings.mask.is_some() {
        tally.against_full.get_or_insert_default();
    }
    while tally.chunks < chunks {
        let mut chunk = tokens[tally.chunks * settings.n_ctx..][..settings.n_ctx].to_vec();
        if let Some(bos) = settings.bos {
            chunk[0] = bos;
        }
        score_chunk(context, &chunk, settings.mask.as_ref(), &mut tally)?;
        tally.chunks += 1;
        if on_chunk(&tally)?.is_break() {
            break;
        }
    }
    Ok(tally)
}

fn score_chunk(
    context: &mut Context,
    chunk: &[u32],
    mask: Option<&RunLayers>,
    tally: &mut Tally,
) -> Result<()> {
    let n_vocab = context.model().plan.dims.n_vocab;
    let piece_len = (LOGITS_BYTES / (4 * n_vocab)).max(1);
    // The logits at position j predict token j + 1; the last position has nothing to predict.
    let first_scored = chunk.len() / 2;
    let last = chunk.len() - 1;
    context.remove(FULL);
    context.remove(MASKED);
    let mut full_logits = Vec::new();
    let mut start = 0;
    while start < last {
        let end = if start < first_scored { first_scored } else { (start + piece_len).min(last) };
        let scored = start >= first_scored;
        let batch = |seq| {
            let mut batch = Batch::new();
            for (pos, &token) in chunk.iter().enumerate().take(end).skip(start) {
                batch.push(token, pos as u32, seq, scored);
            }
            batch
        };
        if let Some(mask) = mask {
            context.decode(&batch(FULL))?;
            full_logits.clear();
            for i in 0..if scored { end - start } else { 0 } {
                full_logits.extend_from_slice(context.logits(i));
            }
            context.decode(&batch(MASKED).with_layers(mask.clone()))?;
        } else {
            context.decode(&batch(FULL))?;
        }
        for i in 0..if scored { end - start } else { 0 } {
            let next = chunk[start + i + 1] as usize;
            let masked = LogProbs::new(context.logits(i));
            tally.tokens += 1;
            tally.nll.add(-masked.at(next));
            if let Some(sums) = &mut tally.against_full {
                let full = LogProbs::new(&full_logits[i * n_vocab..][..n_vocab]);
                sums.compare(&full, &masked);
                sums.full.add(-full.at(next));
            }
        }
        start = end;
    }
    context.remove(FULL);
    context.remove(MASKED);
    Ok(())
}

impl AgainstFull {
    fn compare(&mut self, full: &LogProbs, masked: &LogProbs) {
        self.agreed += u64::from(full.best == masked.best);
        for i in 0..full.logits.len() {
            let (log_p, log_q) = (full.at(i), masked.at(i));
            let (p, q) = (log_p.exp(), log_q.exp());
            self.overlap += p.min(q);
            if p > 0.0 {
                self.kl += p * (log_p - log_q);
            }
        }
    }
}

/// Log-probabilities of one row, computed on demand from its logits.
struct LogProbs<'a> {
    logits: &'a [f32],
    best: usize,
    log_sum: f64,
}

impl<'a> LogProbs<'a> {
    fn new(logits: &'a [f32]) -> Self {
        let mut best = 0;
        for (i, &l) in logits.iter().enumerate() {
            if l > logits[best] {
                best = i;
            }
        }
        let max = logits[best];
        let sum: f64 = logits.iter().map(|&l| f64::from((l - max).exp())).sum();
        LogProbs { logits, best, log_sum: f64::from(max) + sum.ln() }
    }

    fn at(&self, token: usize) -> f64 {
        f64::from(self.logits[token]) - self.log_sum
    }
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

    #[test]
    fn overlap_and_kl_of_two_known_distributions() {
        // p = (3/4, 1/4), q = (1/4, 3/4): Σ min = 1/2, KL = 1/2 · ln 3.
        let (p, q) = ([3f32.ln(), 0.0], [0.0, 3f32.ln()]);
        let mut sums = AgainstFull::default();
        sums.compare(&LogProbs::new(&p), &LogProbs::new(&q));
        assert!((sums.overlap(1) - 0.5).abs() < 1e-6);
        assert!((sums.kl(1) - 0.5 * 3f64.ln()).abs() < 1e-6);
        assert_eq!(sums.agreement(1), 0.0);
    }
}
