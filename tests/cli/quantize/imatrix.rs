//! Importance matrices: what is counted, both formats of files, and what is quantized with them.

use std::fs;

use spec_run::{Gguf, Tokenizer, embedded, quant::GgmlType, tokenizer::EncodeOptions};

use super::{SYNTH, done, fails, open, tensor_bytes};
use crate::common::{
    parts::{Part, Parts, numbers},
    program::{Folder, names, run_in},
};

/// A text of two chunks of 64 tokens, and its tokens as each chunk has them.
fn text_and_chunks(folder: &Folder, gguf: &Gguf) -> Vec<u32> {
    // No part of it is like another: a chunk that is taken for another one has other sums.
    let stories = fs::read_to_string("models/stories-val.txt").unwrap();
    let text: String = stories.chars().take(900).collect();
    folder.file("text.txt", &text);
    let tokenizer = Tokenizer::from_gguf(gguf).unwrap();
    let mut tokens = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false });
    tokens.truncate(128);
    assert_eq!(tokens.len(), 128);
    tokens[64] = tokenizer.added_bos().unwrap();
    tokens
}

/// What the first layer's attention reads is the embeddings' norm: computed here from the file alone.
#[test]
fn an_importance_matrix_has_the_sums_of_squares() {
    let folder = &Folder::new();
    let model = embedded::open().unwrap();
    let tokens = text_and_chunks(folder, &model);
    for (file, threads) in [("one.gguf", 1), ("two.gguf", 2)] {
        done(folder, &format!("imatrix -f text.txt -c 64 --chunks 2 -o {file} -t {threads}"));
    }
    assert!(fs::read(folder.join("one.gguf")).unwrap() == fs::read(folder.join("two.gguf")).unwrap());
    let found = open(folder, "one.gguf");
    assert_eq!(found.metadata().u32("imatrix.chunk_count").unwrap(), Some(2));
    assert_eq!(found.metadata().u32("imatrix.chunk_size").unwrap(), Some(64));
    let (table, weight) = (numbers(&model, "token_embd.weight"), numbers(&model, "blk.0.attn_norm.weight"));
    let eps = model.metadata().f32("llama.attention.layer_norm_rms_epsilon").unwrap().unwrap();
    let dim = weight.len();
    let mut expected = vec![0f64; dim];
    for &token in &tokens {
        let x = &table[token as usize * dim..][..dim];
        let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / dim as f64;
        for ((sum, x), w) in expected.iter_mut().zip(x).zip(&weight) {
            *sum += f64::from(x * w).powi(2) / (mean + f64::from(eps));
        }
    }
    for name in ["attn_q", "attn_k", "attn_v"] {
        let name = format!("blk.0.{name}.weight");
        assert_eq!(numbers(&found, &format!("{name}.counts")), [128.0]);
        for (i, (ours, expected)) in
            numbers(&found, &format!("{name}.in_sum2")).iter().zip(&expected).enumerate()
        {
            assert!(
                (f64::from(*ours) / expected - 1.0).abs() < 1e-4,
                "{name}, column {i}: {ours}, {expected}"
            );
        }
    }
    // Every matrix of the layers, and no other tensor.
    let matrices =
        model.tensors().iter().filter(|t| t.name.starts_with("blk.") && t.shape.len() == 2).count();
    assert_eq!(found.tensors().len(), 2 * matrices);
}

#[test]
fn experts_are_counted_one_by_one() {
    let folder = &Folder::new();
    done(folder, &format!("synth -o in.gguf {SYNTH} --experts 8 --experts-used 2 --expert-ffn 256 -q f16"));
    text_and_chunks(folder, &open(folder, "in.gguf"));
    done(folder, "imatrix -m in.gguf -f text.txt -c 64 --chunks 2 -o i.gguf");
    let found = open(folder, "i.gguf");
    for layer in 0..3 {
        let of = |part: &str, what: &str| numbers(&found, &format!("blk.{layer}.{part}.weight.{what}"));
        let counts = of("ffn_gate_exps", "counts");
        assert_eq!((counts.len(), counts.iter().sum::<f32>()), (8, 256.0));
        assert_eq!(of("ffn_up_exps", "counts"), counts);
        assert_eq!(of("ffn_down_exps", "counts"), counts);
        // Each row went to two experts, so these have its squares twice; the router has them once.
        let (experts, router) = (of("ffn_gate_exps", "in_sum2"), of("ffn_gate_inp", "in_sum2"));
        for (column, once) in router.iter().enumerate() {
            let all: f32 = (0..8).map(|expert| experts[expert * router.len() + column]).sum();
            assert!((all / once - 2.0).abs() < 1e-3, "layer {layer}, column {column}: {all}, {once}");
        }
        assert!(of("ffn_down_exps", "in_sum2").iter().any(|&sum| sum > 0.0));
    }
    // A file of 8 experts has one row of importance for each.
    done(folder, "quantize --imatrix i.gguf in.gguf out.gguf Q2_K_S");
}

/// The same values in the older format.
fn as_dat(gguf: &Gguf) -> Vec<u8> {
    let names: Vec<_> = gguf.tensors().iter().filter_map(|t| t.name.strip_suffix(".in_sum2")).collect();
    let mut out = (names.len() as u32).to_le_bytes().to_vec();
    for name in names {
        let count = numbers(gguf, &format!("{name}.counts"))[0];
        let sums = numbers(gguf, &format!("{name}.in_sum2"));
        out.extend((name.len() as u32).to_le_bytes());
        out.extend(name.bytes());
        // Two calls, by which the values are to be divided.
        out.extend(2u32.to_le_bytes());
        out.extend((sums.len() as u32).to_le_bytes());
        out.extend(sums.iter().flat_map(|sum| (sum / count * 2.0).to_le_bytes()));
    }
    out.extend(2u32.to_le_bytes());
    out.extend([4, 0, 0, 0]);
    out.extend(b"text");
    out
}

#[test]
fn both_formats_of_importance_do_the_same_and_another_models_is_refused() {
    let folder = &Folder::new();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    let model = open(folder, "in.gguf");
    text_and_chunks(folder, &model);
    done(folder, "imatrix -m in.gguf -f text.txt -c 64 --chunks 2 -o i.gguf");
    let importance = open(folder, "i.gguf");
    let dat = as_dat(&importance);
    folder.file("i.dat", &dat);
    done(folder, "quantize in.gguf plain.gguf Q4_K_M");
    done(folder, "quantize --imatrix i.gguf in.gguf new.gguf Q4_K_M");
    done(folder, "quantize --imatrix i.dat in.gguf old.gguf Q4_K_M");
    let of = |name: &str| tensor_bytes(&open(folder, name));
    assert!(of("new.gguf") == of("old.gguf") && of("new.gguf") != of("plain.gguf"));
    let said = open(folder, "new.gguf");
    assert_eq!(said.metadata().str("quantize.imatrix.file").unwrap(), Some("i.gguf"));
    assert_eq!(said.metadata().u32("quantize.imatrix.entries_count").unwrap(), Some(21));

    folder.file("cut.dat", &dat[..dat.len() / 2]);
    folder.file("cut.gguf", &fs::read(folder.join("i.gguf")).unwrap()[..5000]);
    let other = |name: &str, edit: &dyn Fn(&str, &mut Vec<f32>) -> bool| {
        let mut parts = Parts::new().with("imatrix.chunk_count", 2u32);
        for tensor in importance.tensors() {
            let mut values = numbers(&importance, &tensor.name);
            if edit(&tensor.name, &mut values) {
                let shape = [values.len() as u64, 1];
                parts.tensors.push(Part::new(&tensor.name, GgmlType::F32, &shape, &values));
            }
        }
        folder.file(name, parts.bytes());
    };
    other("short.gguf", &|name, values| {
        if name.starts_with("blk.1.attn_q.weight.in") {
            values.truncate(128);
        }
        true
    });
    other("fewer.gguf", &|name, _| !name.starts_with("blk.2."));
    other("apart.gguf", &|name, _| !name.ends_with("counts"));
    other("nan.gguf", &|name, values| {
        if name.ends_with("in_sum2") {
            values[3] = f32::NAN;
        }
        true
    });
    done(
        folder,
        "synth -o small.gguf --layers 2 --dim 256 --ffn 512 --heads 4 --kv-heads 2 --vocab 2100 -q f16",
    );
    // With some entries only: tensors are those of a file without an importance matrix, or with one.
    let [plain, all] = ["plain.gguf", "new.gguf"].map(of);
    let names: Vec<String> = said.tensors().iter().map(|t| t.name.clone()).collect();
    for (args, is_used) in [
        (
            "--include-weights ffn_ --include-weights blk.0.",
            &(|name: &str| name.contains("ffn_") || name.contains("blk.0.")) as &dyn Fn(&str) -> bool,
        ),
        ("--exclude-weights blk.1. --exclude-weights attn_v", &|name| {
            !name.contains("blk.1.") && !name.contains("attn_v")
        }),
    ] {
        done(folder, &format!("quantize --force --imatrix i.gguf {args} in.gguf some.gguf Q4_K_M"));
        for (i, tensor) in of("some.gguf").into_iter().enumerate() {
            let wanted = if is_used(&names[i]) { &all[i] } else { &plain[i] };
            assert!(tensor == *wanted, "{args}: {}", names[i]);
        }
    }
    for (args, code, words) in [
        ("--imatrix i.gguf --include-weights nothing", 2, &["i.gguf", "no entry"][..]),
        ("--imatrix i.gguf --include-weights a --exclude-weights b", 2, &["--exclude-weights"]),
        ("--include-weights a", 2, &["--imatrix"]),
    ] {
        fails(folder, &format!("quantize {args} in.gguf out.gguf Q4_K_M"), code, words);
    }
    for (args, words) in [
        (
            "--imatrix short.gguf in.gguf",
            &["short.gguf", "blk.1.attn_q.weight", "128", "256", "another model"][..],
        ),
        ("--imatrix fewer.gguf in.gguf", &["layer 2", "another model"]),
        ("--imatrix i.gguf small.gguf", &["blk.2.", "2 layers", "another model"]),
        ("--imatrix apart.gguf in.gguf", &["counts", "missing"]),
        ("--imatrix nan.gguf in.gguf", &["NaN"]),
        ("--imatrix cut.dat in.gguf", &["cut.dat", "older format"]),
        ("--imatrix cut.gguf in.gguf", &["cut.gguf"]),
    ] {
        fails(folder, &format!("quantize {args} out.gguf Q4_K_M"), 1, words);
    }
    for (args, code, words) in [
        ("-f text.txt -c 4", 2, &["-c 4"][..]),
        ("-f text.txt -c 1000", 1, &["longer text"]),
        ("-f text.txt --chunks 0", 2, &["--chunks 0"]),
        ("-f text.txt -o i.gguf", 2, &["--force"]),
        ("-f nothing.txt", 1, &["nothing.txt"]),
    ] {
        fails(folder, &format!("imatrix -m in.gguf {args}"), code, words);
    }
}

/// What one run counts, parts of it count together: each from its own chunks, and each way of adding them up.
#[test]
fn matrices_of_parts_add_up_to_that_of_the_whole() {
    let folder = &Folder::new();
    done(folder, &format!("synth -o in.gguf {SYNTH} --experts 8 --experts-used 2 --expert-ffn 256 -q f16"));
    text_and_chunks(folder, &open(folder, "in.gguf"));
    let run = "imatrix -m in.gguf -f text.txt -c 32";
    done(folder, &format!("{run} --chunks 4 -o whole.gguf --no-ppl"));
    done(folder, &format!("{run} --chunks 1 -o a.gguf"));
    done(folder, &format!("{run} --chunk 1 --chunks 2 -o b.gguf"));
    done(folder, &format!("{run} --from-chunk 3 --chunks 1 -o c.gguf"));
    // Without a text nothing is run, so no model is asked for.
    done(folder, "imatrix --in-file a.gguf --in-file b.gguf,c.gguf -o sum.gguf");
    done(folder, &format!("{run} --in-file c.gguf --in-file a.gguf --chunk 1 --chunks 2 -o on.gguf"));
    let whole = open(folder, "whole.gguf");
    assert!(whole.tensors().iter().any(|t| t.name.contains("_exps") && t.name.ends_with("counts")));
    for (name, texts) in [("sum.gguf", 3), ("on.gguf", 3)] {
        let found = open(folder, name);
        assert_eq!(super::directory(&found), super::directory(&whole), "{name}");
        let (metadata, said) = (found.metadata(), |key: &str| found.metadata().u32(key).unwrap());
        assert_eq!([said("imatrix.chunk_count"), said("imatrix.chunk_size")], [Some(4), Some(32)], "{name}");
        let datasets: Vec<_> = metadata.strings("imatrix.datasets").unwrap().unwrap().iter().collect();
        assert_eq!(datasets, vec!["text.txt"; texts], "{name}");
        for tensor in whole.tensors() {
            let (ours, expected) = (numbers(&found, &tensor.name), numbers(&whole, &tensor.name));
            let exact = tensor.name.ends_with("counts");
            for (a, b) in ours.iter().zip(&expected) {
                assert!(a == b || !exact && (a / b - 1.0).abs() < 1e-5, "{name}: {}: {a}, {b}", tensor.name);
            }
        }
    }
}

/// A file of the older format.
struct Dat {
    /// Name, chunks and values.
    entries: Vec<(String, u32, Vec<f32>)>,
    chunks: u32,
    dataset: String,
}

/// Read by the format's description.
fn read_dat(bytes: &[u8]) -> Dat {
    let mut left = bytes;
    let mut take = |len: usize| {
        let (taken, rest) = left.split_at(len);
        left = rest;
        taken
    };
    fn number(bytes: &[u8]) -> u32 {
        u32::from_le_bytes(bytes.try_into().unwrap())
    }
    let count = number(take(4));
    let mut entries = Vec::new();
    for _ in 0..count {
        let len = number(take(4)) as usize;
        let name = String::from_utf8(take(len).to_vec()).unwrap();
        let (calls, len) = (number(take(4)), number(take(4)) as usize);
        let values = take(4 * len).chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect();
        entries.push((name, calls, values));
    }
    let (chunks, len) = (number(take(4)), number(take(4)) as usize);
    let dataset = String::from_utf8(take(len).to_vec()).unwrap();
    assert!(left.is_empty());
    Dat { entries, chunks, dataset }
}

/// The older format has means times chunks, with 1 for experts that no row chose; and is read as it is written.
#[test]
fn the_older_format_is_written_too() {
    let folder = &Folder::new();
    // So many experts that some are chosen by no row.
    done(folder, &format!("synth -o in.gguf {SYNTH} --experts 64 --experts-used 1 --expert-ffn 256 -q f16"));
    text_and_chunks(folder, &open(folder, "in.gguf"));
    let run_on = "imatrix -m in.gguf -f text.txt -c 32 --chunks 2";
    let said = run_in(folder, &format!("{run_on} -o new.gguf")).said();
    assert!(said.contains("no token chose"), "{said}");
    done(folder, &format!("{run_on} --output-format dat -o old.dat"));
    done(folder, "imatrix --in-file new.gguf --output-format dat -o converted.dat");
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    assert!(read("converted.dat") == read("old.dat"));

    let new = open(folder, "new.gguf");
    let Dat { entries, chunks, dataset } = read_dat(&read("old.dat"));
    assert_eq!((chunks, dataset.as_str()), (2, "text.txt"));
    let mut unchosen = 0;
    let names_of_new = new.tensors().iter().filter_map(|t| t.name.strip_suffix(".in_sum2"));
    assert!(names_of_new.eq(entries.iter().map(|(name, ..)| name.as_str())));
    for (name, calls, values) in &entries {
        let (sums, counts) =
            (numbers(&new, &format!("{name}.in_sum2")), numbers(&new, &format!("{name}.counts")));
        assert_eq!(*calls, (counts.iter().fold(0f32, |a, &b| a.max(b)) / 32.0).ceil() as u32, "{name}");
        let columns = sums.len() / counts.len();
        for (i, (value, sum)) in values.iter().zip(&sums).enumerate() {
            let count = counts[i / columns];
            unchosen += usize::from(count == 0.0);
            let mean = if count == 0.0 { 1.0 } else { sum / count };
            assert_eq!(*value, mean * *calls as f32, "{name}, {i}");
        }
    }
    assert!(unchosen > 0);

    // Back again: rows are chunks times their tokens, of all experts alike, so means are as they were.
    done(folder, "imatrix --in-file old.dat -c 32 -o back.gguf");
    done(folder, "imatrix --in-file back.gguf --output-format dat -o again.dat");
    assert!(read("again.dat") == read("old.dat"));
    for from in ["new.gguf", "old.dat", "back.gguf"] {
        done(folder, &format!("quantize --imatrix {from} --pure in.gguf {from}.q4.gguf Q4_0"));
    }
    let of = |name: &str| tensor_bytes(&open(folder, name));
    assert!(
        of("new.gguf.q4.gguf") == of("old.dat.q4.gguf") && of("new.gguf.q4.gguf") == of("back.gguf.q4.gguf")
    );
    // Both formats together, and on top of the older one.
    done(folder, "imatrix --in-file old.dat --in-file new.gguf -c 32 -o both.gguf");
    done(folder, &format!("{run_on} --in-file old.dat -o on.gguf"));
    let [both, on] = ["both.gguf", "on.gguf"].map(|name| open(folder, name));
    let counts = "blk.1.attn_q.weight.counts";
    assert_eq!([&both, &on].map(|gguf| numbers(gguf, counts)), [vec![128.0], vec![128.0]]);
    assert_eq!(super::directory(&both), super::directory(&new));
    assert_eq!(super::directory(&on), super::directory(&new));
}

#[test]
fn matrices_that_do_not_go_together_are_one_line() {
    let folder = &Folder::new();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    done(
        folder,
        "synth -o small.gguf --layers 1 --dim 128 --ffn 256 --heads 4 --kv-heads 2 --vocab 2100 -q f16",
    );
    text_and_chunks(folder, &open(folder, "in.gguf"));
    for model in ["in", "small"] {
        done(folder, &format!("imatrix -m {model}.gguf -f text.txt -c 32 --chunks 1 -o {model}.i.gguf"));
    }
    folder.file("cut.dat", [1, 0, 0, 0, 9]);
    for (args, code, words) in [
        (
            "--in-file in.i.gguf --in-file small.i.gguf",
            1,
            &["small.i.gguf", "blk.0.", "different models"][..],
        ),
        ("-m small.gguf -f text.txt --in-file in.i.gguf", 1, &["small.gguf", "blk.0.", "another model"]),
        ("-m in.gguf -f text.txt --in-file small.i.gguf", 1, &["in.gguf", "128", "256", "another model"]),
        ("--in-file in.i.gguf --in-file nothing.gguf", 1, &["nothing.gguf"]),
        ("--in-file in.gguf", 1, &["in.gguf", "no importance matrix"]),
        ("--in-file cut.dat", 1, &["cut.dat", "older format"]),
        ("--in-file in.i.gguf -c 4", 2, &["-c 4"]),
        ("--in-file in.i.gguf -o small.i.gguf", 2, &["small.i.gguf", "--force"]),
        ("--in-file in.i.gguf --output-format text", 2, &["text", "gguf", "dat"]),
        ("-m in.gguf -f text.txt -c 32 --chunk 99", 1, &["--chunk 99", "chunks of 32 tokens"]),
    ] {
        fails(folder, &format!("imatrix {args}"), code, words);
    }
    // In its own place.
    done(folder, "imatrix --in-file in.i.gguf,in.i.gguf --force -o in.i.gguf");
    let twice = open(folder, "in.i.gguf");
    assert_eq!(numbers(&twice, "blk.0.attn_q.weight.counts"), [64.0]);
    assert!(!names(folder).iter().any(|name| name.contains("imatrix.gguf")));
}
