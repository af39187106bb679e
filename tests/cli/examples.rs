//! The examples run on the embedded model without arguments and say what they should.

use crate::common::{child::Start, program::json};
use std::{path::PathBuf, process::Command};

/// `cargo test` builds examples beside the tests.
fn run(name: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
    let path: PathBuf = folder.join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        path.exists(),
        "{} is not built: run the whole of `cargo test`, or build --examples",
        path.display()
    );
    Command::new(path).ended().done()
}

#[test]
fn generate_tells_a_story() {
    let text = run("generate");
    assert!(text.starts_with("Once upon a time, a little fox") && text.contains("tokens"), "{text}");
}

#[test]
fn run_layers_shows_less_work_and_other_answers() {
    let text = run("run_layers");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(lines[1].contains("100 % of the bytes"), "{text}");
    let answers: Vec<&str> = lines[1..].iter().map(|l| l.split_once("bytes: ").unwrap().1).collect();
    assert!(answers[1..].iter().all(|answer| *answer != answers[0]), "{text}");
}

/// The loop by hand writes what plain greedy decoding writes, in fewer passes.
#[test]
fn self_speculation_is_plain_decoding_in_fewer_rounds() {
    let text = run("self_speculation");
    let (story, summary) = text.trim_end().rsplit_once('\n').unwrap();
    let plain = json(&["-p", "Once upon a time", "-n", "96", "--temp", "0", "--json"]);
    let plain = plain["text"].as_str().unwrap();
    let (story, plain) = (story.trim_start(), plain.trim_start());
    let plain = plain.strip_prefix("Once upon a time").unwrap_or(plain);
    let story = story.strip_prefix("Once upon a time").unwrap();
    // The last round may go a little beyond.
    assert!(story.starts_with(plain), "{story}\nagainst\n{plain}");
    let a_round: f64 = summary.rsplit_once(", ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
    assert!(a_round > 1.5, "{summary}");
}

#[test]
fn perplexity_falls_with_the_layers_that_run() {
    let text = run("perplexity_mask");
    let number = |line: &str| -> f64 {
        line.split_once("perplexity ").unwrap().1.split(',').next().unwrap().parse().unwrap()
    };
    let ppl: Vec<f64> = text.lines().map(number).collect();
    assert!(ppl.len() == 3 && ppl[0] > ppl[1] && ppl[1] > ppl[2], "{text}");
}

#[test]
fn an_own_proposer_drafts_and_some_of_it_stands() {
    let text = run("own_proposer");
    let summary = text.trim_end().rsplit_once('\n').unwrap().1;
    let numbers: Vec<usize> = summary.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] > 0 && numbers[0] <= numbers[1], "{summary}");
    assert_eq!(text.matches('[').count(), numbers[0], "{text}");
}

/// Each token by itself is as likely as `perplexity` finds the second half of a text on the whole.
#[test]
fn a_score_for_each_token_is_what_perplexity_sums() {
    let text = run("score");
    let logprobs: Vec<f64> =
        text.lines().map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect();
    let story =
        "Once upon a time there was a little girl named Lily. She liked to play in the park with her dog.";
    let tokens = logprobs.len() + 1;
    let said = json(&["perplexity", "--json", "-p", story, "-c", &tokens.to_string()]);
    let second = &logprobs[tokens / 2..];
    let ppl = (-second.iter().sum::<f64>() / second.len() as f64).exp();
    assert!((said["ppl"].as_f64().unwrap() / ppl - 1.0).abs() < 1e-5, "{ppl} against {said}");
}
