//! The rule that answers keep to, where the flags give a grammar or a schema.

use super::ChatCommand;
#[cfg(feature = "constraints")]
use crate::constraint::{Constraint, Vocabulary};
use crate::{Result, Tokenizer, engine::Bound};

/// What each answer keeps to.
pub struct Rules(#[cfg(feature = "constraints")] Option<(Vocabulary, Constraint)>);

impl Rules {
    pub fn of(args: &ChatCommand, tokenizer: &Tokenizer) -> Result<Self> {
        #[cfg(feature = "constraints")]
        return Ok(Rules(args.constraint.compile(tokenizer)?));
        #[cfg(not(feature = "constraints"))]
        {
            let _ = (args, tokenizer);
            Ok(Rules())
        }
    }

    pub fn is_there(&self) -> bool {
        #[cfg(feature = "constraints")]
        return self.0.is_some();
        #[cfg(not(feature = "constraints"))]
        false
    }

    /// For an answer behind a prompt of so many tokens.
    pub fn bound(&self, prompt: usize) -> Bound {
        #[cfg(feature = "constraints")]
        if let Some((vocabulary, constraint)) = &self.0 {
            return constraint.bound(vocabulary, prompt);
        }
        let _ = prompt;
        Bound::default()
    }
}
