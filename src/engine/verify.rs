//! The full model's pass over a draft.

use super::{Lane, Text};
use crate::{
    Batch, Context, Result, RunLayers,
    batch::{Fork, SeqId},
    scores::Want,
    speculation::proposer::Kept,
};

/// Evaluates the last token of a text and the draft after it, in one batch; the context then has the scores of
/// each of these rows, and the sequence all of them: the caller truncates what is rejected. Gives the layer that it began at.
pub(super) fn alone(context: &mut Context, lane: &mut Lane, source: Option<usize>) -> Result<usize> {
    let drafted = lane.text.made.proposals.len();
    let fits = lane.text.made.kept.fits(drafted, context.model().plan.dims.dim);
    let resumes = fits && source.is_some_and(|s| lane.policy.resumes(s, drafted));
    let mut batch = rows(context, lane.text);
    // Rows are not taken out of passes that go on from others, nor where nobody will draft from them.
    if let Some(tapped) = lane.text.tapped.as_mut().filter(|of| !resumes && lane.policy.may_draft(of.source))
    {
        batch.taps = tapped.ask();
    }
    let kept = batch.keep_hidden.map(|_| batch.rows.clone());
    let from_layer = match resumes {
        true => resume(context, lane.text, batch)?,
        false => {
            context.remove(lane.text.limits.draft);
            context.decode_for(&batch, lane.text.want)?;
            0
        }
    };
    lane.text.add_unseen(&kept.unwrap_or_default(), context, 0);
    Ok(from_layer)
}

/// The last token of a text and the draft after it.
pub(super) fn rows(context: &Context, text: &Text) -> Batch {
    let mut batch = Batch { keep_hidden: text.keeps(context), ..Batch::new() };
    let seq = text.limits.seq;
    let tokens = std::iter::once(text.last()).chain(text.made.proposals.iter().copied());
    for (pos, token) in (context.kv().next_pos(seq)..).zip(tokens) {
        batch.push(token, pos, seq, true);
    }
    // Each goes on from the text's last token, in a sequence of its own.
    let pos = batch.rows[0].pos + 1;
    for (i, &other) in text.made.others.iter().enumerate() {
        batch.forks.push(Fork { after: 0, to: branch(i) });
        batch.push(other, pos, branch(i), true);
    }
    batch
}

/// The sequence of a token in the place of a draft's first one, out of the way of all others. Only one text at a time has any.
pub(super) fn branch(other: usize) -> SeqId {
    const FIRST: SeqId = (1 << 31) + (1 << 20);
    FIRST + other as SeqId
}

/// Goes on from what the draft's first layers made: its cells join the text, the draft's last token goes through these
/// layers too, and the batch begins after them. The same bits as by all layers.
fn resume(context: &mut Context, text: &mut Text, batch: Batch) -> Result<usize> {
    let (seq, draft) = (text.limits.seq, text.limits.draft);
    let before = context.kv().len(seq);
    let layer = text.made.kept.layer;
    let result = resumed(context, batch, &mut text.made.kept, (seq, draft), text.want);
    context.remove(draft);
    if result.is_err() {
        context.truncate(seq, before)?;
    }
    result.map(|()| layer)
}

fn resumed(
    context: &mut Context,
    mut batch: Batch,
    kept: &mut Kept,
    (seq, draft): (SeqId, SeqId),
    want: Want,
) -> Result<()> {
    let last = batch.rows[batch.rows.len() - 1];
    let n_layer = context.model().plan.dims.n_layer;
    let mut step = Batch::new().with_layers(RunLayers::exit(n_layer, kept.layer));
    step.push(last.token, last.pos, draft, false);
    step.keep_hidden = Some(kept.layer);
    context.decode(&step)?;
    kept.hidden.extend_from_slice(context.hidden(0));
    context.fork(draft, seq);
    context.remove(draft);
    batch = batch.resuming(kept.layer, std::mem::take(&mut kept.hidden));
    let result = context.decode_for(&batch, want);
    // For its memory.
    kept.hidden = batch.resume.map(|resume| resume.hidden).unwrap_or_default();
    result
}
