//! Ctrl-C and SIGTERM.
#![cfg(unix)]

use std::{
    fs,
    io::Read,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::common::{
    child::{Limited, Start},
    program::{Folder, program},
};
use serde_json::Value;

fn start(args: &[&str], stdin: Stdio) -> Limited {
    program().args(args).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).start()
}

/// How it ended, what it had printed, and how long that took.
fn end(mut child: Limited) -> (Option<i32>, String, Duration) {
    let started = Instant::now();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let code = child.wait().code();
    (code, text, started.elapsed())
}

/// A text that takes long, and a file that is there once a chunk is done.
fn long(folder: &Folder) -> [String; 3] {
    let text = "Once upon a time there was a dog. He ran to the park and saw a bird. ".repeat(3000);
    [folder.file("text", text), folder.path("state"), folder.path("table.csv")]
}

fn wait_for(path: &str) {
    let started = Instant::now();
    while !Path::new(path).exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "no {path}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_sweep_that_is_interrupted_keeps_what_it_has_and_ends_soon() {
    let folder = Folder::new();
    let [text, state, csv] = long(&folder);
    let args =
        ["perplexity", "-f", &text, "-c", "64", "--exit", "2,4", "--csv", &csv, "--resume", &state, "--json"];
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let child = start(&args, Stdio::null());
        wait_for(&state);
        child.signal(name);
        let (ended, printed, took) = end(child);
        assert_eq!(ended, Some(code));
        // A second on a machine of its own.
        assert!(took < Duration::from_secs(5), "{took:?}");
        let found: Value = serde_json::from_str(&printed).unwrap();
        let made = &found["provenance"];
        assert_eq!((&made["interrupted"], &made["chunks"]["done"]), (&true.into(), &found["chunks"]));
        assert!(found["chunks"].as_u64() < made["chunks"]["of"].as_u64(), "{made}");
        assert!(found["rows"][0]["ppl"].is_number() && found["rows"][0]["step"].is_null(), "{found}");
        let table = fs::read_to_string(&csv).unwrap();
        assert!(table.contains("# interrupted: true\n"), "{table}");
        fs::remove_file(&csv).unwrap();
        fs::remove_file(&state).unwrap();
    }
}

#[test]
fn perplexity_that_is_interrupted_keeps_what_it_has() {
    let folder = Folder::new();
    let [text, state, _] = long(&folder);
    let child = start(&["perplexity", "-f", &text, "-c", "64", "--resume", &state, "--json"], Stdio::null());
    wait_for(&state);
    child.signal("-INT");
    let (code, printed, _) = end(child);
    let found: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &found["provenance"]["interrupted"]), (Some(130), &true.into()));
}

#[test]
fn tasks_that_are_interrupted_are_counted() {
    let folder = Folder::new();
    let tasks = "A dog\n0\nran to the park.\nsat.\nate a cake and ran.\nwas red.\n".repeat(20_000);
    let tasks = folder.file("tasks", tasks);
    let args = ["perplexity", "-f", &tasks, "--hellaswag", "--hellaswag-tasks", "20000", "--json"];
    let mut child = start(&args, Stdio::null());
    // That it has loaded the model is said before the first task.
    let mut said = [0; 10];
    child.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    child.signal("-INT");
    let (code, printed, _) = end(child);
    let found: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &found["provenance"]["interrupted"]), (Some(130), &true.into()));
    let done = found["tasks"].as_u64().unwrap();
    assert!((1..20_000).contains(&done) && found["tasks_asked"] == 20_000, "{done}");
    assert_eq!(found["answers"].as_array().unwrap().len() as u64, done);
}

/// While a pipe is read there is nothing to keep: the first signal ends the process.
#[test]
fn a_signal_ends_a_wait_for_input() {
    for args in [&[][..], &["perplexity"], &["tokenize"]] {
        for (name, number) in [("-TERM", 15), ("-INT", 2)] {
            let mut child = start(args, Stdio::piped());
            let held = child.stdin.take();
            std::thread::sleep(Duration::from_millis(400));
            child.signal(name);
            let started = Instant::now();
            let status = child.wait();
            assert!(started.elapsed() < Duration::from_secs(5), "{args:?}");
            use std::os::unix::process::ExitStatusExt;
            assert_eq!(status.signal(), Some(number), "{args:?}: {status}");
            drop(held);
        }
    }
}

/// With so many rounds it is loaded again and again, for five seconds.
#[test]
fn a_signal_ends_bench_while_it_loads() {
    let mut child = start(&["bench", "-r", "100000"], Stdio::null());
    std::thread::sleep(Duration::from_secs(1));
    child.signal("-INT");
    let started = Instant::now();
    let status = child.wait();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(status.signal(), Some(2), "{status}");
}

#[test]
fn the_second_signal_ends_at_once() {
    // A chunk of a whole context takes long enough to be in the middle of it.
    let folder = Folder::new();
    let [text, state, _] = long(&folder);
    let args = ["perplexity", "-f", &text, "-c", "64", "--skip-mlp", "each", "--resume", &state];
    let mut child = start(&args, Stdio::null());
    wait_for(&state);
    // Stopped, it cannot see to the first before the second is there.
    child.signal("-STOP");
    child.signal("-INT");
    child.signal("-TERM");
    child.signal("-CONT");
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let code = child.wait().code();
    assert!(code == Some(130) || code == Some(143), "{code:?}");
    assert_eq!(text, "", "nothing was said at the end");
}
