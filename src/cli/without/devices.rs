//! In the place of `devices` in a build without the feature: whatever is asked, the answer is the same.

use std::ffi::OsString;

use clap::Args;

use crate::{Error, Result};

#[derive(Args, Debug)]
pub struct DevicesArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<OsString>,
}

pub fn run(_: DevicesArgs) -> Result<()> {
    Err(Error::Usage("devices: this build is without it: it needs the feature \"gpu\"".into()))
}
