//! Perplexity of many masks on one text, each beside the full model, which is evaluated once.
//!
//! Two questions are asked of a mask. What does it know by itself? A pass over the whole chunk with the mask's own
//! keys and values: perplexity, agreement, overlap, divergence. And how would it draft? Rows that see the full model's
//! keys and values: the share of first choices that are the full model's is what a draft's first token is accepted
//! at.

use std::ops::ControlFlow;

use super::{
    agreement::{Agreement, Comparison, LogProbs, Reference, TOP},
    drafts::{self, Draft},
    perplexity::{FULL, MASKED, Nll, PerplexitySettings, Piece, chunk, count_chunks},
};
use crate::{Context, Result, RunLayers, batch::SeqId};

/// The forks of drafts come after the two sequences of perplexity.
const FIRST_FORK: SeqId = MASKED + 1;

/// Sums over the chunks so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sweep {
    pub chunks: usize,
    /// Positions scored.
    pub tokens: u64,
    pub full: Nll,
    /// As the masks were given.
    pub masks: Vec<Swept>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Swept {
    pub nll: Nll,
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

/// Cells that a context needs for chunks of `n_ctx`.
pub fn cells(n_ctx: usize) -> usize {
    2 * n_ctx + drafts::MOST_ROWS
}

/// Scores `tokens` under each mask; that of `settings` is not looked at. `on_step` hears of steps done and expected,
/// and may end the run early: then whole chunks count.
pub fn sweep(
    context: &mut Context,
    tokens: &[u32],
    settings: &PerplexitySettings,
    masks: &[RunLayers],
    mut on_step: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Sweep> {
    let chunks = count_chunks(tokens.len(), settings)?;
    let mut sums = Sweep { masks: vec![Swept::default(); masks.len()], ..Sweep::default() };
    for i in 0..chunks {
        let chunk = chunk(tokens, settings, i);
        let before = sums.clone();
        let full = read(context, &chunk, &mut sums)?;
        for (m, mask) in masks.iter().enumerate() {
            if on_step(i * masks.len() + m, chunks * masks.len()).is_break() {
                return Ok(before);
            }
            alone(context, &chunk, mask, &full, &mut sums.masks[m])?;
            sums.masks[m].accepted += drafted(context, &chunk, mask, &full)?;
        }
        sums.chunks += 1;
        (0..FIRST_FORK + full.len() as SeqId).for_each(|seq| context.remove(seq));
    }
    Ok(sums)
}

/// The full model on the chunk; it stays on its sequence, and each scored position gets its fork.
fn read(context: &mut Context, chunk: &[u32], sums: &mut Sweep) -> Result<Vec<Reference>> {
    let n_vocab = context.model().plan.dims.n_vocab;
    let mut full = Vec::new();
    let mut forks = FIRST_FORK..;
    context.remove(FULL);
    for piece in Piece::all(chunk.len(), n_vocab) {
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
        for (pos, fork) in piece.scored().zip(&mut forks) {
            context.fork(FULL, fork);
            context.truncate(fork, pos);
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
    for piece in Piece::all(chunk.len(), n_vocab) {
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
fn drafted(context: &mut Context, chunk: &[u32], mask: &RunLayers, full: &[Reference]) -> Result<u64> {
    let first = chunk.len() / 2;
    let drafts: Vec<Draft> = (FIRST_FORK..)
        .zip(first..first + full.len())
        .map(|(seq, pos)| Draft { seq, pos, tokens: &chunk[pos..=pos] })
        .collect();
    let agreed = drafts::pass(context, mask, &drafts, |i, _, logits| {
        LogProbs::new(logits).best as u32 == full[i].best
    })?;
    Ok(agreed.iter().flatten().filter(|&&agreed| agreed).count() as u64)
}
