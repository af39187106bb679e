//! Models whose layers see a window: what they take, and what they say.

use crate::common::{
    fixture,
    program::{json, stdout},
};

/// Bytes beside the weights.
fn keys_and_values(args: &[&str]) -> u64 {
    let plan = json(&[args, &["--dry-run", "--json"]].concat());
    plan["places"].as_array().unwrap().iter().map(|place| place["beside_bytes"].as_u64().unwrap()).sum()
}

#[test]
fn a_plan_counts_what_windows_keep() {
    // At 4096 tokens, in F16: ten layers see all of them, the others 1024; 16 heads of 128. llama.cpp would keep
    // pad(1024 + 512, 256) cells for a window.
    let a_cell = 2 * 2 * 16 * 128;
    let theirs = a_cell * (10 * 4096 + 52 * 1536);
    let ours = keys_and_values(&["synth", "--like", "gemma3-27b", "--speeds", "-,20,1"]);
    // Room for 32 rows of logits where they are made, and where they are read, and for the best of them.
    let logits = 2 * 4 * 32 * 262_208 + (1 << 17);
    assert!(ours > theirs && (ours - logits) as f64 <= 1.15 * theirs as f64, "{ours} and {theirs}");

    let Some(model) = fixture("a_plan_counts_what_windows_keep", "archs/gemma3.gguf") else { return };
    let at = |more: &[&str]| {
        let model = ["-m", model.to_str().unwrap(), "--speeds", "-,20,1", "-c", "131072"];
        keys_and_values(&[&model[..], more].concat()) as f64
    };
    // One layer of seven sees everything; the others keep next to nothing of so long a context.
    let share = at(&[]) / at(&["--swa-full"]);
    assert!((1.0 / 7.0..1.06 / 7.0).contains(&share), "{share}");
}

/// A text far beyond the windows and the context, with drafts and without.
#[test]
fn windows_that_forget_tell_the_same_story() {
    for name in ["gemma3", "gpt-oss"] {
        let Some(path) = fixture("windows_that_forget_tell_the_same_story", &format!("archs/{name}.gguf"))
        else {
            return;
        };
        let tell = |more: &[&str]| {
            let told =
                ["-m", path.to_str().unwrap(), "-p", "Once upon a time", "--no-learn", "--temp", "0", "-q"];
            let long =
                ["-n", "900", "--ignore-eos", "-c", "700", "-ub", "64", "--context-shift", "--keep", "4"];
            stdout(&[&told[..], &long, more].concat())
        };
        let all = tell(&["--swa-full"]);
        assert!(all.len() > 900);
        for more in [&[][..], &["--draft-exit", "2", "--spec-draft-n-max", "5"], &["--spec-type", "ngram"]] {
            assert!(tell(more) == all, "{name}: {more:?}");
        }
    }
}
