//! `spec-run synth` from outside: the file is there whole or not at all, and no other is harmed.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

const SMALL: &str = "--layers 2 --dim 64 --ffn 96 --heads 4 --kv-heads 2";

fn synth(folder: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spec-run"));
    command.current_dir(folder).arg("synth").args(args.split_whitespace()).output().unwrap()
}

fn fails(folder: &Path, args: &str, code: i32, word: &str) {
    let output = synth(folder, args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args}: {message}");
    assert!(message.contains(word), "{args}: {message}");
    assert!(output.stdout.is_empty(), "{args}");
}

#[test]
fn a_file_is_overwritten_only_by_force_and_nothing_is_left_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, file) = (folder.path(), folder.path().join("m.gguf"));
    let output = synth(folder, &format!("-o m.gguf {SMALL} --json --seed 3"));
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Two tables of 2048, per layer q and output of 64, k and v of 32, the MLP, norms; by hand.
    assert_eq!(report["parameters"], 2 * 2048 * 64 + 2 * (64 * (64 + 32 + 32 + 64 + 3 * 96) + 2 * 64) + 64);
    let first = fs::read(&file).unwrap();
    fails(folder, &format!("-o m.gguf {SMALL} --seed 4"), 2, "--force");
    assert!(fs::read(&file).unwrap() == first);
    assert!(synth(folder, &format!("-o m.gguf {SMALL} --seed 4 --force")).status.success());
    assert!(fs::read(&file).unwrap() != first);
    assert!(synth(folder, &format!("-o m.gguf {SMALL} --seed 3 --force -t 1")).status.success());
    assert!(fs::read(&file).unwrap() == first);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
}

#[test]
fn wrong_arguments_name_the_flag_and_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("folder")).unwrap();
    for (args, code, word) in [
        ("--dim 64", 2, "--layers"),
        ("--layers 2 --dim 64 --ffn 96 --heads 5", 2, "--heads 5"),
        (&format!("{SMALL} --vocab 100"), 2, "--vocab 100"),
        (&format!("{SMALL} --skippable 1"), 2, "--epsilon"),
        (&format!("{SMALL} --epsilon 0.1"), 2, "--skippable"),
        (&format!("{SMALL} --skippable 1,2 --epsilon 0.1"), 1, "layer 2 does not exist"),
        (&format!("{SMALL} --skippable 1 --epsilon 2"), 2, "--epsilon 2"),
        (&format!("{SMALL} --quant q9_z"), 2, "q4_k_m"),
        (&format!("{SMALL} --vocab-from nothing.gguf"), 1, "nothing.gguf"),
        ("--like llama-70b --layers 4096 --ffn 16777216 --quant f32", 1, "GB are free"),
    ] {
        fails(folder, &format!("-o new.gguf {args}"), code, word);
    }
    fails(folder, &format!("-o folder --force {SMALL}"), 2, "not a regular file");
    fails(folder, &format!("-o nowhere/new.gguf {SMALL}"), 1, "nowhere/new.gguf");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
}

#[test]
fn a_model_is_widened_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let wide = folder.path().join("wide.gguf").display().to_string();
    let run = |args: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_spec-run")).args(args).output().unwrap()
    };
    let output = run(&["synth", "--widen", "2", "-o", &wide, "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(made["name"], "stories13m widened 2 times");
    let bytes = std::fs::metadata(&wide).unwrap().len();
    let tensors = made["tensor_bytes"].as_u64().unwrap();
    assert!(tensors < bytes && bytes < tensors + (1 << 20));
    let output = run(&["-m", &wide, "-p", "Once upon a", "-n", "3", "--temp", "0", "--json"]);
    let text: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(text["text"].as_str().unwrap().contains("time"), "{text}");
    for (args, part) in [
        (&["--widen", "1"][..], "--widen 1"),
        (&["--widen", "2", "--dim", "512"], "--widen"),
        (&["--widen", "2", "-q", "q4_0"], "--widen"),
        (&["--widen", "2"], "--force"),
        (&["-m", "x.gguf", "--like", "llama-1b"], "--widen"),
    ] {
        let output = run(&[&["synth", "-o", &wide][..], args].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(part) && errors.lines().count() == 1, "{args:?}: {errors}");
    }
}
