//! The model drafts with its first layers, token by token with as many of them as it needs to be sure.

use super::{Draft, Proposer, Supply, glance, mask::prefix};
use crate::{
    Batch, Context, Result, RunLayers,
    speculation::{
        DRAFT, TARGET,
        policy::{SourceInfo, SourceKind},
    },
};

/// A draft whose head gives its choice at least this is sure.
const SURE: f32 = 0.5;

/// Leaves at the first of some layers where the head is sure of the next token, at the last of them in any case: where
/// it is not sure, the row goes on from where it was. Keys and values of the layers between are those of the tokens
/// that came that far; verification goes on from the first exit, up to which all of them came.
///
/// Where the device keeps no rows, each exit would begin anew: then there is only the first.
pub struct ExitsProposer {
    /// Ascending.
    exits: Vec<usize>,
    masks: Vec<RunLayers>,
    keeps: bool,
}

impl ExitsProposer {
    /// `exits` are numbers of layers that run, at least one of them.
    pub fn new(n_layer: usize, mut exits: Vec<usize>) -> Self {
        exits.sort_unstable();
        exits.dedup();
        let masks = exits.iter().map(|&layers| RunLayers::exit(n_layer, layers)).collect();
        ExitsProposer { exits, masks, keeps: true }
    }

    /// Leaves nothing to verification, which then begins with the first layer.
    pub fn keeping_nothing(self) -> Self {
        ExitsProposer { keeps: false, ..self }
    }

    /// The logits of the batch's one token, from as many layers as it takes.
    fn step(&self, draft: &mut Draft, mut batch: Batch) -> Result<()> {
        batch.run_layers = Some(self.masks[0].clone());
        let further = if draft.context.keeps_hidden() { &self.exits[1..] } else { &[] };
        let keeps = draft.made.kept.layer > 0 || !further.is_empty();
        batch.keep_hidden = keeps.then_some(self.exits[0]);
        draft.context.decode(&batch)?;
        draft.made.kept.add(draft.context);
        for (i, &layers) in further.iter().enumerate() {
            let scores = draft.context.scores(0);
            let best = glance::best(scores).first().copied();
            if best.is_none_or(|best| glance::probability(scores, best) >= SURE) {
                break;
            }
            let hidden = draft.context.hidden(0).to_vec();
            batch = batch.resuming(self.exits[i], hidden).with_layers(self.masks[i + 1].clone());
            batch.keep_hidden = Some(layers);
            draft.context.decode(&batch)?;
        }
        Ok(())
    }
}

impl Proposer for ExitsProposer {
    /// Half of the tokens are taken to go on at each exit, until their time tells.
    fn info(&self, context: &Context) -> SourceInfo {
        let costs: Vec<f64> = self.masks.iter().map(|mask| context.mask_cost(mask)).collect();
        let head = context.mask_cost(&RunLayers::exit(context.model().plan.dims.n_layer, 0));
        let further = costs.windows(2).map(|pair| pair[1] - pair[0] + head);
        let share = std::iter::successors(Some(0.5), |share| Some(share * 0.5));
        let cost = costs[0] + further.zip(share).map(|(cost, share)| cost * share).sum::<f64>();
        let layers: Vec<_> = self.exits.iter().map(usize::to_string).collect();
        let name = format!("exit {}", layers.join(" or "));
        let prefix = prefix(context, if self.keeps { self.exits[0] } else { 0 });
        SourceInfo { name, kind: SourceKind::Exit, cost, prefix }
    }

    fn supply(&mut self, _: &[u32]) -> Supply {
        Supply::Any
    }

    fn draft(&mut self, draft: &mut Draft) -> Result<()> {
        let Some(&last) = draft.text().last() else { return Ok(()) };
        draft.context.fork(TARGET, DRAFT);
        draft.keep(if self.keeps { self.exits[0] } else { 0 });
        let mut batch = Batch::prompt(&[last], draft.context.kv().next_pos(DRAFT), DRAFT);
        while draft.wants_more() {
            self.step(draft, batch.clone())?;
            batch.rows[0].token = draft.choose();
            batch.rows[0].pos += 1;
        }
        Ok(())
    }
}
