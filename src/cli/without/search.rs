//! In the place of `search` in a build without the feature: whatever is asked, the answer is the same.

use std::ffi::OsString;

use clap::Args;

use crate::{Error, Result};

#[derive(Args, Debug)]
pub struct SearchArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<OsString>,
}

pub fn run(_: SearchArgs) -> Result<()> {
    Err(Error::Usage("search: this build is without it: it needs the feature \"search\"".into()))
}
