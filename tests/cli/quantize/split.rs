//! Models in several files.

use std::{fs, path::Path};

use spec_run::{Gguf, gguf::Writer};

use super::{SYNTH, done};

/// Cuts a model in files as llama-gguf-split does; each of `ends` is where one's tensors end.
fn split(folder: &Path, model: &str, ends: &[usize]) {
    let whole = Gguf::open(&folder.join(model)).unwrap();
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

/// Of files in parts all parts are read, and one is written.
#[test]
fn the_shards_of_a_model_become_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &format!("synth -o whole.gguf {SYNTH} -q f16"));
    let tensors = Gguf::open(&folder.join("whole.gguf")).unwrap().tensors().len();
    split(folder, "whole.gguf", &[tensors / 2, tensors]);
    done(folder, "quantize whole.gguf one.gguf Q5_K_M");
    done(folder, "quantize part-00001-of-00002.gguf two.gguf Q5_K_M");
    assert!(fs::read(folder.join("one.gguf")).unwrap() == fs::read(folder.join("two.gguf")).unwrap());
}
