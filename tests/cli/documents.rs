//! Every command that a document prints is run, and what it printed there is compared with what it prints now.
//!
//! In a `console` block a line `$ command` is run, and the lines behind it are its output, both streams together.
//! Times, speeds and sizes may differ (see [`shape`]); a line `[...]` stands for any number of lines. In a `sh` block every
//! command is run and must succeed. A block behind `<!-- not run: REASON -->` is left out, and the test says so;
//! behind `<!-- exit 1 -->` its commands must fail with that code.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::child::Start;

const DOCUMENTS: &[&str] = &["README.md", "models/README.md", "docs"];

/// A command of a document, with what the document prints behind it.
struct Example {
    line: usize,
    command: String,
    expected: Option<Vec<String>>,
    exit: i32,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in DOCUMENTS {
        let path = root().join(name);
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
            found.extend(entries.filter(|path| path.extension().is_some_and(|x| x == "md")));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The commands of a page; panics where a block of commands can neither be run nor says why not.
fn examples(name: &str, text: &str) -> Vec<Example> {
    let mut found = Vec::new();
    let (mut exit, mut left_out) = (0, None);
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    while let Some((at, line)) = lines.next() {
        if let Some(note) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) {
            if let Some(reason) = note.strip_prefix("not run: ") {
                left_out = Some(reason.to_owned());
            } else if let Some(code) = note.strip_prefix("exit ") {
                exit = code.parse().unwrap();
            }
            continue;
        }
        let Some(language) = line.strip_prefix("```") else {
            if !line.is_empty() {
                (exit, left_out) = (0, None);
            }
            continue;
        };
        let block: Vec<_> = lines.by_ref().take_while(|(_, line)| *line != "```").collect();
        match (language, left_out.take()) {
            ("sh" | "console", Some(reason)) => eprintln!("NOT RUN {name}:{at}: {reason}"),
            ("sh", None) => found.extend(shell(&block, exit)),
            ("console", None) => found.extend(console(&block, exit)),
            _ => {}
        }
        exit = 0;
    }
    found
}

/// Each command of a `sh` block; a line that ends in `\` goes on in the next.
fn shell(block: &[(usize, &str)], exit: i32) -> Vec<Example> {
    let mut commands: Vec<Example> = Vec::new();
    let mut goes_on = false;
    for &(line, text) in block {
        match commands.last_mut() {
            Some(last) if goes_on => {
                last.command.push('\n');
                last.command.push_str(text);
            }
            _ if text.is_empty() || text.starts_with('#') => {}
            _ => commands.push(Example { line, command: text.into(), expected: None, exit }),
        }
        goes_on = text.ends_with('\\');
    }
    commands
}

fn console(block: &[(usize, &str)], exit: i32) -> Vec<Example> {
    let mut commands: Vec<Example> = Vec::new();
    for &(line, text) in block {
        match (text.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => {
                commands.push(Example { line, command: command.into(), expected: Some(Vec::new()), exit });
            }
            (None, Some(last)) => last.expected.as_mut().unwrap().push(text.into()),
            (None, None) => panic!("line {line}: a console block begins with `$ command`"),
        }
    }
    commands
}

/// A line with what depends on the machine and the moment as `#`: numbers that stand before a unit, the devices, and what
/// drafting gave.
fn shape(line: &str) -> String {
    if line.starts_with("drafting") {
        return "drafting #".into();
    }
    const UNITS: &[&str] = &["tok/s", "ms", "s", "s,", "s)", "GB/s", "MB", "MiB", "GB", "times"];
    let words: Vec<_> = line.split_whitespace().collect();
    let number = |word: &str| word.trim_matches(['(', ',', '~']).parse::<f64>().is_ok();
    let unit = |word: &str| UNITS.contains(&word.trim_end_matches(['.', ',', ';', ':', ')']));
    let shaped = words.iter().enumerate().map(|(i, word)| match words.get(i + 1) {
        Some(next) if number(word) && unit(next) => "#".into(),
        Some(&"tokens") if number(word) && word.contains('.') => "#".into(),
        _ if matches!(*word, "avx512," | "avx2," | "i8mm," | "neon," | "scalar,") => "ISA,".into(),
        Some(&("thread" | "threads" | "threads," | "threads;")) if number(word) => "#".into(),
        _ => word.to_string(),
    });
    shaped.collect::<Vec<_>>().join(" ")
}

/// Whether the lines agree; a `[...]` among the expected ones stands for any lines.
fn agree(expected: &[String], got: &[String]) -> bool {
    match expected.split_first() {
        None => got.is_empty(),
        Some((first, rest)) if first == "[...]" => (0..=got.len()).any(|n| agree(rest, &got[n..])),
        Some((first, rest)) => got.split_first().is_some_and(|(g, others)| first == g && agree(rest, others)),
    }
}

/// What a reader of the documents has: a clone, a model and a text by the names that the pages use.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["models", "examples", "docs", "tests"] {
        symlink(root().join(name), folder.path().join(name)).unwrap();
    }
    symlink(root().join("models/stories13m-q8_0.gguf"), folder.path().join("model.gguf")).unwrap();
    symlink(root().join("models/stories-val.txt"), folder.path().join("text.txt")).unwrap();
    fs::write(folder.path().join("prompt.txt"), "Once upon a time, a little fox").unwrap();
    folder
}

/// Runs one command line in `sh`, both streams into one, as a terminal shows them.
fn run(folder: &Path, command: &str) -> (i32, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_spec-run"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        std::iter::once(program.parent().unwrap().to_owned()).chain(std::env::split_paths(&path)),
    );
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{}", command.replace("cargo run --release --", "spec-run"))])
        .current_dir(folder)
        .env("PATH", path.unwrap())
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .ended();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn every_printed_command_does_what_the_page_says() {
    let mut wrong = Vec::new();
    for path in documents() {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let folder = folder();
        for example in examples(&name, &fs::read_to_string(&path).unwrap()) {
            let at = format!("{name}:{}: {}", example.line, example.command);
            let (code, output) = run(folder.path(), &example.command);
            if code != example.exit {
                wrong.push(format!("{at}\nexit code {code}, not {}\n{output}", example.exit));
                continue;
            }
            let Some(expected) = example.expected else { continue };
            let lines = |lines: &mut dyn Iterator<Item = &str>| -> Vec<String> {
                lines.map(shape).filter(|line| !line.is_empty()).collect()
            };
            let expected = lines(&mut expected.iter().map(String::as_str));
            if !agree(&expected, &lines(&mut output.lines())) {
                wrong.push(format!("{at}\nprinted:\n{output}\nthe page says:\n{}", expected.join("\n")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} commands:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn a_page_that_says_something_else_is_noticed() {
    let of = |lines: &[&str]| lines.iter().map(|line| shape(line)).collect::<Vec<_>>();
    assert!(agree(&of(&["12 tok/s, seed 1"]), &of(&["99.5 tok/s, seed 1"])));
    assert!(!agree(&of(&["12 tok/s, seed 1"]), &of(&["12 tok/s, seed 2"])));
    assert!(agree(&of(&["a", "[...]", "d"]), &of(&["a", "b", "c", "d"])));
    assert!(!agree(&of(&["a", "[...]", "d"]), &of(&["a", "b"])));
    assert!(!agree(&of(&["a"]), &of(&["a", "b"])));
}
