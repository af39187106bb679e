//! How embeddings are made, for the commands that make some.

use clap::{Args, builder::PossibleValuesParser};

use crate::embed::Pooling;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Embeddings")]
pub struct EmbeddingArgs {
    /// How a text's rows become its embedding: none, mean, cls (the first), last or rank (a score) [default: as the
    /// model's file says, or mean]
    #[arg(long, value_name = "HOW")]
    #[arg(value_parser = PossibleValuesParser::new(["none", "mean", "cls", "last", "rank"]))]
    pooling: Option<String>,
    /// What embeddings are divided by: -1 nothing, 0 so that the largest number is 32760, 1 the sum, 2 the length, above
    /// that the p-norm
    #[arg(long, value_name = "N", default_value_t = 2, allow_negative_numbers = true)]
    pub embd_normalize: i32,
}

impl EmbeddingArgs {
    pub fn pooling(&self) -> Option<Pooling> {
        let name = self.pooling.as_deref()?;
        Pooling::ALL.into_iter().find(|pooling| pooling.name() == name)
    }
}
