//! Perplexity of many masks on one text, each beside the full model, which is evaluated once.
//!
//! Two questions are asked of a mask. What does it know by itself? A pass over the whole chunk with the mask's own
//! keys and values: perplexity, agreement, overlap, divergence. And how would it draft? Rows that see the full model's
//! keys and values: the share of first choices that are the full model's is what a draft's first token is accepted
//! at.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::{
    agreement::{Agreement, Comparison, LogProbs, Reference, TOP},
    drafts::{self, Draft},
    marks::{self, Marks, STATES_OF_FORKS},
    perplexity::{FULL, MASKED, Nll, PerplexitySettings, Piece, chunk, count_chunks},
};
use crate::{Context, ContextConfig, Result, RunLayers, batch::SeqId};

/// Where drafts begin comes after the two sequences of perplexity.
const FIRST_MARK: SeqId = MASKED + 1;

/// Sums over the chunks so far; kept on disk, they let a sweep go on where it stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// Chunks scored.
    pub chunks: usize,
    /// Positions scored.
    pub tokens: u64,
    /// The full model's log-likelihoods.
    pub full: Nll,
    /// By chunk, the full model's mean negative log-likelihood.
    pub full_by_chunk: Vec<f64>,
    /// As the masks were given.
    pub masks: Vec<Swept>,
}

/// What a sweep knows of one mask.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Swept {
    /// The masked model's log-likelihoods.
    pub nll: Nll,
    /// By chunk, the mean negative log-likelihood.
    pub by_chunk: Vec<f64>,
    /// Over the likeliest tokens and the bucket of the others.
    pub sums: Agreement,
    accepted: u64,
}

impl Swept {
    /// The share of positions where a draft's first token would be accepted, greedily.
    pub fn acceptance(&self, tokens: u64) -> f64 {
        self.accepted as f64 / tokens as f64
    }
}

impl Sweep {
    /// Adds the sums of other chunks under the same masks. Whoever adds single chunks in their order gets the same bits,
    /// wherever these were scored.
    pub fn add(&mut self, other: &Sweep) {
        self.chunks += other.chunks;
        self.tokens += other.tokens;
        self.full.add_all(&other.full);
        self.full_by_chunk.extend(&other.full_by_chunk);
        self.masks.resize(other.masks.len(), Swept::default());
        for (mask, other) in self.masks.iter_mut().zip(&other.masks) {
            mask.nll.add_all(&other.nll);
            mask.by_chunk.extend(&other.by_chunk);
            mask.sums.add_all(&other.sums);
            mask.accepted += other.accepted;
        }
    }

    /// One standard error of the difference between a mask's perplexity and the full model's, from how the difference
    /// varies from chunk to chunk: what makes a chunk hard for both cancels out. A single chunk says nothing of it.
    pub fn difference_error(&self, mask: &Swept) -> Option<f64> {
        let (full, masked) = (self.full.perplexity(self.tokens), mask.nll.perplexity(self.tokens));
        // A perplexity moves by itself times the move of the mean log-likelihood.
        let chunks = self.full_by_chunk.iter().zip(&mask.by_chunk);
        let moves: Vec<f64> = chunks.map(|(f, m)| masked * m - full * f).collect();
        let n = moves.len() as f64;
        let mean = moves.iter().sum::<f64>() / n;
        let variance = moves.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - 1.0);
        (moves.len() > 1).then(|| (variance / n).sqrt())
    }
}

/// What a sweep tells while it runs.
pub enum Step<'a> {
    /// Passes over a chunk under a mask that are done, of all.
    Mask {
        /// Passes that are done.
        done: usize,
        /// All passes.
        all: usize,
    },
    /// All masks have seen another chunk.
    Chunk(&'a Sweep),
}

/// Cells that a context needs for chunks of `n_ctx`.
pub fn cells(n_ctx: usize) -> usize {
    2 * n_ctx + drafts::MOST_ROWS
}

/// States of recurrent layers that it needs beside a text's: [`ContextConfig::extra_states`](crate::ContextConfig::extra_states).
pub fn states(n_ctx: usize) -> usize {
    marks::states_at(n_ctx / 2..n_ctx, n_ctx / 2) + STATES_OF_FORKS
}

/// Gives a context the room that chunks of `n_ctx` take: drafts begin everywhere in a text that is there already.
pub fn make_room(config: &mut ContextConfig, n_ctx: usize) {
    config.n_ctx = u32::try_from(cells(n_ctx)).unwrap_or(u32::MAX);
    config.swa_full = true;
    config.extra_states = states(n_ctx);
}

/// Scores `tokens` under each mask, going on after the chunks that `sums` already has; the mask of `settings` is not
/// looked at. `on_step` may end the run early: then whole chunks count.
pub fn sweep(
    context: &mut Context,
    tokens: &[u32],
    settings: &PerplexitySettings,
    masks: &[RunLayers],
    mut sums: Sweep,
    mut on_step: impl FnMut(Step) -> Result<ControlFlow<()>>,
) -> Result<Sweep> {
    let chunks = count_chunks(tokens.len(), settings)?;
    sums.masks.resize(masks.len(), Swept::default());
    for i in sums.chunks..chunks {
        let all = chunks * masks.len();
        let chunk = sweep_chunk(context, tokens, settings, masks, i, |m| {
            on_step(Step::Mask { done: i * masks.len() + m, all })
        })?;
        if chunk.masks.len() < masks.len() {
            break;
        }
        sums.add(&chunk);
        if on_step(Step::Chunk(&sums))?.is_break() {
            break;
        }
    }
    Ok(sums)
}

/// The sums of the `i`-th chunk alone. `on_mask` is told how many masks are done; if it ends the run, these are all there are.
pub fn sweep_chunk(
    context: &mut Context,
    tokens: &[u32],
    settings: &PerplexitySettings,
    masks: &[RunLayers],
    i: usize,
    mut on_mask: impl FnMut(usize) -> Result<ControlFlow<()>>,
) -> Result<Sweep> {
    let chunk = chunk(tokens, settings, i);
    let mut sums = Sweep { chunks: 1, ..Sweep::default() };
    let mut marks = Marks::new(FIRST_MARK);
    let full = read(context, &chunk, &mut sums, &mut marks)?;
    let mean = |nll: Nll| nll.sum() / full.len() as f64;
    sums.full_by_chunk.push(mean(sums.full));
    for mask in masks {
        if on_mask(sums.masks.len())?.is_break() {
            break;
        }
        let mut swept = Swept::default();
        alone(context, &chunk, mask, &full, &mut swept)?;
        swept.by_chunk.push(mean(swept.nll));
        swept.accepted = drafted(context, &marks, &chunk, mask, &full)?;
        sums.masks.push(swept);
    }
    context.remove(FULL);
    marks.remove(context);
    Ok(sums)
}

/// The full model on the chunk, with marks for drafts at each scored position.
fn read(context: &mut Context, chunk: &[u32], sums: &mut Sweep, marks: &mut Marks) -> Result<Vec<Reference>> {
    let n_vocab = context.model().plan.dims.n_vocab;
    let mut full = Vec::new();
    context.remove(FULL);
    for piece in Piece::all(chunk.len(), n_vocab, marks::most_rows(context)) {
        piece.decode(context, chunk, FULL, None)?;
        for (i, pos) in piece.scored().enumerate() {
            let logits = context.logits(i);
            sums.tokens += 1;
            let nll = -LogProbs::new(logits).at(chunk[pos + 1] as usize);
            if nll.is_nan() {
                return Err(context.not_a_number(pos as u32));
            }
            sums.full.add(nll);
            full.push(Reference::new(logits, TOP));
        }
        if !piece.scored().is_empty() {
            marks.set(context, FULL, piece.scored());
        }
    }
    Ok(full)
}

/// The masked model on the chunk, by itself.
fn alone(
    context: &mut Context,
    chunk: &[u32],
    mask: &RunLayers,
    full: &[Reference],
    swept: &mut Swept,
) -> Result<()> {
    let n_vocab = context.model().plan.dims.n_vocab;
    let mut full = full.iter();
    context.remove(MASKED);
    for piece in Piece::all(chunk.len(), n_vocab, usize::MAX) {
        piece.decode(context, chunk, MASKED, Some(mask))?;
        for ((i, pos), full) in piece.scored().enumerate().zip(&mut full) {
            let masked = LogProbs::new(context.logits(i));
            swept.nll.add(-masked.at(chunk[pos + 1] as usize));
            swept.sums.add(&Comparison::with_reference(full, &masked));
        }
    }
    context.remove(MASKED);
    Ok(())
}

/// At how many of the scored positions a draft's first token is the full model's.
fn drafted(
    context: &mut Context,
    marks: &Marks,
    chunk: &[u32],
    mask: &RunLayers,
    full: &[Reference],
) -> Result<u64> {
    let first = chunk.len() / 2;
    let drafts: Vec<Draft> =
        (first..first + full.len()).map(|pos| Draft { text: FULL, pos, tokens: &chunk[pos..=pos] }).collect();
    let agreed = drafts::pass(context, marks, mask, &drafts, |i, _, logits| {
        LogProbs::new(logits).best as u32 == full[i].best
    })?;
    Ok(agreed.iter().flatten().filter(|&&agreed| agreed).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_chunks(means: &[f64]) -> (Nll, Vec<f64>) {
        let mut nll = Nll::default();
        means.iter().for_each(|&mean| nll.add(mean));
        (nll, means.to_vec())
    }

    #[test]
    fn what_both_find_hard_cancels_out() {
        let sweep = |full: &[f64], masked: &[f64]| {
            let (nll, by_chunk) = of_chunks(masked);
            let mask = Swept { nll, by_chunk, ..Swept::default() };
            let (full, full_by_chunk) = of_chunks(full);
            let tokens = full_by_chunk.len() as u64;
            Sweep { chunks: 2, tokens, full, full_by_chunk, ..Sweep::default() }.difference_error(&mask)
        };
        assert!(sweep(&[1.0, 3.0], &[1.0, 3.0]).unwrap() < 1e-12);
        // By hand: means 0 and ln 2 are perplexities 1 and 2; 2 · (ln 2 ∓ 0.1) - 0 vary by ±0.2, so 0.2 · √2 / √2.
        let ln2 = 2f64.ln();
        assert!((sweep(&[0.0, 0.0], &[ln2 - 0.1, ln2 + 0.1]).unwrap() - 0.2).abs() < 1e-12);
        assert_eq!(sweep(&[1.0], &[2.0]), None);
    }
}
