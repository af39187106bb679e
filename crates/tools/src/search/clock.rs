//! What a search asks a clock. Each answer goes to the journal as a whole before anything depends on it, and is not
//! asked for again: two runs never tell the same times, and a search that was ended and went on must not mix them.

use super::{
    Member,
    candidate::State,
    costs::{self, PassCosts},
    measured::{self, Measured},
};
use crate::{Context, Result, RunLayers, Tokenizer, batch::SeqId};

/// Times what a search needs to know.
pub trait Stopwatch {
    /// See `PassCosts::measure`.
    fn costs(
        &mut self,
        context: &mut Context,
        place: (SeqId, usize),
        most_rows: usize,
        states: &[State],
    ) -> Result<PassCosts>;

    /// What a draft step costs under each mask, in plain steps.
    fn steps(
        &mut self,
        context: &mut Context,
        place: (SeqId, usize),
        masks: &[RunLayers],
    ) -> Result<Vec<f64>>;

    /// How fast the loop is with each member; nothing if that is not measured.
    fn speeds(
        &mut self,
        context: &mut Context,
        tokenizer: &Tokenizer,
        prompts: &[Vec<u32>],
        members: &[&Member],
        costs: &PassCosts,
    ) -> Result<Vec<Measured>>;
}

/// The real one.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock {
    /// No answer takes much more seconds than this, but for what the least one takes.
    pub most_seconds: Option<f64>,
}

impl Stopwatch for WallClock {
    fn costs(
        &mut self,
        context: &mut Context,
        place: (SeqId, usize),
        most_rows: usize,
        states: &[State],
    ) -> Result<PassCosts> {
        PassCosts::measure(context, place, most_rows, states, self.most_seconds)
    }

    fn steps(
        &mut self,
        context: &mut Context,
        place: (SeqId, usize),
        masks: &[RunLayers],
    ) -> Result<Vec<f64>> {
        costs::measure_masks(context, place, masks, self.most_seconds)
    }

    fn speeds(
        &mut self,
        context: &mut Context,
        tokenizer: &Tokenizer,
        prompts: &[Vec<u32>],
        members: &[&Member],
        costs: &PassCosts,
    ) -> Result<Vec<Measured>> {
        measured::measure(context, tokenizer, prompts, members, costs, self.most_seconds)
    }
}
