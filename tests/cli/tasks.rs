//! HellaSwag, Winogrande and multiple choice beside llama-perplexity.
//!
//! Its numbers were recorded on 2026-11-23, with llama.cpp 0.5.0-dev as in llama-cpp-python 0.3.36, built by GCC 12.2, with
//! `-ctk f32 -ctv f32 -fa off -t 1 -np 5` and the arguments beside them.

use std::fs;

use serde_json::Value;

use crate::common::{
    fixture,
    program::{self, Folder, run, stdout},
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tasks/");
const CACHE: [&str; 4] = ["-ctk", "f32", "-ctv", "f32"];

/// `-m stories13m-f16.gguf -bf winogrande.csv --winogrande`: both scores, the choice, the right one. In 15 to 17 the words
/// themselves are scored; of 23 nothing is, and nothing of the first ending of 25.
#[rustfmt::skip]
const WINOGRANDE: [(f64, f64, u64, u64); 25] = [
    (-1.860354, -2.014287, 1, 2), (-1.859257, -1.985819, 1, 1), (-2.012402, -2.014857, 1, 1), (-3.920729, -3.871194, 2, 2),
    (-3.215760, -3.238886, 1, 2), (-4.481149, -4.341465, 2, 2), (-2.850003, -2.854809, 1, 1), (-5.421439, -5.263904, 2, 2),
    (-3.795853, -3.525517, 2, 1), (-3.127216, -3.445475, 1, 1), (-3.741407, -3.226280, 2, 2), (-6.651876, -6.379768, 2, 1),
    (-2.484569, -2.341313, 2, 2), (-1.302982, -2.097460, 1, 1), (-1.927139, -7.394454, 1, 1), (-2.211678, -13.184329, 1, 1),
    (-9.653872, -10.785562, 1, 1), (-2.208958, -2.999895, 1, 2), (-5.228277, -5.126970, 2, 1), (-5.323746, -5.488618, 1, 2),
    (-2.525450, -2.098523, 2, 2), (-7.953815, -7.484313, 2, 1), (f64::NAN, f64::NAN, 2, 1), (-2.791165, -2.811443, 1, 2),
    (f64::NAN, -3.066335, 2, 1),
];
/// The same with `--winogrande-tasks 9`, and `-f`, by which the last line is lost.
#[rustfmt::skip]
const WINOGRANDE_DRAWN: [(f64, f64, u64, u64); 9] = [
    (-3.741407, -3.226280, 2, 2), (f64::NAN, f64::NAN, 2, 1), (-2.211630, -13.184526, 1, 1), (-5.323722, -5.488531, 1, 2),
    (-1.860354, -2.014287, 1, 2), (-2.012403, -2.014857, 1, 1), (-4.481105, -4.341545, 2, 2), (-9.653872, -10.785562, 1, 1),
    (-5.228277, -5.126970, 2, 1),
];
/// `-m stories13m-q8_0.gguf -f hellaswag.txt --hellaswag`: which tasks are right, in the order in which they are drawn; with
/// `--hellaswag-tasks 12` the first twelve. Its last line is `40 60.00000000% [44.5959%, 73.6517%]`.
const HELLASWAG: &str = "1101111101010101100111001011001010110110";
/// `-m stories13m-q8_0.gguf -bf multiple_choice.bin --multiple-choice`; `Final result: 54.5455 +/- 10.8657`,
/// `Random chance: 26.1905`.
const MULTIPLE_CHOICE: &str = "1010011011000011010111";
/// The same with `--multiple-choice-tasks 7`; `Final result: 85.7143 +/- 14.2857`.
const MULTIPLE_CHOICE_DRAWN: &str = "1111110";

fn json(args: &[&str], file: &str, flags: &[&str]) -> Value {
    let file = format!("{FOLDER}{file}");
    let all = [&["perplexity", flags[0], &file, "--json"], &CACHE[..], &flags[1..], args].concat();
    program::json(&all)
}

fn rights(found: &Value) -> String {
    let answers = found["answers"].as_array().unwrap().iter();
    answers.map(|answer| if answer["right"].as_bool().unwrap() { '1' } else { '0' }).collect()
}

fn near(found: &Value, wanted: f64, off: f64) {
    let found = found.as_f64().unwrap();
    assert!((found - wanted).abs() <= off, "{found}, not {wanted}");
}

#[test]
fn winogrande_is_scored_as_llama_perplexity_does() {
    const TEST: &str = "winogrande_is_scored_as_llama_perplexity_does";
    let Some(model) = fixture(TEST, "models/stories13m-f16.gguf") else { return };
    let model = ["-m", model.to_str().unwrap()];
    for (flags, wanted) in [
        (&["-bf", "--winogrande"][..], &WINOGRANDE[..]),
        (&["-f", "--winogrande", "--winogrande-tasks", "9"], &WINOGRANDE_DRAWN),
    ] {
        let found = json(&model, "winogrande.csv", flags);
        let answers = found["answers"].as_array().unwrap();
        assert_eq!(answers.len(), wanted.len());
        for (answer, &(first, second, chosen, right)) in answers.iter().zip(wanted) {
            assert_eq!(answer["ending"].as_u64().unwrap() + 1, chosen, "{answer}");
            assert_eq!(answer["right"].as_bool().unwrap(), chosen == right, "{answer}");
            for (score, wanted) in answer["scores"].as_array().unwrap().iter().zip([first, second]) {
                match wanted.is_nan() {
                    true => assert!(score.is_null(), "{answer}"),
                    // Its own numbers move by 5e-4 with what else is in a batch.
                    false => near(score, wanted, 1e-3),
                }
            }
        }
    }
}

#[test]
fn hellaswag_is_scored_and_drawn_as_llama_perplexity_does() {
    let found = json(&[], "hellaswag.txt", &["-f", "--hellaswag"]);
    assert_eq!(rights(&found), HELLASWAG);
    near(&found["right"]["share"], 0.6, 1e-12);
    near(&found["right"]["interval"][0], 0.445959, 5e-7);
    near(&found["right"]["interval"][1], 0.736517, 5e-7);
    near(&found["chance"], 0.25, 1e-12);
    let few = json(&[], "hellaswag.txt", &["-f", "--hellaswag", "--hellaswag-tasks", "12"]);
    assert_eq!(rights(&few), HELLASWAG[..12]);
}

#[test]
fn multiple_choice_is_scored_and_drawn_as_llama_perplexity_does() {
    let found = json(&[], "multiple_choice.bin", &["-bf", "--multiple-choice"]);
    assert_eq!(rights(&found), MULTIPLE_CHOICE);
    near(&found["right"]["share"], 0.545455, 5e-7);
    near(&found["right"]["stderr"], 0.108657, 5e-7);
    near(&found["chance"], 0.261905, 5e-7);
    let flags = ["-bf", "--multiple-choice", "--multiple-choice-tasks", "7"];
    let few = json(&[], "multiple_choice.bin", &flags);
    assert_eq!(rights(&few), MULTIPLE_CHOICE_DRAWN);
    near(&few["right"]["stderr"], 0.142857, 5e-7);
}

/// A mask that leaves nothing out says what the model says; another one has scores of its own.
#[test]
fn a_mask_is_scored_beside_the_model() {
    let plain = json(&[], "multiple_choice.bin", &["-bf", "--multiple-choice"]);
    for (exit, same) in [("16", true), ("2", false)] {
        let found = json(&["--exit", exit], "multiple_choice.bin", &["-bf", "--multiple-choice"]);
        assert_eq!(found["full_right"], plain["right"]);
        let (answers, full) = (found["answers"].as_array().unwrap(), plain["answers"].as_array().unwrap());
        let agree = answers.iter().filter(|answer| answer["ending"] == answer["full"]["ending"]).count();
        assert_eq!(found["same_choice"]["n"], agree);
        let alike = answers.iter().zip(full).filter(|(a, b)| a["scores"] == b["scores"]).count();
        assert_eq!((alike == full.len(), alike == 0), (same, !same), "--exit {exit}");
        assert!(answers.iter().zip(full).all(|(a, b)| a["full"]["scores"] == b["scores"]));
        assert_eq!(found["provenance"]["mask"]["name"], format!("exit {exit}"));
    }
    let file = format!("{FOLDER}multiple_choice.bin");
    let said = stdout(&["perplexity", "-bf", &file, "--multiple-choice", "--skip-mlp", "5"]);
    assert!(said.starts_with("mask `mlp skips 5`\nmultiple choice: ") && said.lines().count() == 4, "{said}");
}

#[test]
fn what_is_no_file_of_tasks_is_one_line() {
    let folder = Folder::new();
    let story = folder.file("story", "Once upon a time\nthere was a dog.\n");
    let same = folder.file("same", "A dog\n0\nran.\nran.\nran.\nran.\n");
    let whole = fs::read(format!("{FOLDER}multiple_choice.bin")).unwrap();
    let cut = folder.file("cut", &whole[..whole.len() - 3]);
    let hellaswag = format!("{FOLDER}hellaswag.txt");
    for (args, code, part) in [
        (&["-f", &story, "--hellaswag"][..], 1, "2 lines, and each task of HellaSwag has 6"),
        (&["-f", &same, "--hellaswag"], 1, "task 1: an ending is the beginning of all others"),
        (&["-f", &story, "--winogrande"], 1, "no tasks of Winogrande; line 1: fewer than four commas"),
        (&["-bf", &cut, "--multiple-choice"], 1, "task 22 at byte"),
        (&["-f", &story, "--multiple-choice"], 1, "not a file of multiple choice tasks"),
        (
            &["-q", "-f", &hellaswag, "--hellaswag", "-c", "20"],
            1,
            "tokens and the context holds 20: a larger -c",
        ),
        (&["-f", &hellaswag, "--hellaswag", "--hellaswag-tasks", "0"], 2, "--hellaswag-tasks 0"),
        (&["-f", &hellaswag, "--hellaswag", "--exit", "each"], 2, "--hellaswag: one mask at a time"),
        (&["-f", &hellaswag, "--hellaswag", "--winogrande"], 2, "--winogrande"),
        (&["-f", &hellaswag, "--hellaswag-tasks", "9"], 2, "--hellaswag"),
        (&["--hellaswag"], 2, "--hellaswag: no tasks; name their file"),
    ] {
        run(&[&["perplexity"], args].concat()).refused(code, &[part]);
    }
}

#[test]
fn a_line_that_is_left_out_is_named() {
    let file = format!("{FOLDER}winogrande.csv");
    let said = run(&["perplexity", "-f", &file, "--winogrande", "--winogrande-tasks", "1"]).said();
    assert!(
        said.contains("warning: line 25 is left out, as llama-perplexity does: no newline ends it"),
        "{said}"
    );
}
