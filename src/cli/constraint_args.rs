//! The flags of grammars and JSON schemas, named as in llama.cpp.

use std::path::PathBuf;

use clap::Args;

use super::common::read_text;
use crate::{
    Result, Tokenizer,
    constraint::{Constraint, Grammar, LONGEST, Vocabulary},
};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Constraints")]
#[group(multiple = false)]
pub struct ConstraintArgs {
    /// Write JSON by this schema; {} is any JSON
    #[arg(short = 'j', long, value_name = "SCHEMA")]
    json_schema: Option<String>,
    /// Write JSON by the schema in a file
    #[arg(long, value_name = "FILE")]
    json_schema_file: Option<PathBuf>,
    /// Write by a grammar in GBNF, or in llguidance's Lark where it begins with %llguidance
    #[arg(long, value_name = "GRAMMAR")]
    grammar: Option<String>,
    /// Write by the grammar in a file
    #[arg(long, value_name = "FILE")]
    grammar_file: Option<PathBuf>,
}

impl ConstraintArgs {
    /// Ready for the model's vocabulary.
    pub fn compile(&self, tokenizer: &Tokenizer) -> Result<Option<(Vocabulary, Constraint)>> {
        let Some(grammar) = self.grammar()? else { return Ok(None) };
        let vocabulary = Vocabulary::new(tokenizer)?;
        let constraint = vocabulary.compile(&grammar)?;
        Ok(Some((vocabulary, constraint)))
    }

    fn grammar(&self) -> Result<Option<Grammar>> {
        let schema = match (&self.json_schema, &self.json_schema_file) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(file)) => Some(read_text(file, LONGEST as u64)?),
            (None, None) => None,
        };
        if let Some(schema) = schema {
            return Ok(Some(Grammar::JsonSchema(schema)));
        }
        let grammar = match (&self.grammar, &self.grammar_file) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(file)) => Some(read_text(file, LONGEST as u64)?),
            (None, None) => None,
        };
        Ok(grammar.map(Grammar::written))
    }
}
