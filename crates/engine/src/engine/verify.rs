//! The full model's passes over drafts and parts of prompts.

use std::time::Instant;

use super::{Lane, TextState, tapped::Tapped, text::PromptRows};
use crate::{
    Batch, Context, Result, RunLayers,
    batch::{Fork, Resume, SeqId},
    scores::Want,
};

/// A pass that was made.
pub(super) struct Pass {
    pub rows: usize,
    pub seconds: f64,
    /// The layer that it began at.
    pub from_layer: usize,
    /// Whether all of the model's layers ran.
    pub is_full: bool,
}

/// The rows of one lane in a pass.
struct Share {
    lane: usize,
    /// Its first row.
    row: usize,
    /// Its first output.
    output: usize,
}

/// Runs one batch of lanes with the same mask: parts of prompts, and for each other lane the last token of its text and the draft
/// after it. Afterwards the context has their scores, and each sequence has all of its rows: the caller truncates what is
/// rejected. `source`: what drafted for a text by itself, whose pass may go on from that draft's rows.
pub(super) fn pass(
    context: &mut Context,
    lanes: &mut [Lane],
    group: &[usize],
    parts: &[Option<PromptRows>],
    source: Option<usize>,
) -> Result<Pass> {
    let started = Instant::now();
    let resumes = source.is_some_and(|source| resumes(context, &lanes[0], source));
    let mut batch = Batch::new();
    let mut outputs = 0;
    let mut want = Want::Top(1);
    let mut shares = Vec::with_capacity(group.len());
    for &lane in group {
        shares.push(Share { lane, row: batch.rows.len(), output: outputs });
        let text = &*lanes[lane].text;
        batch.keep_hidden = batch.keep_hidden.or(text.keeps(context));
        match &parts[lane] {
            Some(part) => batch.rows.extend(&part.rows),
            None => add_rows(&mut batch, context, text),
        }
        outputs = batch.rows.iter().filter(|row| row.logits).count();
        want = want.and(text.want);
    }
    batch.run_layers = lanes[group[0]].text.spec.maker.mask.clone();
    // A pass takes out all of its rows or none. So a pass with rows of prompts takes them out only for heads that read those too. No
    // rows are taken out of passes that go on from others, nor where no head will draft from them.
    let only_texts = group.iter().all(|&lane| parts[lane].is_none());
    if !resumes && batch.run_layers.is_none() && batch.keep_hidden.is_none() {
        for &Share { lane, row, .. } in &shares {
            let Lane { text, policy, .. } = &mut lanes[lane];
            let drafts = |tapped: &&mut Tapped| policy.may_draft(tapped.source);
            if let Some(tapped) = text.tapped.as_mut().filter(drafts)
                && (only_texts || tapped.of_prompts)
            {
                tapped.ask(&mut batch, row);
            }
        }
    }
    let rows = batch.rows.len();
    let is_full = batch.run_layers.as_ref().is_none_or(RunLayers::is_full);
    let from_layer = match resumes {
        true => resume(context, lanes[0].text, &mut batch)?,
        false => {
            group.iter().for_each(|&lane| context.remove(lanes[lane].text.spec.draft));
            context.decode_for(&batch, want)?;
            0
        }
    };
    let seconds = started.elapsed().as_secs_f64();
    let ends: Vec<usize> = shares[1..].iter().map(|next| next.row).chain([rows]).collect();
    for (Share { lane, row, output }, end) in shares.into_iter().zip(ends) {
        lanes[lane].text.row = output;
        lanes[lane].text.add_unseen(&batch.rows[row..end], context, row);
    }
    Ok(Pass { rows, seconds, from_layer, is_full })
}

/// Whether the pass can go on from the rows of the draft's first layers, and that is worth it.
fn resumes(context: &Context, lane: &Lane, source: usize) -> bool {
    let made = &lane.text.made;
    let drafted = made.proposals.len();
    made.kept.fits(drafted, context.model().plan.dims.dim) && lane.policy.resumes(source, drafted)
}

/// Adds the rows of the last token of a text and of the draft after it.
fn add_rows(batch: &mut Batch, context: &Context, text: &TextState) {
    let seq = text.spec.seq;
    let first = batch.rows.len();
    let tokens = std::iter::once(text.last()).chain(text.made.proposals.iter().copied());
    for (pos, token) in (context.kv().next_pos(seq)..).zip(tokens) {
        batch.push(token, pos, seq, true);
    }
    // Each other candidate goes on from the text's last token, in a sequence of its own.
    let pos = batch.rows[first].pos + 1;
    for (i, &other) in text.made.others.iter().enumerate() {
        batch.forks.push(Fork { after: first, to: branch(i) });
        batch.push(other, pos, branch(i), true);
    }
}

/// The sequence of another candidate for a draft's first token, far from all other sequences. Only one text at a time has such.
pub(super) fn branch(other: usize) -> SeqId {
    const FIRST: SeqId = (1 << 31) + (1 << 20);
    FIRST + other as SeqId
}

/// Lets the verification go on from the rows of the draft's first layers: its cells join the text, the draft's last token runs
/// through these layers too, and the batch begins after them. The bits are those of a pass through all layers. Returns the layer
/// at which the batch begins.
fn resume(context: &mut Context, text: &mut TextState, batch: &mut Batch) -> Result<usize> {
    let (seq, draft) = (text.spec.seq, text.spec.draft);
    let before = context.kv().len(seq);
    let result = resumed(context, text, batch);
    context.remove(draft);
    if result.is_err() {
        context.truncate(seq, before)?;
    }
    result.map(|()| text.made.kept.layer)
}

fn resumed(context: &mut Context, text: &mut TextState, batch: &mut Batch) -> Result<()> {
    let (seq, draft) = (text.spec.seq, text.spec.draft);
    let kept = &mut text.made.kept;
    let last = batch.rows[batch.rows.len() - 1];
    let n_layer = context.model().plan.dims.n_layer;
    let mut step = Batch::new().with_layers(RunLayers::exit(n_layer, kept.layer));
    step.push(last.token, last.pos, draft, false);
    step.keep_hidden = Some(kept.layer);
    context.decode(&step)?;
    kept.hidden.extend_from_slice(context.hidden(0));
    context.fork(draft, seq);
    context.remove(draft);
    batch.resume = Some(Resume { layer: kept.layer, hidden: std::mem::take(&mut kept.hidden) });
    let result = context.decode_for(batch, text.want);
    // To reuse its memory.
    kept.hidden = batch.resume.take().map(|resume| resume.hidden).unwrap_or_default();
    result
}
