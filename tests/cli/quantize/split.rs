//! Models in several files: as one file, and as several.

use std::{collections::BTreeMap, fs, path::Path};

use spec_run::{
    Gguf,
    gguf::{Value, Writer},
    quant::GgmlType,
};

use super::{SYNTH, directory, done, open, tensor_bytes};
use crate::common::program::{Folder, names, run_in};

/// Cuts a model in files as llama-gguf-split does; each of `ends` is where one's tensors end.
fn split(folder: &Path, model: &str, ends: &[usize]) {
    let whole = open(folder, model);
    let mut begin = 0;
    for (no, &end) in ends.iter().enumerate() {
        let tensors = &whole.tensors()[begin..end];
        begin = end;
        let mut writer = Writer::new();
        if no == 0 {
            whole.metadata().iter().for_each(|(key, value)| _ = writer.set(key, value.clone()));
        }
        writer.set("split.no", no as u16).set("split.count", ends.len() as u16);
        writer.set("split.tensors.count", whole.tensors().len() as i32);
        tensors.iter().for_each(|t| _ = writer.tensor(&t.name, t.ty, &t.shape));
        let name = format!("part-{:05}-of-{:05}.gguf", no + 1, ends.len());
        let file = fs::File::create(folder.join(name)).unwrap();
        writer.write(file, |i, sink| sink.write(whole.bytes(&tensors[i]))).unwrap();
    }
    assert_eq!(begin, whole.tensors().len());
}

/// One file of a model in several, which does not open by itself.
fn shard(path: &Path) -> Gguf {
    let bytes = fs::read(path).unwrap();
    // Its number in a place where no reader looks.
    let renamed = |name: &[u8]| bytes.windows(name.len()).position(|window| window == name).unwrap();
    let mut bytes = bytes.clone();
    for name in [&b"split.no"[..], b"split.count"] {
        bytes[renamed(name)] = b'S';
    }
    Gguf::from_bytes(&path.display().to_string(), bytes).unwrap()
}

/// Type, shape and bytes of each tensor, by name.
fn by_name(gguf: &Gguf) -> BTreeMap<String, (GgmlType, Vec<u64>, Vec<u8>)> {
    let tensor = |((name, ty, shape), bytes): ((String, _, _), _)| (name, (ty, shape, bytes));
    directory(gguf).into_iter().zip(tensor_bytes(gguf)).map(tensor).collect()
}

/// Of files in parts all parts are read, and one is written.
#[test]
fn the_shards_of_a_model_become_one_file() {
    let folder = &Folder::new();
    done(folder, &format!("synth -o whole.gguf {SYNTH} -q f16"));
    let tensors = open(folder, "whole.gguf").tensors().len();
    split(folder, "whole.gguf", &[tensors / 2, tensors]);
    done(folder, "quantize whole.gguf one.gguf Q5_K_M");
    done(folder, "quantize part-00001-of-00002.gguf two.gguf Q5_K_M");
    assert!(fs::read(folder.join("one.gguf")).unwrap() == fs::read(folder.join("two.gguf")).unwrap());
}

#[test]
fn shards_become_as_many_cut_at_the_same_tensors() {
    let folder = &Folder::new();
    done(folder, &format!("synth -o whole.gguf {SYNTH} -q f16"));
    let whole = open(folder, "whole.gguf");
    let all = whole.tensors().len();
    done(folder, "quantize whole.gguf one.gguf Q4_K_M");
    let one = open(folder, "one.gguf");
    // The first may have metadata alone.
    for ends in [&[5, 6, all][..], &[0, 12, all]] {
        split(folder, "whole.gguf", ends);
        let from = "--keep-split part-00001-of-00003.gguf out.gguf Q4_K_M";
        let dry = run_in(folder, &format!("quantize --dry-run --json {from}")).json();
        let before = names(folder);
        let said = done(folder, &format!("quantize --force {from}"));
        assert!(said.starts_with("out-00001-of-00003.gguf, the first of 3: "), "{said}");
        let written: Vec<_> = (1..=3).map(|n| format!("out-{n:05}-of-00003.gguf")).collect();
        let new: Vec<_> = names(folder).into_iter().filter(|name| !before.contains(name)).collect();
        assert!(new.is_empty() || new == written, "{new:?}");
        let lengths = written.iter().map(|name| fs::metadata(folder.join(name)).unwrap().len());
        assert_eq!(dry["file_bytes"], lengths.sum::<u64>());

        for (no, name) in written.iter().enumerate() {
            let [out, source] = [name, &name.replace("out", "part")].map(|name| shard(&folder.join(name)));
            let names = |gguf: &Gguf| gguf.tensors().iter().map(|t| t.name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&out), names(&source), "{name}");
            // The keys of one file are in the first, and beside them what llama.cpp's own splitter says in these types.
            let mut keys: Vec<_> = match no {
                0 => one.metadata().iter().map(|(key, value)| (key.to_string(), value.clone())).collect(),
                _ => Vec::new(),
            };
            keys.push(("Split.no".into(), Value::U16(no as u16)));
            keys.push(("Split.count".into(), Value::U16(3)));
            keys.push(("split.tensors.count".into(), Value::I32(all as i32)));
            let found: Vec<_> =
                out.metadata().iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
            assert_eq!(found, keys, "{name}");
        }
        let several = open(folder, &written[0]);
        assert!(by_name(&several) == by_name(&one), "{ends:?}");
        assert_eq!(
            done(folder, "-m out-00001-of-00003.gguf -p Once -n 8 --temp 0"),
            done(folder, "-m one.gguf -p Once -n 8 --temp 0")
        );
    }
    // Without a name the files stand beside the model; and a model in one file is the first of one.
    done(folder, "quantize --keep-split part-00001-of-00003.gguf Q8_0");
    done(folder, "quantize --keep-split whole.gguf alone.gguf Q4_K_M");
    let found = names(folder);
    for name in ["ggml-model-Q8_0-00003-of-00003.gguf", "alone-00001-of-00001.gguf"] {
        assert!(found.contains(&name.to_string()), "{name} is not in {found:?}");
    }
    let alone = open(folder, "alone-00001-of-00001.gguf");
    assert!(by_name(&alone) == by_name(&one));
    let keys = |gguf: &Gguf| gguf.metadata().iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>();
    assert_eq!(keys(&alone), keys(&one));
}

/// Not one of the files is there, whatever goes wrong with which.
#[cfg(unix)]
#[test]
fn a_set_of_files_is_there_whole_or_not_at_all() {
    use super::{fails, on_a_full_disk};

    let folder = &Folder::new();
    done(folder, &format!("synth -o whole.gguf {SYNTH} -q f16"));
    let whole = open(folder, "whole.gguf");
    // The first is small, and so is what becomes of it.
    let table = whole.tensors().iter().position(|t| t.name == "token_embd.weight").unwrap();
    assert_eq!(table, 0);
    split(folder, "whole.gguf", &[0, 1, whole.tensors().len()]);
    let before = names(folder);
    let from = "quantize --keep-split part-00001-of-00003.gguf";
    on_a_full_disk(folder, &format!("{from} out.gguf Q8_0"))
        .refused(1, &["out-00002-of-00003.gguf", "too large"]);
    assert_eq!(names(folder), before);

    folder.file("out-00003-of-00003.gguf", "mine");
    fails(folder, &format!("{from} out.gguf Q8_0"), 2, &["out-00003-of-00003.gguf", "--force"]);
    assert_eq!(fs::read(folder.join("out-00003-of-00003.gguf")).unwrap(), b"mine");
    fails(
        folder,
        &format!("{from} --force part.gguf Q8_0"),
        1,
        &["part-00001-of-00003.gguf", "is the input"],
    );
    // Any of the model's files.
    let parts = names(folder);
    let whole = "quantize --force part-00001-of-00003.gguf ./part-00002-of-00003.gguf Q8_0";
    fails(folder, whole, 1, &["part-00002-of-00003.gguf", "is the input"]);
    assert_eq!(names(folder), parts);
    fails(folder, &format!("{from} nowhere/out.gguf Q8_0"), 1, &["nowhere"]);
}
