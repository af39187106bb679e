//! `spec-run search` and the sweeps of `spec-run perplexity` from the outside.

use crate::common::{
    self,
    child::{Ended, Start},
    program::{Folder, json, program, run, stdout},
};
use spec_run::search::speed::{best, tokens_if_independent};
use std::{
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;

const STORY: &str = "Once upon a time there was a little girl named Lily. She liked to play in the park with her dog. \
    One day, Lily saw a big bird in a tall tree. The bird was sad because it could not find its nest. Lily wanted to \
    help the bird. She looked behind the tree and saw the nest on the ground. ";

/// Small enough for a test.
fn small(out: &str) -> Vec<&str> {
    vec!["search", "-o", out, "--positions", "64", "--trials", "5", "--width", "2", "--draft-max", "3"]
}

fn of_five_layers(out: &str, more: &[&str]) -> Ended {
    run(&[&small(out)[..], &["-m", common::five_layers()], more].concat())
}

#[test]
fn a_search_writes_masks_that_the_program_takes() {
    let folder = Folder::new();
    let (out, page) = (folder.path("skips.json"), folder.path("report.html"));
    let found = json(&[&small(&out)[..], &["--json", "--report", &page]].concat());
    let masks = found["masks"].as_array().unwrap();
    assert!(!masks.is_empty() && found["evaluated"].as_u64().unwrap() > 100);
    assert!(found["seconds"].as_f64().unwrap() > 0.0);
    for mask in masks {
        for key in ["agreement", "overlap", "cost"] {
            assert!((0.0..=1.5).contains(&mask[key].as_f64().unwrap()), "{mask}");
        }
        assert!(mask["predicted"]["speedup"].as_f64().unwrap() > 0.0, "{mask}");
    }
    let file: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!(file["masks"], found["masks"]);
    assert_eq!((&file["model"]["n_layer"], &file["provenance"]), (&16.into(), &found["provenance"]));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("stories13m"));
    for part in [":root{color-scheme:light dark}", "name=\"viewport\"", "overflow-x:auto", "<dt>command</dt>"]
    {
        assert!(html.contains(part), "{part}");
    }
    let journal = fs::read_to_string(format!("{out}.journal")).unwrap();
    for made in [&found["provenance"], &serde_json::from_str(journal.lines().nth(1).unwrap()).unwrap()] {
        let made: &Value = made.get("provenance").unwrap_or(made);
        assert_eq!(made["version"], env!("CARGO_PKG_VERSION"), "{made}");
        assert!(made["command"].as_str().unwrap().starts_with("spec-run search -o "), "{made}");
        assert_eq!(made["model"]["fingerprint"], found["provenance"]["model"]["fingerprint"]);
    }
    let fetches = ["src=", "href=\"http", "href=\"/", "url(", "@import", "<link", "<script"];
    assert!(fetches.iter().all(|part| !html.contains(part)), "self-contained");
    // A bar for each sublayer; the map has cells of its own.
    assert_eq!(html.matches(" bar\"").count(), 32);
    assert_eq!(html.matches("<rect class=\"cell").count() % 32, 0);

    // Another command reads it without a warning, and has the best mask first.
    let text = folder.file("text", STORY.repeat(2));
    let output = run(&["perplexity", "-f", &text, "-c", "64", "--draft-skip", &out, "--json"]);
    assert!(!output.said().contains("warning"), "{}", output.said());
    assert!(output.json()["agreement"].as_f64().unwrap() > 0.2);

    // The file is not overwritten unasked, and the journal makes the second run short.
    run(&small(&out)).refused(2, &["--force"]);
    let output = run(&[&small(&out)[..], &["--force", "--json"]].concat());
    assert!(output.said().contains("evaluations of an earlier run"), "{}", output.said());
    assert_eq!(output.json()["masks"], found["masks"]);
}

/// What took minutes is not lost with its file.
#[cfg(target_os = "linux")]
#[test]
fn masks_are_printed_though_their_file_cannot_be_written() {
    let folder = Folder::new();
    let (journal, page) = (folder.path("journal"), folder.path("report.html"));
    let more = ["--time", "0", "--journal", &journal, "--report", &page, "--json"];
    let output = run(&[&small("/dev/full")[..], &more].concat());
    output.broke_off(1, &["/dev/full"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!found["masks"].as_array().unwrap().is_empty());
    assert!(fs::read_to_string(&page).unwrap().contains("<svg"));
}

#[test]
fn a_killed_search_goes_on_where_it_was() {
    let folder = Folder::new();
    let (out, journal) = (folder.path("skips.json"), folder.path("skips.json.journal"));
    let read = || fs::read_to_string(&journal).unwrap_or_default();
    let whole_lines = |text: String| text[..text.rfind('\n').map_or(0, |end| end + 1)].to_string();
    // At the beginning, in the middle of the search, and as soon as there is the proof of a mask.
    let points: [fn(&str) -> bool; 3] = [
        |text| text.lines().count() >= 4,
        |text| text.lines().count() >= 40,
        |text| text.contains("{\"proof\""),
    ];
    let mut before = String::new();
    for reached in points {
        let mut child = program()
            .args(small(&out))
            .args(["-m", common::five_layers()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .start();
        let started = Instant::now();
        while !reached(&read()) && started.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait();
        assert!(reached(&read()) && !Path::new(&out).exists(), "killed in the middle");
        assert!(read().starts_with(&before), "nothing is evaluated again");
        before = whole_lines(read());
    }
    let first = of_five_layers(&out, &["--json"]).json();
    let text = read();
    assert!(text.starts_with(&before), "nothing is evaluated again");
    for kind in ["run", "costs", "steps", "measured"] {
        assert_eq!(text.matches(&format!("{{\"{kind}\":")).count(), 1, "{kind}");
    }
    let again = of_five_layers(&out, &["--json", "--force"]).json();
    for key in ["masks", "baselines"] {
        assert_eq!(again[key].to_string(), first[key].to_string());
    }
    assert_eq!(read(), text);
    // The journal belongs to this search: another text is another one.
    let text = folder.file("text", STORY.repeat(40));
    of_five_layers(&out, &["--force", "-f", &text]).failed(1, &["--journal"]);
}

#[test]
fn a_search_ends_when_its_time_is_up() {
    let folder = Folder::new();
    let out = folder.path("short.json");
    let run = |more: &[&str]| of_five_layers(&out, &[&["--json"], more].concat()).json();
    let short = run(&["--time", "0"]);
    let evaluated = |found: &Value| found["evaluated"].as_u64().unwrap();
    // The full model, and one that leaves something out.
    assert_eq!(evaluated(&short), 2);
    assert!(!short["masks"].as_array().unwrap().is_empty());
    // The same again is the same; with more time it goes on.
    assert_eq!(run(&["--time", "0", "--force"])["masks"], short["masks"]);
    assert!(evaluated(&run(&["--force"])) > 50);
}

/// Most of what it took came after the time was up: proofs, and twenty seconds of the loop.
#[test]
fn a_search_takes_about_twice_its_time() {
    let folder = Folder::new();
    let (out, text) = (folder.path("skips.json"), folder.file("text", STORY.repeat(40)));
    let started = Instant::now();
    let found = json(&["search", "-f", &text, "-o", &out, "--time", "2", "--json"]);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert!(!found["masks"].as_array().unwrap().is_empty());
    println!("{took:?}, {} candidates", found["evaluated"]);
}

#[test]
fn bad_input_gets_one_line() {
    let folder = Folder::new();
    let (out, text) = (folder.path("skips.json"), folder.file("text", STORY));
    let cases: [(&[&str], i32, &str); 10] = [
        (&["-f", &text], 1, "a longer text or a smaller -c"),
        (&["-f", "/nowhere/text"], 1, "/nowhere/text"),
        (&["--positions", "10"], 2, "--positions 10"),
        (&["-c", "8"], 2, "-c 8"),
        (&["--report", "plot.pdf"], 2, ".html or .svg"),
        (&["--objective", "beauty"], 2, "speed, agreement and perplexity"),
        (&["--max-cost", "0"], 2, "--max-cost 0"),
        (&["--width", "0"], 2, "--width 0"),
        (&["--time", "-1"], 2, "--time"),
        (&["--draft-max", "16"], 2, "at most 15"),
    ];
    for (args, code, part) in cases {
        run(&[&["search", "-o", &out], args].concat()).failed(code, &[part]);
        assert!(!Path::new(&out).exists(), "{args:?}");
    }
}

#[test]
fn exits_are_swept() {
    let folder = Folder::new();
    let (text, csv) = (folder.file("text", STORY.repeat(2)), folder.path("table.csv"));
    let base = ["perplexity", "-f", &text, "-c", "64", "--json"];
    let swept = json(&[&base[..], &["--exit", "each", "--csv", &csv]].concat());
    let rows = swept["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 15);
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"));
    assert_eq!(rows[5]["exit"], 6);
    assert!(
        number(&rows[0], "ppl") > number(&rows[7], "ppl")
            && number(&rows[7], "ppl") > number(&rows[14], "ppl")
    );
    assert!(rows.windows(2).all(|w| number(&w[0], "cost") < number(&w[1], "cost")));
    let file = fs::read_to_string(&csv).unwrap();
    let (comments, lines): (Vec<&str>, Vec<&str>) = file.lines().partition(|line| line.starts_with("# "));
    for what in ["version", "command", "model", "text", "device", "settings", "chunks", "interrupted: false"]
    {
        assert!(comments.iter().any(|line| line[2..].starts_with(what)), "{what} in {comments:?}");
    }
    assert_eq!(lines.len(), 16);
    let columns =
        "exit,ppl,delta_ppl,delta_stderr,agreement,overlap,kl,acceptance,cost,step,speedup,tok_s,layers";
    assert_eq!(lines[0], columns);

    // Line for line what a run with that mask alone says, but for the bucket of rare tokens.
    let single = json(&[&base[..], &["--exit", "6"]].concat());
    for key in ["ppl", "agreement"] {
        assert!((number(&rows[5], key) - number(&single, key)).abs() < 1e-9, "{key}");
    }
    assert!(number(&rows[5], "overlap") >= number(&single, "overlap") - 1e-6);
    assert!(number(&rows[5], "overlap") < number(&single, "overlap") + 0.05);
    assert!(number(&rows[5], "kl") <= number(&single, "kl") + 1e-6);
    assert!((number(&swept, "base_ppl") - number(&single, "base_ppl")).abs() < 1e-9);
    assert_eq!(swept["tokens"], single["tokens"]);
}

/// LayerSkip's sweep has this shape: a draft of very few layers is seldom right, one of nearly all saves nothing. By
/// the formula, from acceptance and bytes, so that no clock has a say; a few rows at once as on a machine where memory
/// binds.
#[test]
fn speed_over_exits_is_low_then_high_then_low() {
    let Some(text) = common::fixture("speed_over_exits_is_low_then_high_then_low", "text/stories-val.txt")
    else {
        return;
    };
    let text = text.display().to_string();
    let args = ["perplexity", "-f", &text, "-c", "128", "--chunks", "12", "--exit", "each", "--json"];
    let swept = json(&args);
    let rows: Vec<f64> = (0..9).map(|n| 1.0 + 0.05 * f64::from(n)).collect();
    let speedups: Vec<f64> = (swept["rows"].as_array().unwrap().iter())
        .map(|row| {
            let [acceptance, cost] = ["acceptance", "cost"].map(|key| row[key].as_f64().unwrap());
            best(8, |k| tokens_if_independent(acceptance, k), cost, |n| rows[n - 1]).speedup
        })
        .collect();
    println!("{speedups:.3?}");
    let peak = (0..15).max_by(|&a, &b| speedups[a].total_cmp(&speedups[b])).unwrap();
    assert!((1..10).contains(&peak), "after {} layers: {speedups:.3?}", peak + 1);
    assert!(speedups[peak] > 1.1 && speedups[0] < 0.98 * speedups[peak], "{speedups:.3?}");
    assert!(speedups[14] < 0.9 * speedups[peak], "{speedups:.3?}");
    // Up to the peak it rises and from there it falls, but for what 756 positions leave open.
    let steps = |range: &[f64]| range.windows(2).map(|w| w[1] / w[0]).collect::<Vec<_>>();
    assert!(steps(&speedups[..=peak]).iter().all(|&step| step > 0.985), "{speedups:.3?}");
    assert!(steps(&speedups[peak..]).iter().all(|&step| step < 1.015), "{speedups:.3?}");
}

#[test]
fn layers_are_swept() {
    let folder = Folder::new();
    let text = folder.file("text", STORY.repeat(2));
    let scored = |more: &[&str]| run(&[&["perplexity", "-f", &text, "-c", "64", "--json"], more].concat());
    let found = |more: &[&str]| scored(more).json();
    let mlp = found(&["--skip-mlp", "each"]);
    assert_eq!(mlp["rows"].as_array().unwrap().len(), 16);
    let third = found(&["--skip-mlp", "3"]);
    assert_eq!((&mlp["sweep"], &mlp["rows"][3]["mlp"]), (&"mlp".into(), &3.into()));
    assert_eq!(mlp["rows"][3]["ppl"], third["ppl"]);
    let beside = found(&["--skip-mlp", "each", "--skip-attn", "2"]);
    let pair = found(&["--skip-mlp", "3", "--skip-attn", "2"]);
    assert_eq!((&beside["sweep"], &beside["rows"][3]["ppl"]), (&"mlp".into(), &pair["ppl"]));
    let coarse = found(&["--coarse", "each"]);
    let fourth = found(&["--coarse", "4"]);
    assert_eq!((&coarse["sweep"], &coarse["rows"][4]["ppl"]), (&"coarse".into(), &fourth["ppl"]));
    let both = found(&["--skip-mlp", "each", "--skip-attn", "each"]);
    let layer = found(&["--skip-mlp", "3", "--skip-attn", "3"]);
    assert_eq!((&both["sweep"], &both["rows"][3]["ppl"]), (&"layer".into(), &layer["ppl"]));
    for (args, part) in [
        (&["--csv", "x.csv"][..], "--csv"),
        (&["--exit", "17"], "--exit 17"),
        (&["--exit", "0"], "--exit 0"),
        (&["--exit", "each,3"], "each stands alone"),
        (&["--exit", "3", "--coarse", "4"], "--coarse"),
    ] {
        scored(args).failed(2, &[part]);
    }
}

#[test]
fn masks_of_a_file_are_compared_in_one_run() {
    let folder = Folder::new();
    let [state, csv] = ["state", "table.csv"].map(|name| folder.path(name));
    let text = folder.file("text", STORY.repeat(4));
    let content = r#"{"schema": 1, "masks": [
        {"name": "calm, they say", "skip": {"attention": [9], "mlp": []}},
        {"name": "bold", "skip": {"attention": [6, 7, 8], "mlp": [6, 7, 8]}},
        {"name": "twice", "steps": [0, 1, 1, 2, 3, 4, 5, 15]}]}"#;
    let masks = folder.file("skips.json", content);
    let base = ["perplexity", "-f", &text, "-c", "64", "--draft-skip", &masks];
    let found = |more: &[&str]| json(&[&base[..], &["--json"], more].concat());
    let rows = found(&["--mask", "each"])["rows"].take();
    let names: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["mask"].as_str().unwrap()).collect();
    assert_eq!(names, ["calm, they say", "bold", "twice"]);
    let bold = found(&["--mask", "bold"]);
    assert_eq!((&bold["mask"], &bold["provenance"]["mask"]["name"]), (&"bold".into(), &"bold".into()));
    for (row, name) in rows.as_array().unwrap().iter().zip(["calm, they say", "bold", "twice"]) {
        assert_eq!(row["ppl"], found(&["--mask", name])["ppl"], "{name}");
        assert!(row["delta_stderr"].as_f64().unwrap() > 0.0, "{row}");
    }
    // Without a name it is the first, and says so.
    let said = stdout(&base);
    assert!(said.starts_with("mask `calm, they say`: attn skips 9\n"), "{said}");

    // Stopped after a chunk and gone on, it is the same; another set of masks is another run.
    let measured = |more: &[&str]| {
        let mut found = found(&[&["--mask", "each"], more].concat());
        for row in found["rows"].as_array_mut().unwrap() {
            ["step", "speedup", "tok_s"].iter().for_each(|key| row[key] = Value::Null);
        }
        found["rows"].take()
    };
    let whole = measured(&[]);
    assert_ne!(measured(&["--chunks", "1", "--resume", &state]), whole);
    assert_eq!(measured(&["--resume", &state, "--csv", &csv]), whole);
    run(&["perplexity", "-f", &text, "-c", "64", "--exit", "3,5", "--resume", &state]).failed(1, &["mask"]);
    let table = fs::read_to_string(&csv).unwrap();
    assert!(table.contains("\n\"calm, they say\",") && table.contains("# chunks: done "), "{table}");
}

#[test]
fn named_exits_are_compared() {
    let folder = Folder::new();
    let text = folder.file("text", STORY);
    let table = stdout(&["perplexity", "-f", &text, "-c", "64", "--chunks", "1", "--exit", "3,8"]);
    assert!(table.contains("(1 chunk, "), "{table}");
    let labels: Vec<&str> =
        table.lines().skip(2).take(2).map(|l| l.split_whitespace().next().unwrap()).collect();
    assert_eq!(labels, ["3", "8"]);
    // One chunk says nothing of an error, and every column is explained.
    assert!(table.lines().nth(2).unwrap().split_whitespace().nth(3) == Some("-"), "{table}");
    for column in table.lines().nth(1).unwrap().replace("Δ ", "Δ").split_whitespace().skip(1) {
        let column = column.replace('Δ', "Δ ");
        assert!(table.contains(&format!("\n{column}: ")), "{column} in {table}");
    }
}

/// Recurrent layers are searched as all others are, and what is found drafts plain decoding's text.
#[test]
fn a_recurrent_model_is_swept_and_searched() {
    const TEST: &str = "a_recurrent_model_is_swept_and_searched";
    let Some(model) = common::fixture(TEST, "archs/qwen35.gguf") else { return };
    let model = model.to_str().unwrap();
    let folder = Folder::new();
    let out = folder.path("skips.json");
    let found = json(&[&small(&out)[..], &["-m", model, "--json"]].concat());
    assert!(!found["masks"].as_array().unwrap().is_empty(), "{found}");

    let text = ["-f", "models/stories-val.txt", "-c", "96", "--chunks", "1", "--json"];
    for masks in [["--exit", "each"], ["--skip-attn", "each"]] {
        let swept = json(&[&["perplexity", "-m", model], &text[..], &masks].concat());
        for row in swept["rows"].as_array().unwrap() {
            assert!((0.0..=1.0).contains(&row["acceptance"].as_f64().unwrap()), "{row}");
        }
    }

    let texts = |draft: &[&str]| {
        let ask = ["-m", model, "-p", "Once upon a time", "-n", "64", "--temp", "0", "--ignore-eos"];
        json(&[&ask[..], &["--no-learn", "--json"], draft].concat())
    };
    let plain = texts(&["--draft", "none"]);
    let drafted = texts(&["--draft-skip", &out, "--draft-max", "3"]);
    assert_eq!(drafted["tokens"], plain["tokens"]);
    assert!(drafted["spec"]["drafted"].as_u64().unwrap() > 20, "{drafted}");
}

#[test]
fn states_that_do_not_fit_are_told_of() {
    let Some(model) = common::fixture("states_that_do_not_fit_are_told_of", "archs/mamba2.gguf") else {
        return;
    };
    let model = model.to_str().unwrap();
    let folder = Folder::new();
    let out = folder.path("skips.json");
    let words = ["200000000 positions", "--positions below 200000000", "GiB"];
    run(&["search", "-m", model, "-o", &out, "--positions", "200000000"]).refused(1, &words);
    assert!(folder.names().is_empty(), "and nothing is written");
}
