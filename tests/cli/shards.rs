//! Scores in shards: put together they are what one run prints, to the bit.

use std::fs;
#[cfg(unix)]
use std::{path::Path, process::Stdio};

use serde_json::Value;

use crate::common::{
    child::Ended,
    five_layers,
    program::{Folder, run, stdout},
};
#[cfg(unix)]
use crate::common::{child::Start, program::program};

const STORIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories-val.txt");
/// Seven chunks.
const TEXT: [&str; 6] = ["-f", STORIES, "-c", "64", "--chunks", "7"];
/// The columns that a clock fills, which no shard does.
const TIMED: [&str; 3] = ["step", "speedup", "tok_s"];

fn args<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["perplexity", "-m", five_layers()], &TEXT[..], more].concat()
}

fn shard(part: &str, out: &str, masks: &[&str]) {
    assert_eq!(stdout(&args(&[&["--shard", part, "--out", out], masks].concat())), "");
}

fn merged(files: &[&str], more: &[&str]) -> Ended {
    run(&[&["merge"], files, more].concat())
}

/// Without what the clock says and what is of the command itself.
fn comparable(json: &str) -> Value {
    let mut found: Value = serde_json::from_str(json).unwrap();
    found["provenance"].as_object_mut().unwrap().remove("command");
    for row in found["rows"].as_array_mut().into_iter().flatten() {
        TIMED.iter().for_each(|column| row[*column] = Value::Null);
    }
    found
}

/// Lines of a table with words of the timed columns left out.
fn table(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let timed = words.len() == 12;
        words[..if timed { 9 } else { words.len() }].join(" ")
    };
    text.lines().map(line).collect()
}

/// Three shards: out of order, one of them twice, each in a file of its own.
fn three(folder: &Folder, masks: &[&str]) -> [String; 3] {
    let files = [1, 2, 3].map(|k| folder.path(&format!("{k}.jsonl")));
    for k in [2, 1, 3, 1] {
        shard(&format!("{k}/3"), &files[k - 1], masks);
    }
    files
}

#[test]
fn shards_together_are_the_whole_run_to_the_bit() {
    let folder = Folder::new();
    let file = r#"{"schema": 1, "masks": [{"name": "a", "skip": {"attention": [2], "mlp": []}}, {"name": "b", "skip": {"attention": [], "mlp": [3, 4]}}]}"#;
    let masks = folder.file("masks.json", file);
    for more in [
        &[][..],
        &["--skip-mlp", "3,4"],
        &["--exit", "2,4"],
        &["--skip-attn", "each"],
        &["--draft-skip", &masks, "--mask", "each"],
    ] {
        let folder = Folder::new();
        let [a, b, c] = three(&folder, more);
        // The first has run twice, and did nothing the second time.
        let lines = fs::read_to_string(&a).unwrap().lines().count();
        let json = merged(&[&c, &a, &b, &a], &["--json"]).done();
        let whole = stdout(&args(&[more, &["--json"]].concat()));
        assert_eq!(comparable(&json), comparable(&whole), "{more:?}");
        assert_eq!(lines, 3, "{more:?}: chunks 1, 4 and 7");
        let text = merged(&[&a, &b, &c], &[]).done();
        assert_eq!(table(&text), table(&stdout(&args(more))), "{more:?}");
    }
}

#[test]
fn a_merged_csv_is_that_of_the_whole_run() {
    let folder = Folder::new();
    let (ours, whole) = (folder.path("ours.csv"), folder.path("whole.csv"));
    let files = three(&folder, &["--exit", "2,4"]);
    let files = files.each_ref().map(String::as_str);
    merged(&files, &["--csv", &ours]).done();
    stdout(&args(&["--exit", "2,4", "--csv", &whole]));
    let rows = |path: &str| -> Vec<Vec<String>> {
        let text = fs::read_to_string(path).unwrap();
        let rows = text.lines().filter(|line| !line.starts_with("# command"));
        let timed = |(i, _): &(usize, &str)| !(9..12).contains(i);
        rows.map(|line| {
            let all = if line.starts_with('#') { vec![line] } else { line.split(',').collect() };
            all.into_iter().enumerate().filter(timed).map(|(_, word)| word.to_string()).collect()
        })
        .collect()
    };
    let found = rows(&ours);
    assert!(found.len() > 12 && found == rows(&whole), "{found:?}");
    // It is there already.
    merged(&files, &["--csv", &ours]).failed(2, &["--force"]);
    merged(&files, &["--csv", &ours, "--force"]).done();
    let plain = three(&folder, &[]);
    merged(&[&plain[0], files[0]], &["--csv", &ours, "--force"]).failed(1, &["missing"]);
}

/// A shard is killed while it writes: a line that is cut off is done again, and what was whole is not.
#[cfg(unix)]
#[test]
fn a_shard_that_was_killed_goes_on() {
    let folder = Folder::new();
    let out = folder.path("out.jsonl");
    let long = ["perplexity", "-f", STORIES, "-c", "64", "--chunks", "150", "--exit", "4"];
    let whole = [&long[..], &["--shard", "1/1", "--out", &out]].concat();
    let mut child = program().args(&whole).stdin(Stdio::null()).stderr(Stdio::null()).start();
    let lines = || fs::read_to_string(&out).unwrap_or_default().lines().count();
    while lines() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait();
    let there = fs::read(&out).unwrap();
    let before = lines();
    assert!((3..150).contains(&before), "{before} lines");
    merged(&[&out], &[]).failed(1, &[" missing: "]);
    // In the middle of the last line.
    fs::write(&out, &there[..there.len() - 100]).unwrap();
    stdout(&whole);
    assert_eq!(lines(), 151, "the cut line and 150 whole ones");
    let merged = merged(&[&out], &["--json"]);
    let said = merged.said();
    assert!(said.contains(&format!("out.jsonl:{before}: a line that was cut off")), "{said}");
    assert_eq!(comparable(&merged.done()), comparable(&stdout(&[&long[..], &["--json"]].concat())));
}

#[cfg(unix)]
#[test]
fn a_shard_that_is_interrupted_keeps_its_chunks() {
    let folder = Folder::new();
    let out = folder.path("out.jsonl");
    let args =
        ["perplexity", "-f", STORIES, "-c", "64", "--skip-mlp", "each", "--shard", "1/2", "--out", &out];
    let child = program().args(args).stdin(Stdio::null()).stderr(Stdio::piped()).start();
    while !Path::new(&out).exists() || fs::read(&out).unwrap().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.signal("-INT");
    let output = child.output();
    let said = output.said();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted after ") && said.contains("the same command goes on"), "{said}");
    assert!(fs::read_to_string(&out).unwrap().ends_with("}\n"));
}

#[test]
fn what_does_not_fit_together_is_one_line() {
    let folder = Folder::new();
    let [a, b, c] = three(&folder, &["--exit", "2,4"]);
    let one_line = |files: &[&str], parts: &[&str]| merged(files, &["-q"]).refused(1, parts);
    one_line(&[&a, &c], &["2 of 7 chunks missing: 2, 5; run the shards"]);
    let text = fs::read_to_string(&b).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let part = folder.file("part", lines[0]);
    one_line(&[&a, &part, &c], &["1 of 7 chunks missing: 5;"]);
    // Another number, with the checksum that belongs to it and without.
    let accepted = lines[1].find("\"accepted\":").unwrap() + 11;
    let digit = if lines[1].as_bytes()[accepted] == b'1' { "2" } else { "1" };
    let line = format!("{}{digit}{}", &lines[1][..accepted], &lines[1][accepted + 1..]);
    let edited = folder.file("edited", &line);
    one_line(&[&a, &edited], &["edited:1: its checksum is another"]);
    fs::write(&edited, format!("{}\n", with_checksum(&line))).unwrap();
    one_line(&[&a, &b, &c, &edited], &["2.jsonl:2 and ", "edited:1: other numbers for chunk 5"]);
    // What is no such file.
    one_line(
        &[&a, STORIES],
        &["stories-val.txt:1: no line of `spec-run perplexity --shard` of this version"],
    );
    one_line(&[&folder.file("empty", "")], &["no lines of `spec-run perplexity --shard`"]);
    one_line(&[&folder.path("gone")], &["gone"]);
    // By another version.
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let old = lines[0].replacen(&version, "\"version\":\"0.0.1\"", 1);
    let old = folder.file("old", with_checksum(&old));
    one_line(&[&a, &old], &["1.jsonl:1 and ", "old:1: shards of one run by the versions", "0.0.1"]);
    // Nor is another file added to.
    run(&args(&["--shard", "1/2", "--out", STORIES])).failed(1, &["stories-val.txt"]);
}

/// FNV-1a over what stands in the line before the checksum, as an array: what the program writes, by hand.
fn with_checksum(line: &str) -> String {
    let value: Value = serde_json::from_str(line).unwrap();
    let parts = ["run", "masks", "chunk", "sums", "provenance"].map(|part| value[part].to_string());
    let hashed = format!("[{}]", parts.join(","));
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let sum = hashed.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let at = line.find("\"checksum\":\"").unwrap() + 12;
    format!("{}{sum:016x}{}", &line[..at], &line[at + 16..])
}

/// Files of several texts are several results, each whole.
#[test]
fn texts_are_told_apart() {
    let folder = Folder::new();
    let cats = "The cat sat on the mat. Then she saw a bird and ran to it. ".repeat(20);
    let (out, other) = (folder.path("all"), folder.file("other", cats));
    let mut wholes = Vec::new();
    for text in [STORIES, &other] {
        for masks in [&[][..], &["--exit", "4"]] {
            let score = [&["perplexity", "-f", text, "-c", "64", "--chunks", "2"], masks].concat();
            // All into one file.
            ["2/2", "1/2"]
                .iter()
                .for_each(|part| drop(stdout(&[&score[..], &["--shard", part, "--out", &out]].concat())));
            wholes.push(comparable(&stdout(&[&score[..], &["--json"]].concat())));
        }
    }
    let json = merged(&[&out], &["--json"]).done();
    assert_eq!(json.lines().map(comparable).collect::<Vec<_>>(), wholes);
    let text = merged(&[&out], &[]).done();
    assert_eq!(text.matches("stories13m on text ").count(), 4, "{text}");
    // Without a file the lines go to standard output.
    let printed = stdout(&["perplexity", "-f", STORIES, "-c", "64", "--chunks", "2", "--shard", "1/1"]);
    let piped = folder.file("piped", &printed);
    assert_eq!(comparable(&merged(&[&piped], &["--json"]).done()), wholes[0]);
    merged(&[&out], &["--csv", &folder.path("csv")]).failed(2, &["--csv"]);
}

#[test]
fn shards_take_no_flags_of_whole_runs() {
    for (more, part) in [
        (&["--shard", "3/2"][..], "K/N"),
        (&["--shard", "1/2", "--json"], "--json"),
        (&["--shard", "1/2", "--resume", "x"], "--resume"),
        (&["--shard", "1/2", "--exit", "each", "--csv", "x"], "--csv"),
        (&["--out", "x"], "--shard"),
    ] {
        run(&args(more)).failed(2, &[part]);
    }
}
