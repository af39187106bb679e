//! What a token costs the CPU where a GPU computes: the whole program on a driver without hardware, which compiles
//! everything and runs nothing. `.ci/isa` says how.

use std::{collections::BTreeMap, path::Path};

use crate::common;
use common::program::{run, stdout};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/isa/token.csv");

/// CPU time may be so many times the table's: other machines are slower, and busy ones much.
const SLOWER: f64 = 5.0;

type Figures = BTreeMap<String, f64>;

/// `name number` on each line, with this between the two.
fn figures(text: &str, between: char) -> Figures {
    let lines = text.lines().filter_map(|line| line.split_once(between));
    lines.map(|(name, number)| (name.to_string(), number.parse().unwrap())).collect()
}

/// The flags of a run with plain kernels on the driver, whose proof is kept in `cache`.
fn plain(cache: &str) -> [&str; 6] {
    ["--device", "0", "--gpu-variant", "plain", "--gpu-cache", cache]
}

/// As the program sums up what it keeps.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A driver that runs nothing proves nothing. So what the program has found out of it is made to say that all is right.
fn vouch(cache: &Path) {
    let refused = run(&[&["-p", "Once", "-n", "1"][..], &plain(cache.to_str().unwrap())].concat());
    assert!(!refused.status.success(), "the driver runs kernels: it is no driver without hardware");
    let right = br#"{"fault":null,"flushes_halves":false,"norms_apart":false}"#;
    let is_proof =
        |path: &Path| path.extension().is_some_and(|name| name.to_string_lossy().starts_with("proof"));
    let kept = std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
    let proofs: Vec<_> = kept.filter(|path| is_proof(path)).collect();
    assert!(!proofs.is_empty(), "{}", refused.said());
    for path in proofs {
        std::fs::write(path, [&fnv1a(right).to_le_bytes()[..], right].concat()).unwrap();
    }
}

/// What the driver was told in a run over so many tokens.
fn counted(counts: &Path, cache: &str, tokens: &str) -> Figures {
    let text = ["-p", "Once", "-n", tokens, "--ignore-eos", "--temp", "0", "--draft", "none"];
    stdout(&[&text[..], &plain(cache)].concat());
    figures(&std::fs::read_to_string(counts).unwrap(), ' ')
}

#[test]
#[ignore = "it needs a driver without hardware: `.ci/isa` runs it"]
fn a_token_is_recorded_as_quickly_as_the_table_says() {
    let counts = std::env::var_os("NULL_GPU_COUNTS").expect("`.ci/isa` says where counts go");
    let cache = tempfile::tempdir().unwrap();
    vouch(cache.path());
    let cache = cache.path().to_str().unwrap();
    let [few, many] = ["8", "72"].map(|tokens| counted(Path::new(&counts), cache, tokens));
    let each = |name: &&str| (name.to_string(), (many[*name] - few[*name]) / 64.0);
    let mut token: Figures = ["dispatches", "barriers", "submissions"].iter().map(each).collect();
    let bench = ["bench", "--json", "--quick", "--prefill", "8", "--depths", "0", "-r", "9"];
    let bench = stdout(&[&bench[..], &plain(cache)].concat());
    let bench: serde_json::Value = serde_json::from_str(&bench).unwrap();
    // The quickest of many passes over one row, less the time that the driver was busy: what the program did meanwhile is
    // not in it, and neither is what else the machine did.
    let pass = bench["curve"][0]["min"].as_f64().unwrap();
    let busy: f64 = std::env::var("NULL_GPU_MICROSECONDS").unwrap().parse().unwrap();
    token.insert("microseconds".into(), (1000.0 * pass - busy).round());
    if std::env::var_os("SPEC_RUN_ISA_WRITE").is_some() {
        let lines = token.iter().map(|(name, x)| format!("{name},{x}\n"));
        return std::fs::write(TABLE, lines.collect::<String>()).unwrap();
    }
    println!("a token of the embedded model: {token:?}");
    let table = figures(&std::fs::read_to_string(TABLE).unwrap(), ',');
    for (name, was) in table {
        let most = if name == "microseconds" { SLOWER * was } else { was };
        assert!(token[&name] <= most, "{name} of a token: {}, the table says {was}", token[&name]);
    }
}
