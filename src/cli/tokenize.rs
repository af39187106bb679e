use clap::Args;

use super::common::ModelArgs;
use crate::Result;

#[derive(Args, Debug)]
pub struct TokenizeArgs {
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(args: TokenizeArgs) -> Result<()> {
    let _ = args;
    todo!()
}
