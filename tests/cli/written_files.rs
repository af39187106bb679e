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
