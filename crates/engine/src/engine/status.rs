//! What an engine is doing, and what it has done.

use super::SlotStatus;
use crate::speculation::Report;

/// What an engine is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Texts that are being made.
    pub running: usize,
    /// Jobs that wait for room.
    pub waiting: usize,
    /// Cells that hold nothing.
    pub free_cells: usize,
    /// All cells.
    pub cells: usize,
    /// What each slot is doing.
    pub slots: Vec<SlotStatus>,
    /// What was done so far.
    pub done: Done,
}

/// What an engine has done. Drafts are counted when their text ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Passes that made text, without passes for drafts.
    pub passes: u64,
    /// The sum of the texts in each of these passes.
    pub texts: u64,
    /// The most tokens that a text had in the cache.
    pub longest: usize,
    /// Rounds that drafted.
    pub drafts: u64,
    /// Tokens that were drafted.
    pub drafted: u64,
    /// Of these, those that became text.
    pub accepted: u64,
    /// The same by their position in the draft.
    pub accepted_at: Vec<u64>,
}

impl Done {
    /// Counts what was drafted for a text.
    pub(super) fn add_drafts(&mut self, report: &Report) {
        self.drafts += report.drafting.rounds as u64;
        self.drafted += report.drafting.drafted as u64;
        self.accepted += report.drafting.accepted as u64;
        let places = self.accepted_at.len().max(report.by_position.len());
        self.accepted_at.resize(places, 0);
        for (sum, (_, accepted)) in self.accepted_at.iter_mut().zip(&report.by_position) {
            *sum += *accepted as u64;
        }
    }
}
