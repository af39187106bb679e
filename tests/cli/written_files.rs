//! Files that the program writes, and files that it is asked to read without an end.

use std::fs;

use crate::common::program::{Folder, names, run, stdout};

/// Enough for a chunk or two.
const TEXT: &str = "Once upon a time there was a little girl named Lily. ";

#[test]
fn a_table_is_not_written_over_a_file_unasked() {
    let folder = Folder::new();
    let (text, csv) = (folder.file("text", TEXT.repeat(8)), folder.file("table.csv", "mine"));
    let sweep = ["perplexity", "-f", &text, "-c", "32", "--chunks", "1", "--exit", "each", "--csv", &csv];
    run(&sweep).refused(2, &["--force"]);
    assert_eq!(fs::read_to_string(&csv).unwrap(), "mine");
    stdout(&[&sweep[..], &["--force"]].concat());
    assert!(fs::read_to_string(&csv).unwrap().lines().count() > 10);
}

#[test]
fn a_report_is_not_written_over_a_file_unasked() {
    let folder = Folder::new();
    let page = folder.file("page.html", "mine");
    run(&["search", "-o", &folder.path("skips.json"), "--report", &page]).refused(2, &["--force"]);
    assert_eq!(fs::read_to_string(page).unwrap(), "mine");
}

#[test]
fn what_is_read_is_not_written_over_even_with_force() {
    let folder = Folder::new();
    let text = folder.file("text.html", TEXT.repeat(8));
    let model = folder.file("model.gguf", "no model, which nobody finds out");
    let masks = folder.file("skips.json", "{}");
    let new = folder.path("new.json");
    let scores = ["perplexity", "-m", &model, "-f", &text, "--force"];
    let sweeps = [&scores[..], &["--exit", "each"]].concat();
    let searches = ["search", "-m", &model, "-f", &text, "--force"];
    let sums = ["imatrix", "-m", &model, "-f", &text, "--force", "-o"];
    let masked = [&scores[..], &["--draft-skip", &masks, "--mask", "each", "--csv", &masks]].concat();
    for (args, output) in [
        (&[&sums[..], &[&model]].concat(), &model),
        (&[&sums[..], &[&text]].concat(), &text),
        (&[&sweeps[..], &["--csv", &model]].concat(), &model),
        (&[&sweeps[..], &["--csv", &text]].concat(), &text),
        (&[&sweeps[..], &["--report", &text]].concat(), &text),
        (&[&scores[..], &["--kl-divergence-base", &text]].concat(), &text),
        (&masked, &masks),
        (&[&searches[..], &["-o", &model]].concat(), &model),
        (&[&searches[..], &["-o", &text]].concat(), &text),
        (&[&searches[..], &["-o", &new, "--journal", &text]].concat(), &text),
        (&[&searches[..], &["-o", &new, "--report", &text]].concat(), &text),
        (&vec!["synth", "--widen", "2", "-m", &model, "-o", &model, "--force"], &model),
        (&vec!["merge", &text, &masks, "--csv", &masks, "--force"], &masks),
        (&vec!["plot", &masks, &text, "-o", &text, "--force"], &text),
    ] {
        let before = fs::read(output).unwrap();
        run(args).refused(1, &[&format!("{output}: is the input too")]);
        assert!(fs::read(output).unwrap() == before, "{args:?}");
    }
}

#[test]
fn a_folder_that_is_missing_is_said_before_the_work() {
    let folder = Folder::new();
    // A model that is not there would be the first thing that the work finds.
    let [model, out, new] = ["model.gguf", "nowhere/file.html", "new.json"].map(|name| folder.path(name));
    let scores = ["perplexity", "-m", &model, "-p", "Once"];
    for args in [
        &["imatrix", "-m", &model, "-p", "Once", "-o", &out][..],
        &[&scores[..], &["--exit", "each", "--csv", &out]].concat(),
        &[&scores[..], &["--exit", "each", "--report", &out]].concat(),
        &[&scores[..], &["--kl-divergence-base", &out]].concat(),
        &[&scores[..], &["--resume", &out]].concat(),
        &["search", "-m", &model, "-o", &new, "--report", &out],
        &["search", "-m", &model, "-o", &out],
    ] {
        run(args).refused(1, &["there is no folder"]);
    }
    assert!(folder.names().is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn numbers_are_printed_though_their_file_cannot_be_written() {
    let folder = Folder::new();
    let (lines, text) = (folder.path("lines"), TEXT.repeat(8));
    let sweep = ["perplexity", "-p", &text, "-c", "32", "--chunks", "1", "--exit", "4,8"];
    stdout(&[&sweep[..], &["--shard", "1/1", "--out", &lines]].concat());
    for args in [&sweep[..], &["merge", &lines]] {
        let output = run(&[args, &["--csv", "/dev/full"]].concat());
        output.broke_off(1, &["/dev/full"]);
        assert!(output.printed().lines().count() > 2, "{}", output.printed());
    }
}

/// Longer than the 260 characters that many of Windows' calls take, with spaces and letters of other scripts.
#[test]
fn long_paths_are_read_and_written() {
    let root = tempfile::tempdir().unwrap();
    let folder: std::path::PathBuf =
        [root.path()].into_iter().chain(vec!["a folder of mödels и других вещей".as_ref(); 10]).collect();
    fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let (model, small, text, csv) =
        (path("a model.gguf"), path("small.gguf"), path("text"), path("table.csv"));
    assert!(model.len() > 300);
    fs::write(&text, TEXT.repeat(8)).unwrap();
    let sweep = ["--exit", "each", "--csv", &csv];
    let shape = ["--layers", "2", "--dim", "64", "--heads", "2", "--ffn", "64", "-q", "f16"];
    for args in [
        &[&["synth", "-o", &model], &shape[..]].concat()[..],
        &["quantize", &model, &small, "Q8_0"],
        &["quantize", &model, &small, "Q4_0", "--force"],
        &[&["perplexity", "-m", &small, "-f", &text, "-c", "32", "--chunks", "1"], &sweep[..]].concat(),
        &["-m", &small, "-p", "Once", "-n", "2", "--no-learn"],
    ] {
        stdout(args);
    }
    assert_eq!(names(&folder), ["a model.gguf", "small.gguf", "table.csv", "text"]);
}

#[cfg(windows)]
#[test]
fn what_is_written_to_nul_goes_nowhere() {
    let folder = Folder::new();
    let text = folder.file("text", TEXT.repeat(8));
    for nul in ["NUL", "nul"] {
        stdout(&["perplexity", "-f", &text, "-c", "32", "--chunks", "1", "--exit", "each", "--csv", nul]);
    }
    assert_eq!(folder.names(), ["text"]);
}

#[test]
fn numbers_beyond_all_bounds_are_wrong_usage() {
    let folder = Folder::new();
    let out = folder.path("skips.json");
    let most = u64::MAX.to_string();
    for args in [["--positions", &most], ["-c", "4294967295"]] {
        run(&[&["search", "-o", &out], &args[..]].concat()).failed(2, &args);
    }
}

#[cfg(unix)]
#[test]
fn devices_without_an_end_are_no_texts_and_no_models() {
    for (args, part) in [
        (&["tokenize", "-f", "/dev/zero"][..], "larger than 1024 MiB"),
        (&["-f", "/dev/zero", "-n", "1"], "larger than 1024 MiB"),
        (&["--no-mmap", "-m", "/dev/zero", "-p", "x"], "not a GGUF file"),
        (&["perplexity", "-p", TEXT, "-c", "8", "--resume", "/dev/zero"], "larger than"),
    ] {
        run(args).failed(1, &[part]);
    }
}
