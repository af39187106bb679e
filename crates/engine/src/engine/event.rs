//! What becomes known of a text while it is made.

use std::ops::ControlFlow;

use super::{Ended, TokenScore};
use crate::{Result, speculation::Token};

/// What becomes known of a text, in this order. A text that has a context for itself has no beginning and no end but those of the
/// call that makes it.
#[derive(Clone, Debug)]
pub enum Event {
    /// The prompt is being evaluated.
    Begun {
        /// Tokens of it that were in the cache.
        cached: usize,
        /// Where the text is made.
        slot: usize,
    },
    /// So many tokens of the prompt are evaluated; where a text had to begin again this may be less than before.
    Evaluated(usize),
    /// The next token is certain.
    Token {
        /// The token.
        token: Token,
        /// How likely it was, if that was asked for.
        score: Option<TokenScore>,
    },
    /// The text has ended, or could not go on.
    Ended(Result<Box<Ended>, String>),
}

/// Hears of a job; what it says to an event goes on or ends the text.
pub type Listener = Box<dyn FnMut(Event) -> ControlFlow<()> + Send>;

/// Hears of the lanes of a round, and which of them it is; may end that lane's text.
pub type OnEvent<'h> = &'h mut dyn FnMut(usize, Event) -> Result<ControlFlow<()>>;
