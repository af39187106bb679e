//! How much the command line says on stderr: -q, nothing, or -v. The text and the figures on stdout do not depend
//! on it.

use std::sync::atomic::{AtomicU8, Ordering};

use clap::Args;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors only.
    Quiet,
    Normal,
    Verbose,
}

/// Set once, before anything runs.
static LEVEL: AtomicU8 = AtomicU8::new(Verbosity::Normal as u8);

/// What was asked for on the command line.
pub fn verbosity() -> Verbosity {
    match LEVEL.load(Ordering::Relaxed) {
        0 => Verbosity::Quiet,
        1 => Verbosity::Normal,
        _ => Verbosity::Verbose,
    }
}

pub fn set(level: Verbosity) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct VerbosityArgs {
    /// Say more on stderr: what was loaded, what drafting did, which flags change nothing
    #[arg(short, long)]
    verbose: bool,
    /// Say nothing on stderr but errors
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
}

/// The same where -q means something else.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct LongVerbosityArgs {
    /// Say more on stderr
    #[arg(short, long)]
    verbose: bool,
    /// Say nothing on stderr but errors
    #[arg(long, conflicts_with = "verbose")]
    quiet: bool,
}

impl VerbosityArgs {
    pub fn level(self) -> Verbosity {
        match self {
            Self { quiet: true, .. } => Verbosity::Quiet,
            Self { verbose: true, .. } => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }
}

impl From<LongVerbosityArgs> for VerbosityArgs {
    fn from(LongVerbosityArgs { verbose, quiet }: LongVerbosityArgs) -> Self {
        VerbosityArgs { verbose, quiet }
    }
}

/// A subcommand's own arguments, and how much it says.
#[derive(Args, Debug)]
pub struct WithVerbosity<T: Args> {
    #[command(flatten)]
    pub args: T,
    #[command(flatten)]
    pub verbosity: VerbosityArgs,
}

impl<T: Args> WithVerbosity<T> {
    /// `told` says what there is to say of the command line itself.
    pub fn run(self, told: impl FnOnce(), run: impl FnOnce(T) -> crate::Result<()>) -> crate::Result<()> {
        set(self.verbosity.level());
        told();
        run(self.args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_levels() {
        let level = |verbose, quiet| VerbosityArgs { verbose, quiet }.level();
        assert_eq!(level(false, false), Verbosity::Normal);
        assert_eq!(level(true, false), Verbosity::Verbose);
        assert_eq!(level(false, true), Verbosity::Quiet);
        assert!(Verbosity::Quiet < Verbosity::Normal && Verbosity::Normal < Verbosity::Verbose);
    }
}
