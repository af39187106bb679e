//! Files that the program writes, and files that it is asked to read without an end.

use std::fs;

use crate::common::run;

#[test]
fn a_table_is_not_written_over_a_file_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (text, csv) = (path("text"), path("table.csv"));
    fs::write(&text, "Once upon a time there was a little girl named Lily. ".repeat(8)).unwrap();
    fs::write(&csv, "mine").unwrap();
    let sweep = ["perplexity", "-f", &text, "-c", "32", "--chunks", "1", "--exit", "each", "--csv", &csv];
    let output = run(&sweep);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("--force") && errors.lines().count() == 1, "{errors}");
    assert_eq!(fs::read_to_string(&csv).unwrap(), "mine");
    let output = run(&[&sweep[..], &["--force"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read_to_string(&csv).unwrap().lines().count() > 10);
}

#[test]
fn a_report_is_not_written_over_a_file_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("page.html"), "mine").unwrap();
    let output = run(&["search", "-o", &path("skips.json"), "--report", &path("page.html")]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_to_string(path("page.html")).unwrap(), "mine");
}

#[test]
fn what_is_read_is_not_written_over_even_with_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (text, model, masks) = (path("text.html"), path("model.gguf"), path("skips.json"));
    fs::write(&text, "Once upon a time there was a little girl named Lily. ".repeat(8)).unwrap();
    fs::write(&model, "no model, which nobody finds out").unwrap();
    fs::write(&masks, "{}").unwrap();
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
        (&[&searches[..], &["-o", &path("new.json"), "--journal", &text]].concat(), &text),
        (&[&searches[..], &["-o", &path("new.json"), "--report", &text]].concat(), &text),
        (&vec!["synth", "--widen", "2", "-m", &model, "-o", &model, "--force"], &model),
        (&vec!["merge", &text, &masks, "--csv", &masks, "--force"], &masks),
        (&vec!["plot", &masks, &text, "-o", &text, "--force"], &text),
    ] {
        let before = fs::read(output).unwrap();
        let run = run(args);
        let errors = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(1), "{args:?}: {errors}");
        assert!(errors.contains(&format!("{output}: is the input too")), "{args:?}: {errors}");
        assert!(errors.lines().count() == 1 && fs::read(output).unwrap() == before, "{args:?}: {errors}");
    }
}

#[test]
fn a_folder_that_is_missing_is_said_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    // A model that is not there would be the first thing that the work finds.
    let (model, out) = (path("model.gguf"), path("nowhere/file.html"));
    let scores = ["perplexity", "-m", &model, "-p", "Once"];
    for args in [
        &["imatrix", "-m", &model, "-p", "Once", "-o", &out][..],
        &[&scores[..], &["--exit", "each", "--csv", &out]].concat(),
        &[&scores[..], &["--exit", "each", "--report", &out]].concat(),
        &[&scores[..], &["--kl-divergence-base", &out]].concat(),
        &[&scores[..], &["--resume", &out]].concat(),
        &["search", "-m", &model, "-o", &path("new.json"), "--report", &out],
        &["search", "-m", &model, "-o", &out],
    ] {
        let output = run(args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
        assert!(errors.contains("there is no folder") && errors.lines().count() == 1, "{args:?}: {errors}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn numbers_are_printed_though_their_file_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines").display().to_string();
    let text = "Once upon a time there was a little girl named Lily. ".repeat(8);
    let sweep = ["perplexity", "-p", &text, "-c", "32", "--chunks", "1", "--exit", "4,8"];
    assert!(run(&[&sweep[..], &["--shard", "1/1", "--out", &lines]].concat()).status.success());
    for args in [&sweep[..], &["merge", &lines]] {
        let output = run(&[args, &["--csv", "/dev/full"]].concat());
        let (said, errors) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(said.lines().count() > 2 && errors.contains("/dev/full"), "{said}{errors}");
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
    fs::write(&text, "Once upon a time there was a little girl named Lily. ".repeat(8)).unwrap();
    let shape = ["--layers", "2", "--dim", "64", "--heads", "2", "--ffn", "64", "-q", "f16"];
    for args in [
        &[&["synth", "-o", &model], &shape[..]].concat()[..],
        &["quantize", &model, &small, "Q8_0"],
        &["quantize", &model, &small, "Q4_0", "--force"],
        &[
            "perplexity",
            "-m",
            &small,
            "-f",
            &text,
            "-c",
            "32",
            "--chunks",
            "1",
            "--exit",
            "each",
            "--csv",
            &csv,
        ],
        &["-m", &small, "-p", "Once", "-n", "2", "--no-learn"],
    ] {
        let output = run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["a model.gguf", "small.gguf", "table.csv", "text"]);
}

#[cfg(windows)]
#[test]
fn what_is_written_to_nul_goes_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text").display().to_string();
    fs::write(&text, "Once upon a time there was a little girl named Lily. ".repeat(8)).unwrap();
    for nul in ["NUL", "nul"] {
        let output =
            run(&["perplexity", "-f", &text, "-c", "32", "--chunks", "1", "--exit", "each", "--csv", nul]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn numbers_beyond_all_bounds_are_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("skips.json").display().to_string();
    let most = u64::MAX.to_string();
    for args in [["--positions", &most], ["-c", "4294967295"]] {
        let output = run(&[&["search", "-o", &out], &args[..]].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(args[0]) && errors.lines().last().unwrap().contains(args[1]), "{errors}");
    }
}

#[cfg(unix)]
#[test]
fn devices_without_an_end_are_no_texts_and_no_models() {
    for (args, code, part) in [
        (&["tokenize", "-f", "/dev/zero"][..], 1, "larger than 1024 MiB"),
        (&["-f", "/dev/zero", "-n", "1"], 1, "larger than 1024 MiB"),
        (&["--no-mmap", "-m", "/dev/zero", "-p", "x"], 1, "not a GGUF file"),
        (
            &[
                "perplexity",
                "-p",
                "Once upon a time there was a little girl named Lily.",
                "-c",
                "8",
                "--resume",
                "/dev/zero",
            ],
            1,
            "larger than",
        ),
    ] {
        let output = run(args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.lines().last().unwrap().contains(part), "{args:?}: {errors}");
    }
}
