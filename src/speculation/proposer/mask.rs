//! The model drafts for itself, with some of its sublayers skipped or coarse.

use super::{Draft, Proposer, Supply};
use crate::{
    Batch, Context, Result, RunLayers,
    speculation::{
        DRAFT, TARGET,
        policy::{Prefix, SourceInfo, SourceKind},
    },
};

/// Drafts on a fork of the text, which reads the full model's keys and values for all that is committed.
pub struct MaskProposer {
    name: String,
    kind: SourceKind,
    mask: RunLayers,
    /// The first layers, if they run in full: what they made is left to verification.
    prefix: usize,
}

impl MaskProposer {
    /// A draft by the layers of a mask.
    pub fn new(name: impl Into<String>, mask: RunLayers) -> Self {
        MaskProposer { name: name.into(), kind: SourceKind::Mask, prefix: mask.full_prefix(), mask }
    }

    /// The first `layers` layers and the head. Panics if the model has fewer.
    pub fn exit(n_layer: usize, layers: usize) -> Self {
        let mask = (layers..n_layer).fold(RunLayers::all(n_layer), |mask, l| mask.skip_attn(l).skip_mlp(l));
        MaskProposer { kind: SourceKind::Exit, ..Self::new(format!("exit {layers}"), mask) }
    }

    /// Leaves nothing to verification, which then begins with the first layer.
    pub fn keeping_nothing(self) -> Self {
        MaskProposer { prefix: 0, ..self }
    }

    /// [`SourceKind::Exit`] for the first layers, else [`SourceKind::Mask`].
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// What a draft step runs.
    pub fn layers(&self) -> &RunLayers {
        &self.mask
    }
}

impl Proposer for MaskProposer {
    fn info(&self, context: &Context) -> SourceInfo {
        let cost = context.mask_cost(&self.mask);
        SourceInfo { name: self.name.clone(), kind: self.kind, cost, prefix: prefix(context, self.prefix) }
    }

    fn mask(&self) -> Option<&RunLayers> {
        Some(&self.mask)
    }

    fn supply(&mut self, _: &[u32]) -> Supply {
        Supply::Any
    }

    fn draft(&mut self, draft: &mut Draft) -> Result<()> {
        let Some(&last) = draft.text().last() else { return Ok(()) };
        draft.context.fork(TARGET, DRAFT);
        let mut batch = Batch::prompt(&[last], draft.context.kv().next_pos(DRAFT), DRAFT);
        batch.run_layers = Some(self.mask.clone());
        batch.keep_hidden = draft.keep(self.prefix);
        let want = draft.want();
        while draft.wants_more() {
            draft.context.decode_for(&batch, want)?;
            draft.made.kept.add(draft.context);
            batch.rows[0].token = draft.choose();
            batch.rows[0].pos += 1;
        }
        Ok(())
    }
}

/// What verification saves by going on after so many layers; `None` if that cannot be.
pub(super) fn prefix(context: &Context, layers: usize) -> Option<Prefix> {
    let n_layer = context.model().plan.dims.n_layer;
    let possible = layers > 0 && context.keeps_hidden();
    let bytes = |layers| context.bytes_read(Some(&RunLayers::exit(n_layer, layers)));
    possible.then(|| Prefix {
        layers,
        share: (bytes(layers) - bytes(0)) as f64 / context.bytes_read(None) as f64,
    })
}
