//! Models in several files, and paths that are not models.

use std::{
    fs,
    path::{Path, PathBuf},
};

use spec_run::{
    Error, Gguf,
    gguf::{Value, Writer},
    quant::GgmlType,
};
use tempfile::TempDir;

/// Three shards with a tensor in the first, two in the second and none in the third.
struct Shards {
    dir: TempDir,
}

impl Shards {
    fn path(&self, number: u16) -> PathBuf {
        self.dir.path().join(format!("m-{number:05}-of-00003.gguf"))
    }

    /// Keys have the types that llama-gguf-split gives them.
    fn write(&self, no: u16, tensors: &[&str], change: impl FnOnce(&mut Writer)) {
        let mut writer = Writer::new();
        writer.set("split.no", no).set("split.count", 3u16).set("split.tensors.count", 3i32);
        if no == 0 {
            writer.set("general.name", "in three parts");
        }
        for name in tensors {
            writer.tensor(name, GgmlType::F32, &[2]);
        }
        change(&mut writer);
        let mut file = Vec::new();
        writer.write(&mut file, |i, sink| sink.write(&[no as u8 * 10 + i as u8; 8])).unwrap();
        fs::write(self.path(no + 1), file).unwrap();
    }

    fn new() -> Self {
        let shards = Shards { dir: tempfile::tempdir().unwrap() };
        shards.write(0, &["a"], |_| ());
        shards.write(1, &["b", "c"], |_| ());
        shards.write(2, &[], |_| ());
        shards
    }

    #[track_caller]
    fn refused(&self, number: u16, parts: &[&str]) {
        refused(&self.path(number), parts);
    }
}

#[track_caller]
fn refused(path: &Path, parts: &[&str]) {
    let error = Gguf::open(path).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::Gguf { .. } | Error::Io { .. }), "{error:?}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn the_first_shard_opens_all() {
    let shards = Shards::new();
    let gguf = Gguf::open(&shards.path(1)).unwrap();
    assert_eq!(gguf.shard_count(), 3);
    assert_eq!(gguf.metadata().str("general.name").unwrap(), Some("in three parts"));
    for (name, shard, byte) in [("a", 0, 0), ("b", 1, 10), ("c", 1, 11)] {
        let tensor = gguf.tensor(name).unwrap();
        assert_eq!((tensor.shard, gguf.bytes(tensor)), (shard, &[byte; 8][..]));
    }
    let lengths = (1..=3).map(|n| fs::metadata(shards.path(n)).unwrap().len());
    assert_eq!(gguf.file_bytes(), lengths.sum::<u64>());
}

#[test]
fn a_shard_that_is_not_the_first() {
    Shards::new()
        .refused(2, &["m-00002-of-00003.gguf: ", "shard 2 of 3", "open ", "m-00001-of-00003.gguf instead"]);
}

#[test]
fn a_missing_shard() {
    let shards = Shards::new();
    fs::remove_file(shards.path(2)).unwrap();
    shards.refused(1, &["m-00002-of-00003.gguf: ", "shard 2 of 3", "cannot be opened"]);
}

#[test]
fn a_damaged_shard() {
    let shards = Shards::new();
    let whole = fs::read(shards.path(2)).unwrap();
    fs::write(shards.path(2), &whole[..whole.len() - 30]).unwrap();
    shards.refused(1, &["m-00002-of-00003.gguf: ", "tensor `c`", "beyond the end of the file"]);
}

#[test]
fn shards_in_the_wrong_place() {
    let shards = Shards::new();
    fs::copy(shards.path(3), shards.path(2)).unwrap();
    shards.refused(1, &["m-00002-of-00003.gguf: ", "shard 3 of 3", "shard 2 of 3 belongs here"]);
}

#[test]
fn a_tensor_in_two_shards() {
    let shards = Shards::new();
    shards.write(2, &["a"], |_| ());
    shards.write(0, &["a"], |w| {
        w.set("split.tensors.count", 4i32);
    });
    shards.refused(1, &["m-00001-of-00003.gguf: ", "tensor `a` is there twice"]);
}

#[test]
fn tensors_that_are_missing_from_the_shards() {
    let shards = Shards::new();
    shards.write(1, &["b"], |_| ());
    shards.refused(1, &["`split.tensors.count` is 3", "2 tensors were found"]);
}

#[test]
fn a_name_that_disagrees_with_the_keys() {
    let shards = Shards::new();
    shards.write(0, &["a"], |w| {
        w.set("split.count", 5u16);
    });
    shards.refused(1, &["shard 1 of 3", "shard 1 of 5", "split.count"]);
    let renamed = shards.dir.path().join("model.gguf");
    fs::rename(shards.path(1), &renamed).unwrap();
    refused(&renamed, &["model.gguf: ", "first of 5 shards", "-00001-of-00005.gguf"]);
}

#[test]
fn split_keys_of_wrong_type_or_missing() {
    let shards = Shards::new();
    shards.write(0, &["a"], |w| {
        w.set("split.count", "three");
    });
    shards.refused(1, &["`split.count`", "found string"]);
    shards.write(0, &["a"], |w| {
        w.set("split.no", Value::I32(-1));
    });
    shards.refused(1, &["`split.no`", "-1"]);
    let mut file = Vec::new();
    Writer::new().set("split.count", 3u16).write(&mut file, |_, _| Ok(())).unwrap();
    fs::write(shards.path(1), file).unwrap();
    shards.refused(1, &["no `split.no` in the metadata"]);
}

#[test]
fn a_shard_of_one_is_a_whole_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m-00001-of-00001.gguf");
    let mut file = Vec::new();
    Writer::new().set("split.no", 0u16).set("split.count", 1u16).write(&mut file, |_, _| Ok(())).unwrap();
    fs::write(&path, &file).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().shard_count(), 1);
    let renamed = dir.path().join("m.gguf");
    fs::rename(&path, &renamed).unwrap();
    assert_eq!(Gguf::open(&renamed).unwrap().shard_count(), 1);
}

#[test]
fn no_such_file() {
    let dir = tempfile::tempdir().unwrap();
    refused(&dir.path().join("absent.gguf"), &["absent.gguf: ", "(os error 2)"]);
}

#[test]
fn a_directory() {
    let dir = tempfile::tempdir().unwrap();
    refused(dir.path(), &["is a directory", "name a .gguf file"]);
}

#[test]
fn an_empty_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("empty.gguf");
    fs::write(&path, []).unwrap();
    refused(&path, &["empty.gguf: the file is empty"]);
}

#[cfg(unix)]
#[test]
fn a_device() {
    refused(Path::new("/dev/null"), &["/dev/null: is not a regular file"]);
}

#[cfg(unix)]
#[test]
fn no_permission() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locked.gguf");
    fs::write(&path, b"GGUF").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&path).is_ok() {
        println!("NOT RUN: no_permission: this user may read every file");
        return;
    }
    refused(&path, &["locked.gguf: ", "ermission denied"]);
}
