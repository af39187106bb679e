//! Rows under a mask that see what a draft sees: the full model's keys and values for all that is committed, and the
//! masked model's own for what it has drafted itself.
//!
//! Each draft has a sequence of its own, a fork of a fully evaluated text that ends where the draft begins. Forks
//! share their cells, so that costs lists only, and the rows of many drafts make one batch. Of recurrent layers each fork
//! has a state, so there fewer are made at a time.

use rayon::prelude::*;

use super::marks::{Marks, most_forks};
use crate::{Batch, Context, Result, RunLayers, batch::SeqId};

/// Logits of one batch, in bytes, and its rows.
const LOGITS_BYTES: usize = 64 << 20;
pub const MOST_ROWS: usize = 512;

/// Tokens that follow `pos` tokens of a text.
pub struct Draft<'a> {
    pub text: SeqId,
    pub pos: usize,
    pub tokens: &'a [u32],
}

/// How many rows with logits are evaluated at once.
pub fn rows_at_once(context: &Context) -> usize {
    let n_vocab = context.model().plan.dims.n_vocab;
    (LOGITS_BYTES / (4 * n_vocab)).clamp(1, MOST_ROWS)
}

/// Evaluates drafts under a mask, where marks are, and forgets them again. `see` gets each row's logits, by draft and depth, on any
/// thread; what it makes of them comes back in the same order.
pub fn pass<T: Send>(
    context: &mut Context,
    marks: &Marks,
    mask: &RunLayers,
    drafts: &[Draft],
    see: impl Fn(usize, usize, &[f32]) -> T + Sync,
) -> Result<Vec<Vec<T>>> {
    let depth = drafts.iter().map(|d| d.tokens.len()).max().unwrap_or(1);
    let at_once = (rows_at_once(context) / depth).clamp(1, most_forks(context));
    let mut seen = Vec::with_capacity(drafts.len());
    for (chunk_no, chunk) in drafts.chunks(at_once).enumerate() {
        let mut batch = Batch::new().with_layers(mask.clone());
        for (fork, draft) in (marks.forks()..).zip(chunk) {
            marks.fork(context, draft.text, draft.pos, fork)?;
            for (pos, &token) in (draft.pos as u32..).zip(draft.tokens) {
                batch.push(token, pos, fork, true);
            }
        }
        context.decode(&batch)?;
        let mut row = 0;
        let mut logits_of = |draft: &Draft| -> Vec<&[f32]> {
            row += draft.tokens.len();
            (row - draft.tokens.len()..row).map(|i| context.logits(i)).collect()
        };
        let logits: Vec<Vec<&[f32]>> = chunk.iter().map(&mut logits_of).collect();
        let see = |(i, rows): (usize, &Vec<&[f32]>)| -> Vec<T> {
            rows.iter().enumerate().map(|(j, logits)| see(chunk_no * at_once + i, j, logits)).collect()
        };
        seen.par_extend(logits.par_iter().enumerate().map(see));
        (marks.forks()..).take(chunk.len()).for_each(|fork| context.remove(fork));
    }
    Ok(seen)
}
