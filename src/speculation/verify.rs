//! The full model's pass over a draft.

use super::{DRAFT, TARGET, proposer::Kept};
use crate::{Batch, Context, Result, RunLayers, scores::Want, speculation::accept::Proposal};

/// Evaluates the last token of the text and the draft after it, in one batch; the context then has the scores of
/// each of these rows, and the sequence all of them: the caller truncates what is rejected.
///
/// With `kept`, what the draft's first layers made: its cells join the text, the draft's last token goes through these
/// layers too, and the batch begins after them. The same bits either way.
pub(super) fn verify(
    context: &mut Context,
    last: u32,
    draft: &[Proposal],
    kept: Option<&mut Kept>,
    want: Want,
) -> Result<()> {
    let mut batch = Batch::new();
    let tokens = std::iter::once(last).chain(draft.iter().map(|proposal| proposal.token));
    for (pos, token) in (context.kv().next_pos(TARGET)..).zip(tokens) {
        batch.push(token, pos, TARGET, true);
    }
    let Some(kept) = kept else { return context.decode_for(&batch, want) };
    let before = context.kv().len(TARGET);
    let result = resume(context, batch, kept, want);
    context.remove(DRAFT);
    if result.is_err() {
        context.truncate(TARGET, before)?;
    }
    result
}

fn resume(context: &mut Context, mut batch: Batch, kept: &mut Kept, want: Want) -> Result<()> {
    let last = batch.rows[batch.rows.len() - 1];
    let n_layer = context.model().plan.dims.n_layer;
    let mut step = Batch::new().with_layers(RunLayers::exit(n_layer, kept.layer));
    step.push(last.token, last.pos, DRAFT, false);
    step.keep_hidden = Some(kept.layer);
    context.decode(&step)?;
    kept.hidden.extend_from_slice(context.hidden(0));
    context.fork(DRAFT, TARGET);
    context.remove(DRAFT);
    batch = batch.resuming(kept.layer, std::mem::take(&mut kept.hidden));
    let result = context.decode_for(&batch, want);
    // For its memory.
    kept.hidden = batch.resume.map(|resume| resume.hidden).unwrap_or_default();
    result
}
