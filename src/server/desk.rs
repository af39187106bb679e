//! How requests hand jobs to the engine, and what they hear of them.

use std::ops::ControlFlow;

use tokio::sync::mpsc::UnboundedSender;

use crate::{
    Error, Result,
    engine::{Bound, Ended, Event, Handle, Job, JobId, Status},
};

/// Where a job's events go, and the number that they carry.
pub struct Hearer {
    /// Which of a request's jobs.
    pub index: usize,
    /// The request.
    pub to: UnboundedSender<(usize, Heard)>,
}

/// What a request hears of a job.
#[derive(Debug)]
pub enum Heard {
    /// The prompt is being evaluated, with so many of its tokens in the cache.
    Begun(usize),
    /// The next token, who drafted it, and the likeliest ones in its place.
    Token {
        /// The token.
        id: u32,
        /// The source that had drafted it.
        drafted_by: Option<usize>,
        /// The likeliest ones with their logarithms of probability.
        likely: Vec<(u32, f32)>,
    },
    /// It is done, or could not go on.
    Ended(std::result::Result<Box<Ended>, String>),
}

impl Hearer {
    /// Says something of the job; a break says that nobody listens any more.
    pub fn tell(&self, heard: Heard) -> ControlFlow<()> {
        match self.to.send((self.index, heard)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// Makes texts. Where nobody listens to a job any more it ends.
pub trait Answers: Send + Sync {
    /// Takes a job; waits until the engine has looked at it.
    fn submit(&self, job: Job, bound: Bound, hearer: Hearer) -> Result<JobId>;

    /// Ends a job, at once or after the pass at hand.
    fn cancel(&self, id: JobId);

    /// What is being made; waits for the pass at hand.
    fn status(&self) -> Result<Status>;
}

impl Answers for Handle {
    fn submit(&self, job: Job, bound: Bound, hearer: Hearer) -> Result<JobId> {
        let listener = move |event: Event| {
            hearer.tell(match event {
                Event::Begun { cached } => Heard::Begun(cached),
                Event::Token(token, likely) => {
                    Heard::Token { id: token.id, drafted_by: token.drafted_by, likely: likely.to_vec() }
                }
                Event::Ended(ended) => Heard::Ended(ended),
            })
        };
        Handle::submit(self, job, bound, Box::new(listener))
    }

    fn cancel(&self, id: JobId) {
        Handle::cancel(self, id);
    }

    fn status(&self) -> Result<Status> {
        Handle::status(self).map_err(|_| Error::Input("the engine has ended".into()))
    }
}
