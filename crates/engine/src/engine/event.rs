//! Events of a text while it is made.

use std::ops::ControlFlow;

use super::{Ended, TokenScore};
use crate::{Result, speculation::Token};

/// An event of a text, in this order. A text that has a context for itself has no `Begun` and no `Ended`: the call that makes it
/// begins and returns.
#[derive(Debug)]
pub enum Event {
    /// The prompt is being evaluated.
    Begun {
        /// Tokens of it that were in the cache.
        cached: usize,
        /// The slot in which the text is made.
        slot: usize,
    },
    /// So many tokens of the prompt are evaluated. After a text had to begin again this may be less than before.
    Evaluated(usize),
    /// The next token is certain.
    Token {
        /// The token.
        token: Token,
        /// How likely it was, if that was asked for.
        score: Option<TokenScore>,
    },
    /// The text has ended, or could not go on: by [`Error::Input`](crate::Error::Input) where that lies in the request.
    Ended(Result<Box<Ended>>),
}

/// Gets the events of a job. Its answer continues or ends the text.
pub type Listener = Box<dyn FnMut(Event) -> ControlFlow<()> + Send>;

/// Gets the events of a round's lanes, with the lane's index. Its answer may end that lane's text.
pub type OnEvent<'h> = &'h mut dyn FnMut(usize, Event) -> Result<ControlFlow<()>>;
