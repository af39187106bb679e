//! The program on a GPU, from outside.

use serde_json::Value;

use crate::common;
use common::{
    gpu,
    program::{Folder, json, program, run, stdout},
};

/// All that it says.
fn stderr(args: &[&str]) -> String {
    run(&[args, &["-v"]].concat()).said()
}

/// What a list of devices has of one.
fn listed<'l>(list: &'l Value, device: &str) -> &'l Value {
    list["devices"].as_array().unwrap().iter().find(|found| found["name"] == device).unwrap()
}

#[test]
fn devices_are_listed_with_what_would_be_used() {
    let Some(device) = gpu::device("devices_are_listed_with_what_would_be_used") else { return };
    let text = stdout(&["devices"]);
    assert!(text.contains(&device) && text.contains("cpu: "), "{text}");
    let list = json(&["devices", "--json"]);
    let found = listed(&list, &device);
    assert!(found["max_binding_bytes"].as_u64().unwrap() >= 128 << 20, "{found}");
    assert!(found["problem"].is_null() && found["features"]["timestamps"].is_boolean(), "{found}");
    // Software is never the default.
    assert_eq!(list["default"] == device.as_str(), found["hardware"] == true);
}

/// The embedded model is sure enough of this text that rounding decides nothing in it.
#[test]
fn a_greedy_text_is_the_same_on_every_device() {
    let Some(device) = gpu::device("a_greedy_text_is_the_same_on_every_device") else { return };
    let tokens = |more: &[&str]| {
        let args = ["-p", "Once upon a time", "-n", "16", "--temp", "0", "--json"];
        json(&[&args, more].concat())["tokens"].clone()
    };
    let cpu = tokens(&["--device", "cpu"]);
    assert_eq!(cpu.as_array().unwrap().len(), 16);
    assert_eq!(tokens(&["--device", &device]), cpu);
    assert_eq!(tokens(&["--device", &device, "-ngl", "7"]), cpu);
    assert_eq!(tokens(&["--device", &device, "--vram", "8MiB"]), cpu);
    assert_eq!(tokens(&["--device", &device, "-ngl", "0"]), cpu);
}

#[test]
fn the_banner_says_what_runs_where() {
    let Some(device) = gpu::device("the_banner_says_what_runs_where") else { return };
    let whole = stderr(&["-n", "1", "--device", &device]);
    assert!(whole.contains("GPU, ") && whole.contains(&device), "{whole}");
    let half = stderr(&["-n", "1", "--device", &device, "-ngl", "8"]);
    assert!(half.contains("layers 8-15") && half.contains("layers 0-7") && half.contains("CPU, "), "{half}");
    let table = stdout(&["--dry-run", "--device", &device, "--vram", "8MiB"]);
    assert!(table.contains("VRAM budget 8.0 MiB") && table.contains("whole layers, plain"), "{table}");
    let profile = stderr(&["-n", "2", "--device", &device, "--profile"]);
    assert!(profile.contains("matmul q8_0 x1") && profile.contains("GB/s"), "{profile}");
    let each = "each token has";
    assert!(profile.contains(each) && profile.contains("1.00 submissions, 1.00 readbacks"), "{profile}");
    let longer = stderr(&["-n", "12", "--temp", "0", "--device", &device, "--profile", "--draft", "none"]);
    assert!(longer.contains("recording a dispatch: ") && longer.contains(" ns"), "{longer}");
}

#[test]
fn a_gpu_that_cannot_be_had_is_one_line() {
    let Some(device) = gpu::device("a_gpu_that_cannot_be_had_is_one_line") else { return };
    let fails = |args: &[&str], code: i32, words: &[&str]| {
        let output = run(args);
        let message = output.said();
        let lines: Vec<_> = message.lines().filter(|l| l.starts_with("spec-run: ")).collect();
        assert!(output.status.code() == Some(code) && output.stdout.is_empty(), "{args:?}: {message}");
        assert_eq!(lines.len(), 1, "{args:?}: {message}");
        assert!(words.iter().all(|word| lines[0].contains(word)), "{args:?}: {}", lines[0]);
    };
    fails(&["--device", "Voodoo 2"], 1, &["Voodoo 2", &device]);
    fails(&["--device", "", "-ngl", "3"], 1, &["--device", &device]);
    fails(&["--device", &device, "--vram", "24"], 2, &["--vram 24", "unit"]);
    fails(&["--device", &device, "--vram", "100KiB"], 1, &["nothing fits", "--vram"]);
    fails(&["--device", &device, "--vram", "6MiB", "-ngl", "16"], 1, &["-ngl 16", "MiB"]);
    // Asked for without a name, only hardware will do.
    if json(&["devices", "--json"])["default"] == "cpu" {
        fails(&["-ngl", "4", "--strict"], 1, &["no hardware GPU", &device]);
        let warned = stderr(&["-ngl", "4", "-n", "1"]);
        assert!(warned.contains("warning: -ngl 4: no hardware GPU was found"), "{warned}");
    }
}

/// The weights that RAM has no room for are read from the file as they are; it is the same model.
#[test]
fn what_stays_in_the_file_changes_nothing() {
    let tokens = |more: &[&str]| {
        let args = ["-p", "Once", "-n", "12", "--temp", "0", "--json", "--device", "cpu"];
        json(&[&args, more].concat())["tokens"].clone()
    };
    assert_eq!(tokens(&["--ram", "5MiB"]), tokens(&[]));
    let divided = stderr(&["-n", "1", "--device", "cpu", "--ram", "5MiB"]);
    assert!(divided.contains("file ") && divided.contains("RAM "), "{divided}");
    assert!(divided.find("file ") < divided.find("loaded in"), "{divided}");
}

#[test]
fn kernels_are_chosen_by_name() {
    let Some(device) = gpu::device("kernels_are_chosen_by_name") else { return };
    let forced = |name: &str| stderr(&["-n", "1", "--device", &device, "--gpu-variant", name]);
    assert!(forced("dot4").contains("dot4 kernels"), "{}", forced("dot4"));
    assert!(!forced("plain").contains("kernels"), "{}", forced("plain"));
    let refused = |name: &str, code: i32, words: &str| {
        let output = run(&["-n", "1", "--device", &device, "--gpu-variant", name]);
        let message = output.said();
        assert!(output.status.code() == Some(code) && message.contains(words), "{message}");
    };
    refused("dot8", 2, "auto, plain, dot4 or coop");
    if listed(&json(&["devices", "--json"]), &device)["features"]["cooperative matrices"] == false {
        refused("coop", 1, "--gpu-variant coop: the driver does not offer it");
    }
    let directory = Folder::new();
    let cache = directory.to_str().unwrap();
    let untried = stdout(&["devices", "--gpu-cache", cache]);
    assert!(untried.contains("not tried yet"), "{untried}");
    let tried = json(&["devices", "--try", "--json", "--gpu-cache", cache]);
    let tried = listed(&tried, &device);
    let scores = tried["kernels"]["tried"].as_array().unwrap();
    let is_right = |variant: &str| {
        let score = scores.iter().find(|score| score["variant"] == variant).expect(variant);
        assert!(score["fault"].is_null() && score["faster"].as_array().unwrap().len() == 3, "{score}");
    };
    is_right("dot4");
    if tried["features"]["cooperative matrices"] == true {
        is_right("coop");
    }
    assert!(tried["read_bytes_s"].as_f64().unwrap() > 0.0, "{tried}");
    assert!(tried["round_trip_s"].as_f64().unwrap() > 0.0, "{tried}");
    let kept = stdout(&["devices", "--gpu-cache", cache]);
    assert!(kept.contains("dot4: times as fast as plain"), "{kept}");
    assert!(kept.contains("reads its memory at ") && kept.contains(" us there and back"), "{kept}");
}

#[test]
fn a_new_device_is_tried_once_and_that_is_said() {
    let Some(device) = gpu::device("a_new_device_is_tried_once_and_that_is_said") else { return };
    let directory = Folder::new();
    let cache = directory.to_str().unwrap();
    let first = stderr(&["-n", "1", "--device", &device, "--gpu-cache", cache]);
    let line = format!("trying kernels on {device} (once) ...");
    assert_eq!(first.lines().filter(|l| **l == line).count(), 1, "{first}");
    let second = stderr(&["-n", "1", "--device", &device, "--gpu-cache", cache]);
    assert!(!second.contains("trying kernels"), "{second}");
    // What was measured is what plans rest on, unless told.
    let args = ["--dry-run", "--json", "--device", &device, "--gpu-cache", cache];
    let speeds = |more: &[&str]| json(&[&args[..], more].concat())["speeds"]["vram"].clone();
    let list = json(&["devices", "--json", "--gpu-cache", cache]);
    let (measured, known) = (speeds(&[]), listed(&list, &device)["read_bytes_s"].as_f64().unwrap() / 1e9);
    assert_eq!(measured["origin"], "measured");
    assert!((measured["gb_s"].as_f64().unwrap() / known - 1.0).abs() < 1e-9, "{measured}, {known}");
    let given = speeds(&["--speeds", "7,-,-"]);
    assert!(given["origin"] == "given" && given["gb_s"] == 7.0, "{given}");
    // Kernels that are named need no trial.
    let named = ["-n", "1", "--device", &device, "--gpu-cache", "none", "--gpu-variant", "plain"];
    assert!(!stderr(&named).contains("trying kernels"));
}

/// Every budget gives a plan or one line.
#[test]
fn no_budget_is_too_small_for_the_processor() {
    let base = ["-p", "Once", "-n", "8", "--temp", "0", "--json", "--device", "cpu"];
    let tokens = |more: &[&str]| json(&[&base[..], more].concat())["tokens"].clone();
    let all = tokens(&[]);
    for budget in [&["--ram", "0"][..], &["--ram", "100KiB"], &["--ram", "6MiB", "--skip-mlp", "2,5"]] {
        assert_eq!(tokens(budget), all, "{budget:?}");
    }
    // No GPU memory at all asks for no GPU.
    assert_eq!(json(&["-p", "Once", "-n", "8", "--temp", "0", "--json", "--vram", "0"])["tokens"], all);
    let table = stdout(&["--dry-run", "--device", "cpu", "--ram", "0", "--speeds", "-,20,1"]);
    let file = table.lines().find(|line| line.starts_with("file ")).unwrap_or_else(|| panic!("{table}"));
    assert!(file.ends_with("layers 0-15, head"), "{table}");
    assert!(table.contains("20 (given) and 1.00 (given) GB/s"), "{table}");
}

#[test]
fn a_dry_run_says_what_speculation_may_give_and_on_what_grounds() {
    let odd = "1,3,5,7,9,11,13,15";
    let table =
        stdout(&["--dry-run", "--device", "cpu", "--ram", "7MiB", "--skip-attn", odd, "--skip-mlp", odd]);
    assert!(table.contains("(assumed), ") && table.contains("(measured)"), "{table}");
    let gain = |line: &str| -> f64 {
        let line = table.lines().find(|l| l.starts_with(line)).unwrap_or_else(|| panic!("{table}"));
        line.split_whitespace().last().unwrap().parse().unwrap()
    };
    assert!(gain("what drafts run goes first") > gain("whole layers, drafting"), "{table}");
    let plain = stdout(&["--dry-run", "--device", "cpu", "--speeds", "1,1,1"]);
    assert!(plain.contains("whole layers, plain") && !plain.contains("drafting"), "{plain}");
}

#[test]
fn keys_and_values_that_do_not_fit_a_gpu_are_one_line_or_a_plan() {
    let Some(device) = gpu::device("keys_and_values_that_do_not_fit_a_gpu_are_one_line_or_a_plan") else {
        return;
    };
    // 16 layers of keys and values for so many tokens are a multiple of the budget.
    let args = ["--dry-run", "--device", &device, "--vram", "24MiB", "-c", "8192", "--speeds", "1,1,1"];
    let output = run(&args);
    let (table, errors) = (output.printed(), output.said());
    match output.status.code() {
        Some(0) => assert!(table.contains("VRAM budget 24.0 MiB") && table.contains("RAM "), "{table}"),
        code => {
            assert_eq!(code, Some(1), "{errors}");
            let last = errors.lines().last().unwrap();
            assert!(last.starts_with("spec-run: ") && last.contains("--vram"), "{errors}");
        }
    }
}

/// What drafts decide neither the places nor, with them, a bit: GPU and CPU round differently.
#[test]
fn texts_of_a_divided_model_are_the_same_whatever_drafts() {
    let Some(device) = gpu::device("texts_of_a_divided_model_are_the_same_whatever_drafts") else { return };
    let divided =
        ["--device", &device, "--gpu-variant", "plain", "--vram", "6MiB", "-c", "256", "--no-learn"];
    // So slow a RAM that what drafts run goes first.
    let forecast = ["--speeds", "1000,0.01,0.01"];
    let odd = "1,3,5,7,9,11,13,15";
    let mask = ["--skip-attn", odd, "--skip-mlp", odd];
    let text = ["-p", "Once upon a time", "-n", "12", "--ignore-eos", "--json", "--logprobs", "1"];
    let ran = |more: &[&[&str]]| {
        let out = json(&[&divided[..], &forecast, &text, &more.concat()].concat());
        (out["tokens"].clone(), out["logprobs"].clone())
    };
    let folder = Folder::new();
    let pinned = ["--placement", &folder.path("plan.json")];
    let plan = |more: &[&[&str]]| {
        let plan = json(&[&divided[..], &forecast, &["--dry-run", "--json"], &more.concat()].concat());
        folder.file("plan.json", plan.to_string());
        plan
    };
    assert_eq!(plan(&[&mask])["first"], "drafted");
    // Nor does how many rows run at once.
    let usual = plan(&[&mask]);
    for rows in ["3", "2000"] {
        let other = plan(&[&mask, &["-b", rows, "-ub", rows]]);
        let layers =
            |plan: &Value| (plan["places"][0]["attention"].clone(), plan["places"][0]["mlp"].clone());
        assert_eq!(layers(&other), layers(&usual), "-b {rows}");
    }
    plan(&[&mask]);
    let greedy = ["--temp", "0"];
    let drafts = ran(&[&greedy, &mask, &["--draft-max", "3"]]);
    assert!(!drafts.1.is_null());
    assert!(ran(&[&greedy, &mask, &["--draft-max", "0", "-b", "3"]]) == drafts);
    assert!(ran(&[&greedy, &pinned, &["--draft", "none"]]) == drafts, "pinned");
    let seeded = ["--temp", "0.9", "-s", "7"];
    assert!(
        ran(&[&seeded, &mask, &["--draft-max", "3"]]) == ran(&[&seeded, &mask, &["--draft", "none"]]),
        "seeded"
    );
    // The same with every mask and with none.
    let plain = ran(&[&greedy, &["--draft-max", "0"]]);
    assert!(ran(&[&greedy, &mask, &["--placement", "layers", "--draft-max", "3"]]) == plain, "layers");
    assert!(plain != drafts, "the two placements have the same bits: this shows nothing");
    assert_eq!(plan(&[&mask, &["--placement", "layers"]])["first"], "whole_layers");
    let again = plan(&[&["--placement", "layers"]]);
    let given = json(&[&divided[..], &["--dry-run", "--json"], &mask, &pinned].concat());
    assert_eq!((&given["first"], &given["places"]), (&serde_json::json!("given"), &again["places"]));
    // Pinned is pinned: nothing smaller is taken instead.
    let small = run(&["--device", &device, "--vram", "4MiB", "-n", "1", pinned[0], pinned[1]]);
    let message = small.said();
    assert!(small.status.code() == Some(1) && message.contains("the given placement takes "), "{message}");
}

/// What an earlier run found out is believed, so a file can play a device that is wrong.
#[test]
fn a_device_whose_kernels_are_wrong_is_not_used() {
    let Some(device) = gpu::device("a_device_whose_kernels_are_wrong_is_not_used") else { return };
    let directory = Folder::new();
    let cache = directory.to_str().unwrap();
    let args = ["-n", "1", "--device", &device, "--gpu-variant", "plain", "--gpu-cache", cache];
    run(&args).done();
    let proof = directory.names().into_iter().find(|name| name.ends_with(".proof")).expect("it is kept");
    let fault = br#"{"fault": "seven times eight is 54", "flushes_halves": false, "norms_apart": false}"#;
    // In front of what is kept is its sum, FNV-1a.
    let sum = fault
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    directory.file(&proof, [&sum.to_le_bytes()[..], fault].concat());
    let output = run(&args);
    let message = gpu::our_lines(&output, &mut program());
    assert!(output.status.code() == Some(1) && message.contains("seven times eight is 54"), "{message}");
    assert!(message.contains("--device cpu") && message.lines().count() == 1, "{message}");
    let listed = stdout(&["devices", "--gpu-cache", cache]);
    assert!(listed.contains("none is right") && listed.contains("seven times eight is 54"), "{listed}");
    assert!(listed.contains("not used, since its kernels are wrong: "), "{listed}");
}
