//! `spec-run quantize` and `spec-run imatrix` from outside.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use spec_run::{
    Gguf, Tokenizer, embedded,
    gguf::{Value, Writer},
    quant::{GgmlType, dequantize},
    tokenizer::EncodeOptions,
};

use crate::common::{
    fixture, load,
    nvfp4::{as_floats, as_it_is, bytes_in_nvfp4, is_matrix},
};

const SYNTH: &str = "--layers 3 --dim 256 --ffn 512 --heads 4 --kv-heads 2 --vocab 2100";

fn run(folder: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spec-run"));
    command.current_dir(folder).args(args.split_whitespace()).output().unwrap()
}

fn done(folder: &Path, args: &str) -> String {
    let output = run(folder, args);
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// One line, and the folder is as it was.
fn fails(folder: &Path, args: &str, code: i32, words: &[&str]) {
    let before = names(folder);
    let output = run(folder, args);
    let message = String::from_utf8(output.stderr).unwrap();
    let last = message.lines().last().unwrap_or_default();
    assert_eq!(output.status.code(), Some(code), "{args}: {message}");
    assert!(words.iter().all(|word| last.contains(word)), "{args}: {message}");
    assert!(output.stdout.is_empty(), "{args}");
    assert_eq!(names(folder), before, "{args}");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn numbers(gguf: &Gguf, name: &str) -> Vec<f32> {
    let tensor = gguf.tensor(name).unwrap_or_else(|| panic!("no {name}"));
    let mut numbers = vec![0.0; tensor.elements() as usize];
    dequantize(tensor.ty, gguf.bytes(tensor), &mut numbers);
    numbers
}

/// Names, types and shapes, in the order of the file.
fn directory(gguf: &Gguf) -> Vec<(String, GgmlType, Vec<u64>)> {
    gguf.tensors().iter().map(|t| (t.name.clone(), t.ty, t.shape.clone())).collect()
}

fn error(gguf: &Gguf, source: &Gguf) -> f64 {
    let of = |name: &str| -> f64 {
        let (a, b) = (numbers(gguf, name), numbers(source, name));
        a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum()
    };
    gguf.tensors().iter().map(|t| of(&t.name)).sum()
}

/// The fixtures are llama-quantize's own files of one model, without the rules of a mix.
#[test]
fn files_are_llama_quantizes_tensor_by_tensor() {
    const TEST: &str = "files_are_llama_quantizes_tensor_by_tensor";
    let Some(source) = fixture(TEST, "models/stories13m-f16.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let floats = Gguf::open(&source).unwrap();
    for name in ["q8_0", "q4_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs"] {
        let theirs = Gguf::open(&fixture(TEST, &format!("models/stories13m-{name}.gguf")).unwrap()).unwrap();
        let number = theirs.metadata().u32("general.file_type").unwrap().unwrap();
        done(folder.path(), &format!("quantize --pure --force {} ours.gguf {number}", source.display()));
        let ours = Gguf::open(&folder.path().join("ours.gguf")).unwrap();
        assert_eq!(directory(&ours), directory(&theirs), "{name}");
        let keys = |gguf: &Gguf| -> BTreeMap<String, Value> {
            gguf.metadata().iter().map(|(key, value)| (key.to_string(), value.clone())).collect()
        };
        assert_eq!(keys(&ours), keys(&theirs), "{name}");
        let (a, b) = (error(&ours, &floats), error(&theirs, &floats));
        assert!((a / b - 1.0).abs() < 0.002, "{name}: an error of {a}, theirs {b}");
    }
}

#[test]
fn threads_change_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &format!("synth -o in.gguf {SYNTH} --experts 8 --expert-ffn 256 -q bf16"));
    for ty in ["Q4_K_M", "Q3_K_S", "IQ4_XS", "Q8_0"] {
        let files: Vec<_> = [1, 2, 5]
            .map(|threads| {
                done(folder, &format!("quantize --force in.gguf out.gguf {ty} {threads}"));
                fs::read(folder.join("out.gguf")).unwrap()
            })
            .into();
        assert!(files[0] == files[1] && files[0] == files[2], "{ty}");
    }
    // What was written runs.
    assert!(!done(folder, "-m out.gguf -p Once -n 4 --temp 0").is_empty());
}

#[test]
fn a_dry_run_says_what_would_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    let args =
        "--tensor-type ffn_up=q8_0 --token-embedding-type q5_0 --output-tensor-type F16 in.gguf Q4_K_S";
    let dry: serde_json::Value =
        serde_json::from_str(&done(folder, &format!("quantize --dry-run --json {args}"))).unwrap();
    assert_eq!(names(folder), ["in.gguf"]);
    done(folder, &format!("quantize {args}"));
    assert_eq!(names(folder), ["ggml-model-Q4_K_S.gguf", "in.gguf"]);
    let path = folder.join("ggml-model-Q4_K_S.gguf");
    assert_eq!(dry["file_bytes"], fs::metadata(&path).unwrap().len());
    let gguf = Gguf::open(&path).unwrap();
    let said: Vec<_> =
        dry["tensors"].as_array().unwrap().iter().map(|t| t["type"].as_str().unwrap()).collect();
    let found: Vec<_> = gguf.tensors().iter().map(|t| t.ty.name()).collect();
    assert_eq!(said, found);
    let ty = |name: &str| gguf.tensor(name).unwrap().ty.name();
    assert_eq!(
        [
            "token_embd.weight",
            "output.weight",
            "blk.1.ffn_up.weight",
            "blk.1.ffn_gate.weight",
            "blk.1.attn_norm.weight"
        ]
        .map(ty),
        ["Q5_0", "F16", "Q8_0", "Q4_K", "F32"]
    );
    let text = done(folder, &format!("quantize --dry-run {args}"));
    assert_eq!(text.lines().count(), gguf.tensors().len() + 1, "{text}");
}

#[test]
fn what_cannot_be_written_is_one_line_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    done(folder, "quantize in.gguf q8.gguf Q8_0");
    done(folder, "synth -o narrow.gguf --layers 1 --dim 64 --ffn 96 --heads 4 -q f16");
    fs::write(folder.join("types.txt"), "attn_q=q8_0\nattn_v=q9").unwrap();
    for (args, code, words) in [
        ("in.gguf out.gguf Q9_Z", 2, &["Q9_Z", "Q4_K_M"][..]),
        ("in.gguf out.gguf", 2, &["out.gguf", "a type is missing"]),
        ("in.gguf out.gguf Q4_0 2 3", 2, &["3"]),
        ("in.gguf out.gguf Q4_0 many", 2, &["many", "threads"]),
        ("in.gguf in.gguf Q4_0", 2, &["in.gguf", "is the input"]),
        ("--force in.gguf ./in.gguf Q4_0", 2, &["is the input"]),
        ("in.gguf q8.gguf Q4_0", 2, &["q8.gguf", "--force"]),
        ("in.gguf nowhere/out.gguf Q4_0", 1, &["nowhere"]),
        ("nothing.gguf out.gguf Q4_0", 1, &["nothing.gguf"]),
        ("q8.gguf out.gguf Q4_0", 1, &["Q8_0 already", "--allow-requantize"]),
        ("in.gguf out.gguf Q2_K_S", 1, &["Q2_K_S", "--imatrix"]),
        ("--tensor-type nothing=q8_0 in.gguf out.gguf Q4_0", 2, &["--tensor-type", "nothing"]),
        ("--tensor-type attn_q in.gguf out.gguf Q4_0", 2, &["PATTERN=TYPE"]),
        ("--tensor-type attn_q=iq2_xs in.gguf out.gguf Q4_0", 2, &["IQ4_XS"]),
        (
            "--token-embedding-type q4_k narrow.gguf out.gguf Q8_0",
            1,
            &["token_embd.weight", "64", "Q4_K", "256"],
        ),
        ("--imatrix in.gguf in.gguf out.gguf Q4_K_M", 1, &["in.gguf", "no importance matrix"]),
        ("--override-kv general.name in.gguf out.gguf Q4_0", 2, &["KEY=TYPE:VALUE"]),
        (
            "--override-kv general.name=text:x in.gguf out.gguf Q4_0",
            2,
            &["text is not int, float, bool or str"],
        ),
        ("--override-kv x=int:-1 in.gguf out.gguf Q4_0", 2, &["-1 is not a whole number"]),
        ("--override-kv x=float:nan in.gguf out.gguf Q4_0", 2, &["nan is not a number"]),
        ("--tensor-type-file nothing.txt in.gguf out.gguf Q4_0", 1, &["nothing.txt"]),
        ("--tensor-type-file types.txt in.gguf out.gguf Q4_0", 1, &["types.txt", "attn_v=q9", "Q4_K"]),
        ("--imatrix /dev/null in.gguf out.gguf Q4_K_M", 1, &["importance matrix of the older format"]),
    ] {
        fails(folder, &format!("quantize {args}"), code, words);
    }
    // Rows that are too short for the mix fall back, and the result runs.
    let output = run(folder, "quantize narrow.gguf short.gguf Q4_K_M");
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stderr).contains("not whole blocks"),
        "{output:?}"
    );
    done(folder, "quantize --allow-requantize q8.gguf twice.gguf Q4_0");
    assert!(!done(folder, "-m short.gguf -p Once -n 4 --temp 0").is_empty());
}

#[test]
fn types_come_from_a_file_too_and_metadata_from_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    fs::write(folder.join("types.txt"), "attn_v=q8_0  attn_q=q5_1\n\nATTN_K=q6_k\n").unwrap();
    done(
        folder,
        "quantize --tensor-type attn_q=q5_0 --tensor-type-file types.txt --override-kv general.name=str:a=b:c \
         --override-kv new.count=int:4294967295 --override-kv new.share=float:-0.5 --override-kv new.flag=bool:true \
         --override-kv general.file_type=int:99 in.gguf out.gguf Q4_0",
    );
    let gguf = Gguf::open(&folder.join("out.gguf")).unwrap();
    for (name, ty) in [
        ("attn_q", GgmlType::Q5_0),
        ("attn_v", GgmlType::Q8_0),
        ("attn_k", GgmlType::Q6_K),
        ("attn_output", GgmlType::Q4_0),
    ] {
        assert_eq!(gguf.tensor(&format!("blk.1.{name}.weight")).unwrap().ty, ty, "{name}");
    }
    let metadata = gguf.metadata();
    assert_eq!(metadata.str("general.name").unwrap(), Some("a=b:c"));
    assert_eq!(metadata.u32("general.file_type").unwrap(), Some(99));
    assert_eq!(metadata.u32("new.count").unwrap(), Some(u32::MAX));
    assert_eq!(metadata.f32("new.share").unwrap(), Some(-0.5));
    assert_eq!(metadata.bool("new.flag").unwrap(), Some(true));
}

/// NVFP4's factors are multiplied into the numbers, and no longer stand beside them.
#[test]
fn factors_beside_weights_become_part_of_them() {
    const TEST: &str = "factors_beside_weights_become_part_of_them";
    let Some(source) = fixture(TEST, "archs/qwen3moe.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let bytes = bytes_in_nvfp4(&load(&source), is_matrix, |expert| expert % 3, as_it_is);
    fs::write(folder.join("in.gguf"), &bytes).unwrap();
    fails(folder, "quantize in.gguf out.gguf F32", 1, &["NVFP4 already", "--allow-requantize"]);
    done(folder, "quantize --allow-requantize in.gguf out.gguf F32");
    let expected = as_floats(&Gguf::from_bytes("in", bytes).unwrap());
    let got = Gguf::open(&folder.join("out.gguf")).unwrap();
    assert!(expected.tensors().iter().any(|tensor| tensor.name.contains("_exps")));
    let sorted = |gguf| {
        let mut directory = directory(gguf);
        directory.sort_by(|a, b| a.0.cmp(&b.0));
        directory
    };
    assert_eq!(sorted(&got), sorted(&expected));
    for tensor in got.tensors() {
        assert!(numbers(&got, &tensor.name) == numbers(&expected, &tensor.name), "{}", tensor.name);
    }
    done(folder, "quantize in.gguf copy.gguf COPY");
    let [copy, source] = ["copy.gguf", "in.gguf"].map(|name| Gguf::open(&folder.join(name)).unwrap());
    assert_eq!(sorted(&copy), sorted(&source));
}

/// The file is longer than the shell allows, which is what a full disk is to a program.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    let limited = format!(
        "trap '' XFSZ; ulimit -f 400; exec {} quantize in.gguf out.gguf Q8_0",
        env!("CARGO_BIN_EXE_spec-run")
    );
    let output = Command::new("sh").current_dir(folder).args(["-c", &limited]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), message.lines().count()), (Some(1), 1), "{message}");
    assert!(message.contains("out.gguf") && message.contains("too large"), "{message}");
    assert_eq!(names(folder), ["in.gguf"]);
}

/// A text of two chunks of 64 tokens, and its tokens as each chunk has them.
fn text_and_chunks(folder: &Path, gguf: &Gguf) -> Vec<u32> {
    let text = "Once upon a time there was a little girl who saw a big red ball. ".repeat(9);
    fs::write(folder.join("text.txt"), &text).unwrap();
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
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model = embedded::open().unwrap();
    let tokens = text_and_chunks(folder, &model);
    for (file, threads) in [("one.gguf", 1), ("two.gguf", 2)] {
        done(folder, &format!("imatrix -f text.txt -c 64 --chunks 2 -o {file} -t {threads}"));
    }
    assert!(fs::read(folder.join("one.gguf")).unwrap() == fs::read(folder.join("two.gguf")).unwrap());
    let found = Gguf::open(&folder.join("one.gguf")).unwrap();
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
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &format!("synth -o in.gguf {SYNTH} --experts 8 --experts-used 2 --expert-ffn 256 -q f16"));
    text_and_chunks(folder, &Gguf::open(&folder.join("in.gguf")).unwrap());
    done(folder, "imatrix -m in.gguf -f text.txt -c 64 --chunks 2 -o i.gguf");
    let found = Gguf::open(&folder.join("i.gguf")).unwrap();
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

fn tensor_bytes(path: &Path) -> Vec<Vec<u8>> {
    let gguf = Gguf::open(path).unwrap();
    gguf.tensors().iter().map(|t| gguf.bytes(t).to_vec()).collect()
}

#[test]
fn both_formats_of_importance_do_the_same_and_another_models_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    let model = Gguf::open(&folder.join("in.gguf")).unwrap();
    text_and_chunks(folder, &model);
    done(folder, "imatrix -m in.gguf -f text.txt -c 64 --chunks 2 -o i.gguf");
    let importance = Gguf::open(&folder.join("i.gguf")).unwrap();
    let dat = as_dat(&importance);
    fs::write(folder.join("i.dat"), &dat).unwrap();
    done(folder, "quantize in.gguf plain.gguf Q4_K_M");
    done(folder, "quantize --imatrix i.gguf in.gguf new.gguf Q4_K_M");
    done(folder, "quantize --imatrix i.dat in.gguf old.gguf Q4_K_M");
    let of = |name: &str| tensor_bytes(&folder.join(name));
    assert!(of("new.gguf") == of("old.gguf") && of("new.gguf") != of("plain.gguf"));
    let said = Gguf::open(&folder.join("new.gguf")).unwrap();
    assert_eq!(said.metadata().str("quantize.imatrix.file").unwrap(), Some("i.gguf"));
    assert_eq!(said.metadata().u32("quantize.imatrix.entries_count").unwrap(), Some(21));

    fs::write(folder.join("cut.dat"), &dat[..dat.len() / 2]).unwrap();
    fs::write(folder.join("cut.gguf"), &fs::read(folder.join("i.gguf")).unwrap()[..5000]).unwrap();
    let other = |name: &str, edit: &dyn Fn(&str, &mut Vec<f32>) -> bool| {
        let mut kept = Vec::new();
        for tensor in importance.tensors() {
            let mut values = numbers(&importance, &tensor.name);
            if edit(&tensor.name, &mut values) {
                kept.push((tensor.name.clone(), values));
            }
        }
        let mut writer = Writer::new();
        writer.set("imatrix.chunk_count", 2u32);
        for (name, values) in &kept {
            writer.tensor(name, GgmlType::F32, &[values.len() as u64, 1]);
        }
        let mut bytes = Vec::new();
        let data = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        writer.write(&mut bytes, |i, sink| sink.write(&data(&kept[i].1))).unwrap();
        fs::write(folder.join(name), bytes).unwrap();
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

/// Of files in parts all parts are read, and one is written.
#[test]
fn the_shards_of_a_model_become_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &format!("synth -o whole.gguf {SYNTH} -q f16"));
    let whole = Gguf::open(&folder.join("whole.gguf")).unwrap();
    let half = whole.tensors().len() / 2;
    for (no, tensors) in [&whole.tensors()[..half], &whole.tensors()[half..]].into_iter().enumerate() {
        let mut writer = Writer::new();
        if no == 0 {
            whole.metadata().iter().for_each(|(key, value)| _ = writer.set(key, value.clone()));
        }
        writer.set("split.no", no as u16).set("split.count", 2u16);
        writer.set("split.tensors.count", whole.tensors().len() as i32);
        tensors.iter().for_each(|t| _ = writer.tensor(&t.name, t.ty, &t.shape));
        let path: PathBuf = folder.join(format!("part-{:05}-of-00002.gguf", no + 1));
        let file = fs::File::create(path).unwrap();
        writer.write(file, |i, sink| sink.write(whole.bytes(&tensors[i]))).unwrap();
    }
    done(folder, "quantize whole.gguf one.gguf Q5_K_M");
    done(folder, "quantize part-00001-of-00002.gguf two.gguf Q5_K_M");
    assert!(fs::read(folder.join("one.gguf")).unwrap() == fs::read(folder.join("two.gguf")).unwrap());
}
