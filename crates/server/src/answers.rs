//! How requests hand jobs to what makes texts.

use crate::{
    Result,
    engine::{Job, JobId, Listener, SavedText, Status, TextRule},
};

/// Makes texts. Where nobody listens to a job any more it ends.
pub trait Answers: Send + Sync {
    /// Takes a job; waits until the engine has looked at it.
    fn submit(&self, job: Job, bound: TextRule, listener: Listener) -> Result<JobId>;

    /// Ends a job, at once or after the pass at hand.
    fn cancel(&self, id: JobId);

    /// What is being made; waits for the pass at hand.
    fn status(&self) -> Result<Status>;

    /// Whether the next job has to wait for the model to be loaded again.
    fn is_asleep(&self) -> bool {
        false
    }

    /// Is asked now and then, where it wishes that: whoever has had nothing to do for long may let go of the model.
    fn look(&self) -> bool {
        false
    }

    /// Lets the model go for good, when all that is being made has ended.
    fn end(&self) {}

    /// The text that a slot made last.
    fn save(&self, slot: usize) -> Result<SavedText>;

    /// Makes a saved text a slot's last one; says how many tokens it has.
    fn restore(&self, slot: usize, saved: SavedText) -> Result<usize>;

    /// Forgets what a slot has made; says how many tokens its last text had.
    fn erase(&self, slot: usize) -> Result<usize>;
}
