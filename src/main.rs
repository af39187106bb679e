use std::process::ExitCode;

fn main() -> ExitCode {
    match spec_run::cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, spec_run::Error::ClosedPipe) {
                eprintln!("spec-run: {error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}
