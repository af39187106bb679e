use clap::Args;

use super::common::ModelArgs;
use crate::Result;

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(args: RunArgs) -> Result<()> {
    let _ = args;
    todo!()
}
