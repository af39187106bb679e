//! `spec-run quantize` and `spec-run imatrix` from outside.

mod imatrix;
mod pruned;
mod split;

use std::{collections::BTreeMap, fs, path::Path};

use spec_run::{Gguf, gguf::Value, quant::GgmlType};

use crate::common::{
    fixture, load,
    nvfp4::{as_floats, as_it_is, bytes_in_nvfp4, is_matrix},
    parts::numbers,
    program::{Folder, names, run_in},
};

const SYNTH: &str = "--layers 3 --dim 256 --ffn 512 --heads 4 --kv-heads 2 --vocab 2100";

#[track_caller]
fn done(folder: &Path, args: &str) -> String {
    run_in(folder, args).done()
}

/// One line, and the folder is as it was.
fn fails(folder: &Path, args: &str, code: i32, words: &[&str]) {
    let before = names(folder);
    run_in(folder, args).failed(code, words);
    assert_eq!(names(folder), before, "{args}");
}

/// An open file of a folder.
fn open(folder: &Path, name: &str) -> Gguf {
    Gguf::open(&folder.join(name)).unwrap()
}

/// Names, types and shapes, in the order of the file.
fn directory(gguf: &Gguf) -> Vec<(String, GgmlType, Vec<u64>)> {
    gguf.tensors().iter().map(|t| (t.name.clone(), t.ty, t.shape.clone())).collect()
}

fn tensor_bytes(gguf: &Gguf) -> Vec<Vec<u8>> {
    gguf.tensors().iter().map(|t| gguf.bytes(t).to_vec()).collect()
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
    let folder = &Folder::new();
    let floats = Gguf::open(&source).unwrap();
    for name in ["q8_0", "q4_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs"] {
        let theirs = Gguf::open(&fixture(TEST, &format!("models/stories13m-{name}.gguf")).unwrap()).unwrap();
        let number = theirs.metadata().u32("general.file_type").unwrap().unwrap();
        done(folder, &format!("quantize --pure --force {} ours.gguf {number}", source.display()));
        let ours = open(folder, "ours.gguf");
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
    let folder = &Folder::new();
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
    let folder = &Folder::new();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    let args =
        "--tensor-type ffn_up=q8_0 --token-embedding-type q5_0 --output-tensor-type F16 in.gguf Q4_K_S";
    let dry = run_in(folder, &format!("quantize --dry-run --json {args}")).json();
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
    let folder = &Folder::new();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    done(folder, "quantize in.gguf q8.gguf Q8_0");
    done(folder, "synth -o narrow.gguf --layers 1 --dim 64 --ffn 96 --heads 4 -q f16");
    folder.file("types.txt", "attn_q=q8_0\nattn_v=q9");
    for (args, code, words) in [
        ("in.gguf out.gguf Q9_Z", 2, &["Q9_Z", "Q4_K_M"][..]),
        ("in.gguf out.gguf", 2, &["out.gguf", "a type is missing"]),
        ("in.gguf out.gguf Q4_0 2 3", 2, &["3"]),
        ("in.gguf out.gguf Q4_0 many", 2, &["many", "threads"]),
        ("in.gguf in.gguf Q4_0", 1, &["in.gguf", "is the input"]),
        ("--force in.gguf ./in.gguf Q4_0", 1, &["is the input"]),
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
    let output = run_in(folder, "quantize narrow.gguf short.gguf Q4_K_M");
    output.done();
    assert!(output.said().contains("not whole blocks"), "{}", output.said());
    done(folder, "quantize --allow-requantize q8.gguf twice.gguf Q4_0");
    assert!(!done(folder, "-m short.gguf -p Once -n 4 --temp 0").is_empty());
}

#[test]
fn types_come_from_a_file_too_and_metadata_from_the_line() {
    let folder = &Folder::new();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    folder.file("types.txt", "attn_v=q8_0  attn_q=q5_1\n\nATTN_K=q6_k\n");
    done(
        folder,
        "quantize --tensor-type attn_q=q5_0 --tensor-type-file types.txt --override-kv general.name=str:a=b:c \
         --override-kv new.count=int:4294967295 --override-kv new.share=float:-0.5 --override-kv new.flag=bool:true \
         --override-kv general.file_type=int:99 in.gguf out.gguf Q4_0",
    );
    let gguf = open(folder, "out.gguf");
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
    let folder = &Folder::new();
    let bytes = bytes_in_nvfp4(&load(&source), is_matrix, |expert| expert % 3, as_it_is);
    folder.file("in.gguf", &bytes);
    fails(folder, "quantize in.gguf out.gguf F32", 1, &["NVFP4 already", "--allow-requantize"]);
    done(folder, "quantize --allow-requantize in.gguf out.gguf F32");
    let expected = as_floats(&Gguf::from_bytes("in", bytes).unwrap());
    let got = open(folder, "out.gguf");
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
    let [copy, source] = ["copy.gguf", "in.gguf"].map(|name| open(folder, name));
    assert_eq!(sorted(&copy), sorted(&source));
}

/// A file is longer than the shell allows, which is what a full disk is to a program.
#[cfg(unix)]
fn on_a_full_disk(folder: &Path, args: &str) -> crate::common::child::Ended {
    use crate::common::{child::Start, program::program};

    let limited = "trap '' XFSZ; ulimit -f 400; exec \"$0\" \"$@\"";
    let mut shell = std::process::Command::new("sh");
    shell.current_dir(folder).args(["-c", limited]).arg(program().get_program());
    shell.args(args.split_whitespace()).ended()
}

#[cfg(unix)]
#[test]
fn a_full_disk_leaves_nothing() {
    let folder = &Folder::new();
    done(folder, &format!("synth -o in.gguf {SYNTH} -q f16"));
    on_a_full_disk(folder, "quantize in.gguf out.gguf Q8_0").refused(1, &["out.gguf", "too large"]);
    assert_eq!(names(folder), ["in.gguf"]);
}
