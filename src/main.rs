// A line that cannot be written must not end the program: `cli::output` says it.
#![deny(clippy::print_stderr, clippy::print_stdout)]

use std::process::ExitCode;

use spec_run::cli::{failure, output};

fn main() -> ExitCode {
    match spec_run::cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, spec_run::Error::ClosedPipe) {
                output::say(format_args!("spec-run: {}\n", failure::message(&error)));
            }
            ExitCode::from(failure::exit_code(&error))
        }
    }
}
