use clap::Args;

use super::common::ModelArgs;
use crate::Result;

#[derive(Args, Debug)]
pub struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(args: PerplexityArgs) -> Result<()> {
    let _ = args;
    todo!()
}
