//! Models without some of their layers. What a whole model computes that skips these layers says what they must compute.

use std::{collections::BTreeMap, fs, sync::Arc};

use spec_run::{Gguf, Model, RunLayers, gguf::Value, mask::LayerBits};

use super::{SYNTH, done, fails, open};
use crate::common::{
    context,
    families::families,
    fixture, load, masked_logits, mtp,
    parts::Parts,
    program::{Folder, run_in},
};

/// The logits of a text, with some layers skipped.
fn logits(model: &Arc<Model>, text: &[u32], without: &[usize]) -> Vec<Vec<u32>> {
    let bits_of = |layer| if without.contains(&layer) { LayerBits::NONE } else { LayerBits::FULL };
    let mask = RunLayers::mask((0..model.n_layer()).map(bits_of).collect());
    masked_logits(&mut context(model, |_| {}), text, &mask)
}

/// Each layer of each architecture, and two together.
#[test]
fn a_model_without_layers_is_the_model_that_skips_them() {
    const TEST: &str = "a_model_without_layers_is_the_model_that_skips_them";
    // The input of each layer is a part of one tensor; each fourth layer is not told positions, which no list says.
    const REFUSED: [(&str, &[&[usize]]); 2] = [
        ("gemma4-e", &[&[0], &[1], &[2], &[3], &[4], &[5], &[0, 1]]),
        ("smollm3", &[&[0], &[1], &[2], &[0, 1]]),
    ];
    let folder = &Folder::new();
    let mut refused: BTreeMap<String, Vec<Vec<usize>>> = BTreeMap::new();
    for family in families() {
        let source = fixture(TEST, &format!("archs/{}.gguf", family.name)).unwrap();
        let n_layer = family.model.n_layer();
        for layers in (0..n_layer).map(|layer| vec![layer]).chain([vec![0, 1]]) {
            let list: Vec<_> = layers.iter().map(usize::to_string).collect();
            let args = format!(
                "quantize --force --prune-layers {} {} out.gguf COPY",
                list.join(","),
                source.display()
            );
            let output = run_in(folder, &args);
            if !output.status.success() {
                output.refused(1, &["--prune-layers"]);
                refused.entry(family.name.clone()).or_default().push(layers);
                continue;
            }
            let pruned = load(&folder.join("out.gguf"));
            assert_eq!(pruned.n_layer(), n_layer - layers.len());
            let text = &family.text()[..40];
            assert!(
                logits(&pruned, text, &[]) == logits(&family.model, text, &layers),
                "{} without {layers:?}",
                family.name
            );
        }
    }
    let expected = REFUSED.map(|(name, all)| (name.to_string(), all.iter().map(|l| l.to_vec()).collect()));
    assert_eq!(refused, BTreeMap::from(expected));
}

fn lists(gguf: &Gguf) -> BTreeMap<String, Value> {
    let all = gguf.metadata().iter().filter(|(key, _)| !key.starts_with("tokenizer."));
    all.map(|(key, value)| (key.to_string(), value.clone())).collect()
}

/// Lists with an entry for each layer lose the same entries, counts of layers go down, and all else stays.
#[test]
fn metadata_are_cut_with_the_layers() {
    const TEST: &str = "metadata_are_cut_with_the_layers";
    let folder = &Folder::new();
    for (name, layers, changed) in [
        (
            "nemotron_h",
            "0",
            vec![
                ("attention.head_count_kv", Value::from(vec![2i32, 0, 0])),
                ("feed_forward_length", Value::from(vec![0i32, 96, 0])),
            ],
        ),
        ("muse-glimmer", "1,2", vec![("attention.sliding_window_pattern", Value::from(vec![1i32, 0]))]),
        ("glm4moe", "0", vec![("leading_dense_block_count", Value::U32(0))]),
        ("deepseek2", "3", vec![]),
        // Each second layer has attention, by number: which have is said now.
        ("qwen35", "0", vec![("attention.recurrent_layers", Value::from(vec![false, true, false]))]),
        ("qwen35", "0,1", vec![]),
        // Each sixth layer sees everything.
        (
            "gemma3",
            "0",
            vec![(
                "attention.sliding_window_pattern",
                Value::from(vec![true, true, true, true, false, true]),
            )],
        ),
        ("gemma3", "0,5", vec![]),
    ] {
        let Some(source) = fixture(TEST, &format!("archs/{name}.gguf")) else { return };
        done(folder, &format!("quantize --force --prune-layers {layers} {} out.gguf COPY", source.display()));
        let (source, pruned) = (Gguf::open(&source).unwrap(), open(folder, "out.gguf"));
        let arch = source.metadata().str("general.architecture").unwrap().unwrap();
        let key = |name: &str| format!("{arch}.{name}");
        let mut expected = lists(&source);
        let left =
            source.metadata().u32(&key("block_count")).unwrap().unwrap() - layers.split(',').count() as u32;
        expected.insert(key("block_count"), Value::U32(left));
        expected.insert("general.quantization_version".into(), Value::U32(2));
        expected.extend(changed.into_iter().map(|(name, value)| (key(name), value)));
        let mut found = lists(&pruned);
        found.retain(|key, _| key != "general.file_type");
        expected.retain(|key, _| key != "general.file_type");
        assert_eq!(found, expected, "{name} without {layers}");
    }
}

/// A head for one token more stays behind the layers, or goes with its own.
#[test]
fn heads_for_further_tokens_stay_behind_the_layers() {
    let folder = &Folder::new();
    for sample in mtp::samples() {
        let (arch, n_layer) = (&sample.model.arch, sample.model.n_layer());
        let file = format!("{}/tests/data/mtp/{}.gguf", env!("CARGO_MANIFEST_DIR"), sample.name);
        let further = format!("{arch}.nextn_predict_layers");
        for (layer, heads) in [(0, 1), (n_layer, 0)] {
            done(folder, &format!("quantize --force --prune-layers {layer} {file} out.gguf COPY"));
            let pruned = load(&folder.join("out.gguf"));
            assert_eq!(pruned.gguf.metadata().u32(&further).unwrap(), Some(heads), "{}", sample.name);
            assert_eq!(pruned.n_layer(), n_layer - heads as usize);
            assert_eq!(pruned.has_mtp(), heads == 1 && sample.model.has_mtp(), "{}", sample.name);
        }
    }
}

/// A matrix is quantized by the importance that was counted for it under its old number.
#[test]
fn importance_goes_with_the_layers() {
    let folder = &Folder::new();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    folder.file("text.txt", "Once upon a time there was a little girl. ".repeat(20));
    done(folder, "imatrix -m in.gguf -f text.txt -c 64 --chunks 2 -o i.gguf");
    done(folder, "quantize --pure --imatrix i.gguf in.gguf whole.gguf Q4_K");
    done(folder, "quantize --pure --imatrix i.gguf --prune-layers 1 in.gguf pruned.gguf Q4_K");
    done(
        folder,
        "quantize --pure --imatrix i.gguf --exclude-weights blk.2. --prune-layers 1 in.gguf some.gguf Q4_K",
    );
    let [whole, pruned, some] = ["whole", "pruned", "some"].map(|name| open(folder, &format!("{name}.gguf")));
    assert_eq!(pruned.metadata().u32("quantize.imatrix.entries_count").unwrap(), Some(14));
    let mut differ = 0;
    for tensor in pruned.tensors() {
        let name = tensor.name.replace("blk.1.", "blk.2.");
        let expected = whole.bytes(whole.tensor(&name).unwrap());
        assert!(pruned.bytes(tensor) == expected, "{}", tensor.name);
        differ += usize::from(some.bytes(some.tensor(&tensor.name).unwrap()) != expected);
    }
    assert_eq!(pruned.tensors().len() + 9, whole.tensors().len());
    // Only matrices of the layer whose importance was left out, by the number that it had.
    assert!((1..=7).contains(&differ), "{differ}");
}

#[test]
fn layers_come_from_a_mask_too_and_what_cannot_be_left_out_is_one_line() {
    const TEST: &str = "layers_come_from_a_mask_too_and_what_cannot_be_left_out_is_one_line";
    let folder = &Folder::new();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    let masks = r#"{"schema": 1, "masks": [
        {"name": "part", "skip": {"attention": [0, 1], "mlp": [1]}},
        {"name": "whole", "skip": {"attention": [0, 2], "mlp": [2, 0]}},
        {"name": "nothing", "skip": {"attention": [], "mlp": []}},
        {"name": "back", "steps": [0, 2, 1]}]}"#;
    folder.file("masks.json", masks);
    done(folder, "quantize --draft-skip masks.json --mask whole in.gguf masked.gguf Q8_0");
    done(folder, "quantize --prune-layers 0,2 in.gguf named.gguf Q8_0");
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    assert!(read("masked.gguf") == read("named.gguf"));
    assert!(!done(folder, "-m named.gguf -p Once -n 4 --temp 0").is_empty());
    for (args, code, words) in [
        ("--prune-layers 0-2", 2, &["--prune-layers", "all 3 layers"][..]),
        ("--prune-layers 1,3", 1, &["--prune-layers", "layer 3", "0 to 2"]),
        ("--prune-layers one", 2, &["one", "3,5-8"]),
        ("--prune-layers 1 --draft-skip masks.json", 2, &["--draft-skip"]),
        ("--mask whole", 2, &["--draft-skip"]),
        ("--draft-skip masks.json", 1, &["layer 0 in part", "whole"]),
        ("--draft-skip masks.json --mask back", 1, &["layer 1 out of order"]),
        ("--draft-skip masks.json --mask nobody", 1, &["nobody", "part, whole"]),
        ("--draft-skip nothing.json", 1, &["nothing.json"]),
    ] {
        fails(folder, &format!("quantize {args} in.gguf out.gguf Q8_0"), code, words);
    }
    // Where llama.cpp goes by the layer's number, what is left must have experts on the same side of it.
    let Some(source) = fixture(TEST, "archs/ernie4_5-moe.gguf") else { return };
    let model = load(&source);
    let stepped = |step: u32| {
        let parts = Parts::of(&model.gguf).with("ernie4_5-moe.interleave_moe_layer_step", step);
        folder.file("step.gguf", parts.bytes());
    };
    stepped(2);
    fails(
        folder,
        "quantize --prune-layers 1 step.gguf out.gguf COPY",
        1,
        &["layer 2", "layer 1", "layer_step` 2"],
    );
    done(folder, "quantize --prune-layers 1,2 step.gguf out.gguf COPY");
    assert_eq!(load(&folder.join("out.gguf")).n_layer(), model.n_layer() - 2);
}
