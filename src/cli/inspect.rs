use clap::Args;

use super::common::ModelArgs;
use crate::Result;

#[derive(Args, Debug)]
pub struct InspectArgs {
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(args: InspectArgs) -> Result<()> {
    let _ = args;
    todo!()
}
