//! How requests hand jobs to the engine, and what they hear of them.

use std::ops::ControlFlow;

use tokio::sync::mpsc::UnboundedSender;

use crate::{
    Result,
    engine::{Ended, Event, Handle, Job, JobId, SavedText, Status, TextRule, TokenScore},
};

/// Where a job's events go, and the number that they carry.
pub struct EventSink {
    /// Which of a request's jobs.
    pub index: usize,
    /// The request.
    pub to: UnboundedSender<(usize, JobEvent)>,
}

/// What a request hears of a job.
#[derive(Debug)]
pub enum JobEvent {
    /// The prompt is being evaluated.
    Begun {
        /// Tokens of it that are in the cache.
        cached: usize,
        /// Where the text is made.
        slot: usize,
    },
    /// So many tokens of the prompt are evaluated.
    Evaluated(usize),
    /// The next token.
    Token {
        /// The token.
        id: u32,
        /// The source that had drafted it.
        drafted_by: Option<usize>,
        /// How likely it was, if that was asked for.
        score: Option<TokenScore>,
    },
    /// It is done, or could not go on.
    Ended(std::result::Result<Box<Ended>, String>),
}

impl EventSink {
    /// Says something of the job; a break says that nobody listens any more.
    pub fn tell(&self, event: JobEvent) -> ControlFlow<()> {
        match self.to.send((self.index, event)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// Makes texts. Where nobody listens to a job any more it ends.
pub trait Answers: Send + Sync {
    /// Takes a job; waits until the engine has looked at it.
    fn submit(&self, job: Job, bound: TextRule, sink: EventSink) -> Result<JobId>;

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

/// Hands a job to an engine, with what it says of it.
pub fn submit(handle: &Handle, job: Job, bound: TextRule, sink: EventSink) -> Result<JobId> {
    let listener = move |event: Event| {
        sink.tell(match event {
            Event::Begun { cached, slot } => JobEvent::Begun { cached, slot },
            Event::Evaluated(tokens) => JobEvent::Evaluated(tokens),
            Event::Token(token, score) => {
                JobEvent::Token { id: token.id, drafted_by: token.drafted_by, score: score.cloned() }
            }
            Event::Ended(ended) => JobEvent::Ended(ended),
        })
    };
    handle.submit(job, bound, Box::new(listener))
}
