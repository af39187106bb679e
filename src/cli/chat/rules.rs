//! The rule that answers keep to, where the flags give a grammar or a schema.

use super::ChatCommand;
use crate::{Result, Tokenizer, engine::TextRule};
#[cfg(feature = "constraints")]
use crate::{
    constraint::{Constraint, Vocabulary},
    sampler::Rule,
};

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

    /// For an answer behind a prompt of so many tokens, of which these are there already.
    pub fn bound(&self, prompt: usize, answer: &[u32]) -> TextRule {
        #[cfg(feature = "constraints")]
        if let Some((vocabulary, constraint)) = &self.0 {
            let mut bound = constraint.bound(vocabulary, prompt);
            if let Some(rule) = bound.rule.take_if(|_| !answer.is_empty()) {
                bound.rule = Some(Box::new(GoingOn { rule, text: answer.to_vec(), begun: answer.len() }));
            }
            return bound;
        }
        let _ = (prompt, answer);
        TextRule::default()
    }
}

/// A rule of a text whose beginning is part of the prompt.
#[cfg(feature = "constraints")]
struct GoingOn {
    rule: Box<dyn Rule>,
    /// The beginning, and what was chosen behind it when it was last asked.
    text: Vec<u32>,
    begun: usize,
}

#[cfg(feature = "constraints")]
impl Rule for GoingOn {
    fn mask(&mut self, text: &[u32], logits: &mut [f32]) {
        self.text.truncate(self.begun);
        self.text.extend_from_slice(text);
        self.rule.mask(&self.text, logits);
    }

    fn fault(&self) -> Option<&str> {
        self.rule.fault()
    }
}
