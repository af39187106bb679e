//! The model drafts with the head that was trained to predict one token more.

use super::{Passes, Proposer, Supply};
use crate::{
    Context,
    speculation::{
        frequent,
        policy::{SourceInfo, SourceKind},
    },
};

/// Each step goes on from what the head has predicted itself, to any length.
#[derive(Clone, Copy, Debug, Default)]
pub struct MtpProposer;

impl Proposer for MtpProposer {
    /// # Panics
    /// If the context has no such head.
    fn info(&self, context: &Context) -> SourceInfo {
        let cost = frequent::draft_cost(context, context.mtp_cost());
        // Heads are right three times of four on what they were trained on.
        SourceInfo { name: "mtp".into(), kind: SourceKind::Mtp, cost, chance: 0.73, prefix: None }
    }

    fn supply(&mut self, _: &[u32]) -> Supply {
        Supply::Any
    }

    fn passes(&self) -> Option<Passes<'_>> {
        Some(Passes::Mtp)
    }
}
