//! What the program says besides its result.

use serde_json::Value;

use crate::common::{
    child::Start,
    program::{json, program, run},
};

const ARGS: [&str; 6] = ["-n", "12", "--temp", "0", "-p", "The dog"];

/// The program with a stderr that takes nothing.
#[cfg(target_os = "linux")]
fn unheard(args: &[&str]) -> crate::common::child::Ended {
    use std::process::Stdio;

    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    program().args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(full).start().output()
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

fn stderr(args: &[&str]) -> String {
    run(args).said()
}

#[test]
fn a_first_run_says_four_lines_at_most() {
    for args in [
        &["--no-learn", "-n", "64"][..],
        &["--no-learn", "-n", "24", "--temp", "0"],
        &["-n", "5", "--draft", "none"],
    ] {
        let said = stderr(args);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.len() <= 4, "{args:?}: {said}");
        let [.., told, drafting] = lines[..] else { panic!("{said}") };
        assert!(told.contains(" tokens in ") && told.contains("tokens per second"), "{told}");
        assert!(told.contains("stopped by -n") && told.contains("seed "), "{told}");
        assert!(drafting.contains("drafting"), "{drafting}");
    }
    let draft = ["--no-learn", "-n", "64", "--temp", "0", "--draft-exit", "8", "--draft-max", "3"];
    assert!(stderr(&draft).contains(" drafted tokens accepted"), "{}", stderr(&draft));
    let verbose = stderr(&[&draft[..], &["-v"]].concat());
    assert!(verbose.lines().count() > 4 && verbose.contains("by source: "), "{verbose}");
    assert_eq!(stderr(&[&draft[..], &["-q"]].concat()), "");
    assert_eq!(stderr(&["-q", "-m", "no/such/file", "-p", "x"]).lines().count(), 1);
}

#[test]
fn a_seed_that_was_drawn_gives_the_text_again() {
    let draft = ["--no-learn", "-n", "48", "-p", "The dog", "--draft-exit", "8", "--draft-max", "4"];
    let first = run(&draft);
    let said = first.said();
    let seed = said.split("seed ").nth(1).unwrap().split_whitespace().next().unwrap();
    let again = run(&[&draft[..], &["-s", seed]].concat());
    assert_eq!(again.stdout, first.stdout);
    let plain = run(&["--no-learn", "-n", "48", "-p", "The dog", "--draft", "none", "-s", seed]);
    assert_eq!(plain.stdout, first.stdout);
    let found = json(&[&draft[..], &["-s", seed, "--json"]].concat());
    let seed: Value = seed.parse::<u64>().unwrap().into();
    assert_eq!((&found["seed"], &found["provenance"]["seed"]), (&seed, &seed));
}

#[test]
fn json_says_where_it_comes_from() {
    let found = json(&[&ARGS[..], &["--json"]].concat());
    let made = &found["provenance"];
    assert_eq!(made["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(made["command"], "spec-run -n 12 --temp 0 -p 'The dog' --json");
    assert_eq!((&made["interrupted"], &made["text"]["tokens"]), (&false.into(), &found["prompt_tokens"]));
    for (part, key) in
        [("model", "fingerprint"), ("model", "name"), ("text", "hash"), ("settings", "ctx_size")]
    {
        assert!(!made[part][key].is_null(), "{part} {key} in {made}");
    }
}

#[test]
fn no_color_is_heard() {
    let coloured = |value: &str| {
        let mut command = program();
        command.args(ARGS).args(["--no-learn", "--draft-exit", "8", "--draft-max", "3", "--color"]);
        let output = command.env("NO_COLOR", value).ended();
        output.stdout.contains(&0x1b)
    };
    assert!(coloured("") && !coloured("1"));
}
