//! What the program says besides its result.

use std::{
    fs::OpenOptions,
    process::{Command, Stdio},
};

use crate::common::run;

const ARGS: [&str; 6] = ["-n", "12", "--temp", "0", "-p", "The dog"];

/// The program with a stderr that takes nothing.
#[cfg(target_os = "linux")]
fn unheard(args: &[&str]) -> std::process::Output {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_spec-run"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(full).output().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_stderr_costs_neither_the_text_nor_the_exit_code() {
    let heard = run(&ARGS);
    assert!(heard.status.success() && !heard.stderr.is_empty() && !heard.stdout.is_empty());
    let output = unheard(&ARGS);
    assert_eq!((output.status.code(), &output.stdout), (Some(0), &heard.stdout));
    assert_eq!(unheard(&["-m", "no/such/file.gguf", "-p", "x"]).status.code(), Some(1));
    assert_eq!(unheard(&["--no-such-flag"]).status.code(), Some(2));
    // Warnings too: -c beyond what the model was trained for.
    let long: Vec<&str> = ARGS.into_iter().chain(["-c", "5000"]).collect();
    assert_eq!(unheard(&long).stdout, heard.stdout);
}
