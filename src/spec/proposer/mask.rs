//! The model drafts for itself, with some of its sublayers skipped or coarse.

use super::{Draft, Proposer, Supply};
use crate::{
    Batch, Context, Result, RunLayers,
    spec::{
        DRAFT, TARGET,
        policy::{Kind, SourceInfo},
    },
};

/// Drafts on a fork of the text, which reads the full model's keys and values for all that is committed.
pub struct MaskProposer {
    name: String,
    kind: Kind,
    mask: RunLayers,
}

impl MaskProposer {
    pub fn new(name: impl Into<String>, mask: RunLayers) -> Self {
        MaskProposer { name: name.into(), kind: Kind::Mask, mask }
    }

    /// The first `layers` layers and the head. Panics if the model has fewer.
    pub fn exit(n_layer: usize, layers: usize) -> Self {
        let mask = (layers..n_layer).fold(RunLayers::all(n_layer), |mask, l| mask.skip_attn(l).skip_mlp(l));
        MaskProposer { name: format!("exit {layers}"), kind: Kind::Exit, mask }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn layers(&self) -> &RunLayers {
        &self.mask
    }
}

impl Proposer for MaskProposer {
    fn info(&self, context: &Context) -> SourceInfo {
        SourceInfo { name: self.name.clone(), kind: self.kind, cost: context.mask_cost(&self.mask) }
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
        let want = draft.want();
        while draft.wants_more() {
            draft.context.decode_for(&batch, want)?;
            batch.rows[0].token = draft.choose();
            batch.rows[0].pos += 1;
        }
        Ok(())
    }
}
