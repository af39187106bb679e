//! `--dry-run`, for a person and for a program.

use crate::common;
use common::{
    gpu,
    program::{EMBEDDED, Folder, run, stdout},
};
use serde_json::{Value, json};

/// One object, and nothing else on stdout.
fn plan(args: &[&str]) -> Value {
    run(&[args, &["--dry-run", "--json"]].concat()).json()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn place<'p>(plan: &'p Value, name: &str) -> &'p Value {
    let places = plan["places"].as_array().unwrap();
    places.iter().find(|place| place["place"] == name).unwrap_or(&Value::Null)
}

/// All places' layers, in order.
fn layers(plan: &Value, sublayer: &str) -> Vec<u64> {
    let places = plan["places"].as_array().unwrap();
    let mut layers: Vec<u64> =
        places.iter().flat_map(|p| p[sublayer].as_array().unwrap()).map(|l| l.as_u64().unwrap()).collect();
    layers.sort_unstable();
    layers
}

#[test]
fn a_plan_for_programs_counts_the_bytes_of_the_file() {
    let inspected = run(&["inspect", "--json"]).json();
    let tensors = inspected["tensors"].as_array().unwrap();
    let bytes_of = |wanted: &dyn Fn(&str) -> bool| -> f64 {
        let wanted = tensors.iter().filter(|t| wanted(t["name"].as_str().unwrap()));
        wanted.map(|t| number(&t["bytes"])).sum()
    };
    let plan = plan(&["--device", "cpu", "--ram", "0", "--speeds", "-,20,1"]);
    let file = place(&plan, "file");
    assert_eq!(number(&file["bytes"]), bytes_of(&|_| true));
    let all: Vec<u64> = (0..16).collect();
    assert!(file["attention"] == json!(all) && file["mlp"] == json!(all) && file["head"] == true, "{file}");
    assert_eq!((layers(&plan, "attention"), layers(&plan, "mlp")), (all.clone(), all));
    // All of it at 1 GB/s: the head is the table of embeddings.
    assert!(bytes_of(&|name| name == "output.weight") == 0.0);
    let plain = &plan["forecasts"]["plain"];
    let token_ms = number(&plain["token_ms"]);
    let expected = 1e3 * bytes_of(&|_| true) / 1e9;
    assert!((token_ms / expected - 1.0).abs() < 1e-3, "{token_ms} {expected}");
    assert!((number(&plain["tok_s"]) * token_ms - 1e3).abs() < 1e-6 && number(&plain["gain"]) == 1.0);
    assert_eq!(plan["budgets"], json!({"vram": null, "ram": 0}));
    assert_eq!(plan["speeds"]["ram"], json!({"gb_s": 20.0, "origin": "given"}));
    assert_eq!((&plan["speeds"]["file"]["gb_s"], &plan["first"]), (&json!(1.0), &json!("whole_layers")));
    assert_eq!(plan["speeds"]["vram"]["origin"], "assumed");
    // Nothing drafts.
    for absent in [&plan["forecasts"]["whole_layers"], &plan["forecasts"]["drafted"], &plain["draft_ms"]] {
        assert!(absent.is_null(), "{plan}");
    }
}

/// The design's own case, of a model that nobody has here.
#[test]
fn the_70b_on_a_card_of_24_gib_is_an_object_too() {
    let speeds = ["--vram", "24GiB", "--ram", "48GiB", "--speeds", "1000,50,3"];
    let plan = plan(&[&["synth", "--like", "llama-70b"][..], &speeds].concat());
    let vram = place(&plan, "vram");
    let taken = number(&vram["bytes"]) + number(&vram["beside_bytes"]);
    assert!(taken <= number(&plan["budgets"]["vram"]) && taken > 23e9, "{vram}");
    assert_eq!(plan["budgets"]["vram"], 24u64 << 30);
    assert_eq!(layers(&plan, "attention"), (0..80).collect::<Vec<u64>>());
    assert_eq!(layers(&plan, "mlp"), (0..80).collect::<Vec<u64>>());
    let even = (0..80u64).step_by(2).all(|l| vram["mlp"].as_array().unwrap().contains(&json!(l)));
    assert!(even && plan["first"] == "drafted", "{vram}");
    let [plain, whole, drafted] = ["plain", "whole_layers", "drafted"].map(|name| &plan["forecasts"][name]);
    assert!(number(&plain["gain"]) == 1.0 && plain["drafted"] == 0);
    assert!(number(&drafted["gain"]) > 2.0 && number(&drafted["gain"]) > number(&whole["gain"]), "{plan}");
    // What makes up a round.
    let round = number(&drafted["drafted"]) * number(&drafted["draft_ms"]) + number(&drafted["verify_ms"]);
    assert!((number(&drafted["round_ms"]) - round).abs() < 1e-9 * round, "{drafted}");
    let rate = 1e3 * number(&drafted["tokens"]) / round;
    assert!((number(&drafted["tok_s"]) / rate - 1.0).abs() < 1e-9);
    assert_eq!(plan["acceptance"], json!({"chances": [0.75], "origin": "assumed"}));
}

/// With chances of one's own, by hand: a round gives `1 + a + a·b + a·b·b + ..` tokens.
#[test]
fn chances_of_drafted_tokens_can_be_given() {
    let line = "synth --like llama-70b --quant q4_0 --vram 24GiB --ram 64GiB --speeds 1000,50,3 --accept";
    let with = |chances: &str| plan(&[line.split(' ').collect(), vec![chances]].concat());
    let given = with("0.9,0.5");
    assert_eq!(given["acceptance"], json!({"chances": [0.9, 0.5], "origin": "given"}));
    let drafted = &given["forecasts"]["drafted"];
    let count = number(&drafted["drafted"]) as i32;
    let tokens = 1.0 + (0..count).map(|n| 0.9 * 0.5f64.powi(n)).sum::<f64>();
    assert!((number(&drafted["tokens"]) - tokens).abs() < 1e-9, "{drafted}");
    let (less, more) = (with("0.5"), with("0.95"));
    let rate = |plan: &Value| number(&plan["forecasts"]["drafted"]["tok_s"]);
    assert!(rate(&less) < rate(&given) && rate(&given) < rate(&more), "{less} {given} {more}");
    for wrong in ["1.5", "-0.1", "often", "", "0.8,,0.7", "nan"] {
        let line: Vec<&str> = line.split(' ').collect();
        run(&[&line[..], &[wrong, "--dry-run"]].concat()).refused(2, &[]);
    }
}

/// States of recurrent layers are said, and are in the sum.
#[test]
fn a_plan_has_the_states_of_recurrent_layers() {
    let hybrid = ["synth", "--like", "qwen3.5-4b", "--ram", "8GiB", "--speeds", "-,20,1"];
    let table = stdout(&[&hybrid[..], &["--dry-run"]].concat());
    let plan = plan(&hybrid);
    let states = &plan["states"];
    // 24 layers of 32 heads of 128 times 128, and a convolution of 4 over 8192 channels.
    assert_eq!(number(&states["state_bytes"]), 24.0 * 4.0 * (32.0 * 128.0 * 128.0 + 3.0 * 8192.0));
    // A row has these channels and two gates for each head; 64 rows can be gone through again.
    assert_eq!(number(&states["replay_row_bytes"]), 24.0 * 4.0 * (8192.0 + 64.0));
    assert_eq!(number(&states["replay_bytes"]), 64.0 * number(&states["replay_row_bytes"]));
    let both = number(&states["state_bytes"]) + number(&states["replay_bytes"]);
    assert_eq!(number(&states["bytes"]), number(&states["count"]) * both);
    // 8 layers of attention keep 4096 tokens, of 4 heads of 256 numbers each for keys and values, in halves.
    let kv = 8.0 * 4096.0 * 2.0 * 4.0 * 256.0 * 2.0;
    let beside = number(&place(&plan, "ram")["beside_bytes"]);
    // And the head's logits.
    let logits = 64.0 * 4.0 * 248_320.0;
    let rest = beside - number(&states["bytes"]) - kv;
    assert!((0.0..1.1 * logits).contains(&rest), "{beside}: {rest} more");
    let mib = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
    let line = table.lines().find(|line| line.starts_with("states ")).unwrap_or_else(|| panic!("{table}"));
    for name in ["state_bytes", "replay_bytes", "bytes"] {
        assert!(line.contains(&mib(number(&states[name]))), "{name}: {line}");
    }
    let plain = stdout(&["--device", "cpu", "--dry-run"]);
    assert!(!plain.contains("states"), "{plain}");
}

/// What is said to a person at the end is what a program reads.
#[test]
fn the_last_line_says_what_was_taken_and_why() {
    let small = ["synth", "--layers", "16", "--dim", "288", "--ffn", "768", "--heads", "6", "-q", "q8_0"];
    let cases = [
        (&small[..], ["11MiB", "500,50,3"], "whole layers go first: ", "whole_layers"),
        (
            &["synth", "--like", "llama-70b"],
            ["24GiB", "1000,50,3"],
            "what drafts run goes first: ",
            "drafted",
        ),
    ];
    for (model, [vram, speeds], words, name) in cases {
        let args = [model, &["--vram", vram, "--ram", "64GiB", "--speeds", speeds]].concat();
        let table = stdout(&[&args[..], &["--dry-run"]].concat());
        let last = table.lines().last().unwrap();
        assert!(last.starts_with(words), "{table}");
        let plan = plan(&args);
        assert_eq!(plan["first"], name);
        // The rate that the line names first is that of the placement taken, and the better one.
        let said: f64 = last[words.len()..].split(' ').next().unwrap().parse().unwrap();
        let rate = |of: &str| number(&plan["forecasts"][of]["tok_s"]);
        let best = rate("whole_layers").max(rate("drafted")).max(rate("plain"));
        assert!((said / best - 1.0).abs() < 0.01 && (rate(name) / best - 1.0).abs() < 1e-9, "{last} {plan}");
    }
}

/// Wherever there is the flag, it plans and ends.
#[test]
fn every_command_that_opens_a_model_can_be_asked_for_its_plan() {
    let folder = Folder::new();
    let text = folder.file("text.txt", "Once upon a time there was a cat. ".repeat(200));
    let masks = folder.path("skips.json");
    let commands: [&[&str]; 5] = [
        &["-p", "Once"],
        // A plan does not depend on a prompt.
        &["-m", EMBEDDED],
        &["bench"],
        &["perplexity", "-f", &text],
        &["search", "-f", &text, "-o", &masks],
    ];
    for command in commands {
        let args = [command, &["--device", "cpu", "--ram", "6MiB", "--speeds", "1,1,1"]].concat();
        let plan = plan(&args);
        assert!(place(&plan, "ram").is_object() && place(&plan, "file").is_object(), "{command:?}: {plan}");
        let table = stdout(&[&args[..], &["--dry-run"]].concat());
        assert!(table.starts_with("place ") && table.contains("whole layers, plain"), "{command:?}: {table}");
    }
    assert_eq!(folder.names(), ["text.txt"]);
}

/// Where nothing tells how much memory there is, no number is made up.
#[test]
fn no_budget_is_null() {
    let Some(device) = gpu::device("no_budget_is_null") else { return };
    if !device.contains("llvmpipe") {
        eprintln!("NOT RUN: no_budget_is_null: {device} tells how much memory it has");
        return;
    }
    let plan = plan(&["--device", &device, "--speeds", "1,1,1"]);
    assert_eq!(plan["budgets"], json!({"vram": null, "ram": null}));
    assert!(place(&plan, "vram")["head"] == true && place(&plan, "ram").is_null(), "{plan}");
}

/// A run puts things where its dry run said.
#[test]
fn a_run_does_as_planned() {
    let Some(device) = gpu::device("a_run_does_as_planned") else { return };
    let odd = "1,3,5,7,9,11,13,15";
    let base = ["-p", "Once upon a time", "-n", "8", "--temp", "0", "--skip-attn", odd, "--skip-mlp", odd];
    let device = ["--device", &device, "--vram", "12MiB", "-c", "256"];
    for (speeds, first) in
        [("500,50,3", "whole layers go first"), ("500,0.1,0.1", "what drafts run goes first")]
    {
        let args = [&base[..], &device, &["--speeds", speeds]].concat();
        let dry = stdout(&[&args[..], &["--dry-run"]].concat());
        let output = run(&[&args[..], &["-v"]].concat());
        let banner = output.said();
        assert!(output.status.success() && banner.contains(first), "{banner}");
        let places = |text: &str| -> Vec<String> {
            let said =
                |l: &&str| l.starts_with("VRAM  ") || l.starts_with("RAM  ") || l.contains(" expected; ");
            // How long rows take to cross is measured by each run anew, and the speed that is expected follows from it.
            let before_speed = |l: &str| l.split(':').next().unwrap_or_default().to_owned();
            text.lines().filter(said).map(before_speed).collect()
        };
        assert!(places(&dry).len() == 3 && places(&dry) == places(&banner), "{dry}\n{banner}");
    }
}

/// A text comes again from its plan, and what is no plan for the model is told of.
#[test]
fn a_plan_pins_the_placement() {
    let folder = Folder::new();
    let made = stdout(&["--device", "cpu", "--dry-run", "--json"]);
    let path = folder.file("plan.json", &made);
    let text = ["-p", "Once", "-n", "8", "--temp", "0", "--device", "cpu"];
    let with = |path: &str, more: &[&str]| run(&[&text[..], &["--placement", path], more].concat());
    assert_eq!(with(&path, &[]).done(), stdout(&text));
    with(&path, &["-ngl", "3"]).refused(2, &["--placement"]);
    with("nowhere.json", &[]).refused(1, &["nowhere.json"]);
    let deeper = made.replace("\"n_layer\":16", "\"n_layer\":17");
    let deeper = folder.file("deeper.json", deeper.replace("\"n_layer\": 16", "\"n_layer\": 17"));
    with(&deeper, &[]).refused(1, &[&deeper, "17 layers", "16", "--dry-run --json"]);
    let empty = folder.file("empty.json", "{}");
    with(&empty, &[]).refused(1, &[&empty, "places"]);
}
