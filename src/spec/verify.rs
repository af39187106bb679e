//! The full model's pass over a draft.

use super::TARGET;
use crate::{Batch, Context, Result, scores::Want, spec::accept::Proposal};

/// Evaluates the last token of the text and the draft after it, in one batch; the context then has the scores of
/// each of these rows, and the sequence all of them: the caller truncates what falls.
pub(super) fn verify(context: &mut Context, last: u32, draft: &[Proposal], want: Want) -> Result<()> {
    let mut batch = Batch::new();
    let tokens = std::iter::once(last).chain(draft.iter().map(|proposal| proposal.token));
    for (pos, token) in (context.kv().next_pos(TARGET)..).zip(tokens) {
        batch.push(token, pos, TARGET, true);
    }
    context.decode_for(&batch, want)
}
