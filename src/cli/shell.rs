//! `spec-run completions` and `spec-run man`.

use std::io;

use clap::{Args, Command};
use clap_complete::Shell;

use super::common;
use crate::{Error, Result};

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell that they are for
    shell: Shell,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// The subcommand that the page is about [default: spec-run itself]
    command: Option<String>,
}

pub fn completions(args: CompletionsArgs, mut command: Command) -> Result<()> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut command, "spec-run", &mut out);
    common::print(out)
}

pub fn man(args: ManArgs, mut command: Command) -> Result<()> {
    command.build();
    let (page, title) = match args.command {
        None => (command, "spec-run".to_string()),
        Some(name) => {
            let found = command.find_subcommand(&name).cloned();
            let unknown = || Error::Usage(format!("man {name}: there is no such subcommand; see --help"));
            (found.ok_or_else(unknown)?, format!("spec-run-{name}"))
        }
    };
    let mut out = Vec::new();
    let failed = |e: io::Error| Error::io("the manual page", e);
    clap_mangen::Man::new(page).title(title).render(&mut out).map_err(failed)?;
    common::print(out)
}
