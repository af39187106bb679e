// A line that cannot be written must not end the program: `cli::output` says it.
#![deny(clippy::print_stderr, clippy::print_stdout)]

use std::process::ExitCode;

fn main() -> ExitCode {
    match spec_run::cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, spec_run::Error::ClosedPipe) {
                spec_run::cli::output::say(format_args!("spec-run: {error}\n"));
            }
            ExitCode::from(error.exit_code())
        }
    }
}
