//! `spec-run synth` from outside: the file is there whole or not at all, and no other is harmed.

use std::{fs, path::Path};

use crate::common::{
    child::Ended,
    program::{Folder, json, run, run_in},
};

const SMALL: &str = "--layers 2 --dim 64 --ffn 96 --heads 4 --kv-heads 2";

fn synth(folder: &Path, args: &str) -> Ended {
    run_in(folder, &format!("synth {args}"))
}

fn fails(folder: &Path, args: &str, code: i32, word: &str) {
    synth(folder, args).failed(code, &[word]);
}

/// A model with experts that was made here, under masks with fewer of them.
#[test]
fn fewer_experts_are_a_mask_from_the_command_line() {
    let folder = &Folder::new();
    let experts = "--experts 8 --experts-used 4 --expert-ffn 32";
    synth(folder, &format!("-o m.gguf {SMALL} {experts} -q q8_0")).done();
    folder.file("text.txt", "Once upon a time there was a little girl who saw a big red ball. ".repeat(9));
    let run = |args: &str| run_in(folder, args);
    let perplexity = "perplexity -m m.gguf -f text.txt -c 64 --chunks 2 --json";
    let each = run(&format!("{perplexity} --experts each")).json();
    let rows = each["rows"].as_array().unwrap();
    assert_eq!((&each["sweep"], rows.len()), (&"experts".into(), 3), "{each}");
    let two = run(&format!("{perplexity} --experts 2")).json();
    assert_eq!((&rows[1]["experts"], &rows[1]["ppl"]), (&2.into(), &two["ppl"]));
    let text = |draft: &str| run(&format!("-m m.gguf -p Once -n 24 --temp 0 -q {draft}")).done();
    assert_eq!(text("--experts 1 --spec-draft-n-max 3"), text("--draft none"));
    run(&format!("{perplexity} --experts 4")).refused(1, &["--experts 4: each token goes through 4"]);
    run("-p Once -n 4 --experts 1").refused(1, &["no experts"]);
    run("-m m.gguf -p Once --experts each").refused(2, &["only `spec-run perplexity`"]);
    run("-m m.gguf -p Once --experts 0").refused(2, &["--experts"]);
}

#[test]
fn a_file_is_overwritten_only_by_force_and_nothing_is_left_beside_it() {
    let folder = &Folder::new();
    let file = folder.path("m.gguf");
    let report = synth(folder, &format!("-o m.gguf {SMALL} --json --seed 3")).json();
    // Two tables of 2048, per layer q and output of 64, k and v of 32, the MLP, norms; by hand.
    assert_eq!(report["parameters"], 2 * 2048 * 64 + 2 * (64 * (64 + 32 + 32 + 64 + 3 * 96) + 2 * 64) + 64);
    let first = fs::read(&file).unwrap();
    fails(folder, &format!("-o m.gguf {SMALL} --seed 4"), 2, "--force");
    assert!(fs::read(&file).unwrap() == first);
    synth(folder, &format!("-o m.gguf {SMALL} --seed 4 --force")).done();
    assert!(fs::read(&file).unwrap() != first);
    synth(folder, &format!("-o m.gguf {SMALL} --seed 3 --force -t 1")).done();
    assert!(fs::read(&file).unwrap() == first);
    assert_eq!(folder.names(), ["m.gguf"]);
}

#[test]
fn wrong_arguments_name_the_flag_and_leave_no_file() {
    let folder = &Folder::new();
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
    fails(folder, &format!("-o nowhere/new.gguf {SMALL}"), 1, "nowhere");
    assert_eq!(folder.names(), ["folder"]);
}

#[test]
fn a_model_is_widened_and_runs() {
    let folder = &Folder::new();
    let wide = folder.path("wide.gguf");
    let made = json(&["synth", "--widen", "2", "-o", &wide, "--json"]);
    assert_eq!(made["name"], "stories13m widened 2 times");
    let bytes = std::fs::metadata(&wide).unwrap().len();
    let tensors = made["tensor_bytes"].as_u64().unwrap();
    assert!(tensors < bytes && bytes < tensors + (1 << 20));
    let text = json(&["-m", &wide, "-p", "Once upon a", "-n", "3", "--temp", "0", "--json"]);
    assert!(text["text"].as_str().unwrap().contains("time"), "{text}");
    for (args, part) in [
        (&["--widen", "1"][..], "--widen 1"),
        (&["--widen", "2", "--dim", "512"], "--widen"),
        (&["--widen", "2", "-q", "q4_0"], "--widen"),
        (&["--widen", "2"], "--force"),
        (&["-m", "x.gguf", "--like", "llama-1b"], "--widen"),
    ] {
        run(&[&["synth", "-o", &wide][..], args].concat()).refused(2, &[part]);
    }
}

/// Before 40 GB are downloaded: what would go where, and how fast that may be. The card need not be there.
#[test]
fn a_model_that_is_not_there_is_planned_for() {
    let folder = &Folder::new();
    let plan = "--like llama-70b --quant q4_0 --dry-run --vram 24GiB --ram 64GiB --speeds 1000,50,3";
    let table = synth(folder, plan).done();
    let line =
        |begin: &str| table.lines().find(|l| l.starts_with(begin)).unwrap_or_else(|| panic!("{table}"));
    let number = |line: &str| line.split_whitespace().last().unwrap().parse::<f64>().unwrap();
    assert!(line("VRAM ").contains("layers 0,2,4,6") && line("RAM ").contains("layers 1,3,5,7"), "{table}");
    assert_eq!(number(line("whole layers, plain")), 1.0);
    // The design's arithmetic: 0.42 s a token, 2.5 to 3 times that with drafts that stay on the card.
    let rate = line("whole layers, plain").split_whitespace().rev().nth(1).unwrap().parse::<f64>().unwrap();
    assert!((2.0..3.3).contains(&rate), "{table}");
    assert!(number(line("what drafts run goes first")) > 2.0, "{table}");
    assert!(table.contains("1000 (given), 50 (given) and 3.00 (given) GB/s"), "{table}");
    assert!(table.contains("75 % of drafted tokens standing (assumed)"), "{table}");
    // By hand: 68.5 billion weights in layers, of which high planes are 2.5 bits (21.4 GB, with the scales) and low planes as
    // much. With all of them apart a draft reads 22 GB on the card with the head, and a token 428 ms of low planes and 64 ms of
    // crossings (four products of 80 layers, there and back) besides; some layers have room to be whole.
    let apart = line("low planes in RAM");
    let ms = |n: usize| apart.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).nth(n).unwrap();
    assert!((380.0..514.0).contains(&ms(0)) && (21.4..25.8).contains(&ms(1)), "{apart}");
    assert!(
        table.contains("by high planes 84, 75, 79, 78 % of drafted tokens standing (measured on"),
        "{table}"
    );
    let json = synth(folder, &format!("{plan} --json")).json();
    let of = &json["forecasts"]["planes"];
    assert!((of["token_ms"].as_f64().unwrap() - ms(0)).abs() < 0.01, "{of}");
    assert!((of["draft_ms"].as_f64().unwrap() - ms(1)).abs() < 0.01, "{of}");
    assert_eq!(json["planes_acceptance"]["chances"], serde_json::json!([0.84, 0.75, 0.79, 0.78]));
    assert_eq!(json["first"], "drafted");
    // A head alone reads nothing but itself for a draft, so all that a round takes beside that is a pass over what lies in RAM.
    for head in ["fitted", "eagle3"] {
        let of = &json["forecasts"]["heads"][head];
        let number =
            |way: &str, name: &str| of[way][name].as_f64().unwrap_or_else(|| panic!("{way} {name}: {of}"));
        let drafts = number("alone", "drafted") * number("alone", "draft_ms");
        assert!((number("alone", "round_ms") - drafts - number("alone", "verify_ms")).abs() < 1e-6, "{of}");
        assert!(number("alone", "gain") > 1.3 && number("in_steps", "draft_ms") < ms(1), "{of}");
    }
    assert!(table.lines().any(|line| line.starts_with("the fastest is ")), "{table}");
    // A mix of formats, by the high bits of all layers and by nothing else.
    let mixed = plan.replace("q4_0", "q4_k_m");
    let mixed = synth(folder, &format!("{mixed} --coarse all")).done();
    // Its tensors of six bits leave more room with two of them on the card.
    assert!(
        mixed.contains("all but two bits of layers 0-") && mixed.contains("\nall but two bits in RAM "),
        "{mixed}"
    );
    assert!(mixed.contains("\nhigh planes go to the GPU, low planes to RAM: "), "{mixed}");
    assert!(folder.names().is_empty());
    // What the lists say is what drafts skip.
    let skips = synth(folder, &format!("{plan} --skippable 40-79 --epsilon 0.1")).done();
    assert!(skips.lines().any(|l| l.starts_with("VRAM") && l.contains(" 0-")), "{skips}");
    for (args, code, word) in [
        ("--like llama-1b", 2, "--output"),
        ("--like llama-1b -o x.gguf --vram 24GiB", 2, "--dry-run"),
        ("--like llama-1b --dry-run --speeds 1,2", 2, "1000,50,3"),
        ("--like llama-1b --dry-run --vram much", 2, "--vram much"),
        ("--like llama-1b --dry-run --vram 1KiB", 1, "nothing fits"),
    ] {
        fails(folder, args, code, word);
    }
}
