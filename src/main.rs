// A line that cannot be written must not end the program: `cli::output` says it.
#![deny(clippy::print_stderr, clippy::print_stdout)]

use std::process::ExitCode;

use spec_run::cli::{failure, output};

fn main() -> ExitCode {
    let code = match spec_run::cli::run() {
        Ok(()) => 0,
        Err(error) => {
            if !matches!(error, spec_run::Error::ClosedPipe) {
                output::say(format_args!("spec-run: {}\n", failure::message(&error)));
            }
            failure::exit_code(&error)
        }
    };
    ExitCode::from(spec_run::cli::interrupted().unwrap_or(code))
}
