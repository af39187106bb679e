//! Every way in which a file can be wrong is one clear error. The files are put together byte by byte here,
//! so that this says what the format is without help from the crate's own writer.

use spec_run::{Error, Gguf};

const U8: u32 = 0;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
const F32: u32 = 0;
const Q4_0: u32 = 2;

struct Bytes(Vec<u8>);

impl Bytes {
    fn head(version: u32, tensors: u64, keys: u64) -> Self {
        Bytes(b"GGUF".to_vec()).u32(version).u64(tensors).u64(keys)
    }

    fn v3(tensors: u64, keys: u64) -> Self {
        Self::head(3, tensors, keys)
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u32(self, x: u32) -> Self {
        self.raw(&x.to_le_bytes())
    }

    fn u64(self, x: u64) -> Self {
        self.raw(&x.to_le_bytes())
    }

    fn str(self, s: &str) -> Self {
        self.u64(s.len() as u64).raw(s.as_bytes())
    }

    fn key(self, key: &str, ty: u32) -> Self {
        self.str(key).u32(ty)
    }

    fn tensor(self, name: &str, shape: &[u64], ty: u32, offset: u64) -> Self {
        let mut bytes = self.str(name).u32(shape.len() as u32);
        for &dim in shape {
            bytes = bytes.u64(dim);
        }
        bytes.u32(ty).u64(offset)
    }

    /// Zeros up to the alignment, then `len` bytes of data.
    fn data(mut self, alignment: usize, len: usize) -> Self {
        let start = self.0.len().next_multiple_of(alignment);
        self.0.resize(start + len, 0);
        self
    }

    fn open(self) -> Result<Gguf, Error> {
        Gguf::from_bytes("hostile.gguf", self.0)
    }

    /// One line that names the file and holds each of `parts`.
    #[track_caller]
    fn refused(self, parts: &[&str]) {
        let error = match self.open() {
            Ok(_) => panic!("was opened; wanted an error with {parts:?}"),
            Err(error) => error,
        };
        let message = error.to_string();
        assert!(matches!(error, Error::Gguf { .. }), "{error:?}");
        assert!(message.starts_with("hostile.gguf: "), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        for part in parts {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }
}

/// A file of one key, up to its value.
fn one_key(key: &str, ty: u32) -> Bytes {
    Bytes::v3(0, 1).key(key, ty)
}

/// A file of one tensor that begins with its data.
fn one_tensor(shape: &[u64], ty: u32) -> Bytes {
    Bytes::v3(1, 0).tensor("t", shape, ty, 0).data(32, 64)
}

/// The simplest tensor: four floats.
fn four_floats(offset: u64) -> Bytes {
    Bytes::v3(1, 0).tensor("t", &[4], F32, offset)
}

fn two_tensors(first: u64, second: u64) -> Bytes {
    Bytes::v3(2, 0).tensor("a", &[8], F32, first).tensor("b", &[8], F32, second).data(32, 128)
}

/// A sound file with a bit of everything.
fn sound() -> Bytes {
    Bytes::v3(2, 5)
        .key("general.name", STRING)
        .str("grüße")
        .key("flag", BOOL)
        .raw(&[1])
        .key("tokens", ARRAY)
        .u32(STRING)
        .u64(3)
        .str("a")
        .str("")
        .str("öl")
        .key("types", ARRAY)
        .u32(U32)
        .u64(2)
        .u32(1)
        .u32(6)
        .key("general.alignment", U32)
        .u32(16)
        .tensor("x", &[64, 2], Q4_0, 0)
        .tensor("y", &[4], F32, 80)
        .data(16, 80 + 16)
}

#[test]
fn a_sound_file_opens() {
    let gguf = sound().open().unwrap();
    let m = gguf.metadata();
    assert_eq!(m.str("general.name").unwrap(), Some("grüße"));
    assert_eq!(m.bool("flag").unwrap(), Some(true));
    assert_eq!(m.strings("tokens").unwrap().unwrap().iter().collect::<Vec<_>>(), ["a", "", "öl"]);
    assert_eq!(m.i32s("types").unwrap(), Some(vec![1, 6]));
    assert_eq!(gguf.tensors().iter().map(|t| t.bytes).collect::<Vec<_>>(), [72, 16]);
}

#[test]
fn version_2_reads_as_version_3() {
    let gguf = Bytes::head(2, 1, 0).tensor("t", &[4], F32, 0).data(32, 16).open().unwrap();
    assert_eq!((gguf.version(), gguf.tensors().len()), (2, 1));
}

#[test]
fn truncated_at_any_byte() {
    let whole = sound().0;
    for len in 0..whole.len() {
        Bytes(whole[..len].to_vec()).refused(&[]);
    }
}

#[test]
fn truncated() {
    Bytes(b"GGUF\x03\0".to_vec())
        .refused(&["the header at byte 4", "4 bytes do not fit in the 2 bytes left"]);
    one_key("name", STRING).u64(10).raw(b"abc").refused(&[
        "metadata key `name` at byte 48",
        "10 bytes do not fit in the 3 bytes left",
        "incomplete or damaged",
    ]);
    let mut bytes = four_floats(0);
    bytes.0.pop();
    bytes.refused(&["the header", "1 tensors do not fit"]);
    let mut bytes = Bytes::v3(1, 0).tensor("a long name", &[4], F32, 0);
    bytes.0.pop();
    bytes.refused(&["tensor `a long name` at byte 59", "8 bytes do not fit in the 7 bytes left"]);
    four_floats(0).data(32, 15).refused(&["tensor `t`", "16 bytes of data", "beyond the end of the file"]);
}

#[test]
fn lengths_and_counts_that_no_file_has() {
    one_key("name", STRING).u64(1 << 63).raw(b"abc").refused(&["`name`", "9223372036854775808 bytes"]);
    Bytes::v3(0, 1).u64(u64::MAX).raw(b"abcdefgh").refused(&["name of metadata key 0 at byte 32"]);
    for ty in [U8, U32, BOOL, STRING] {
        let bytes = one_key("list", ARRAY).u32(ty).u64(u64::MAX).u64(0);
        bytes.refused(&["`list`", "18446744073709551615"]);
    }
    let n = (1u64 << 62) + 1;
    one_key("list", ARRAY).u32(U32).u64(n).u32(7).refused(&["`list`", "4611686018427387905 items"]);
    Bytes::v3(0, u64::MAX).refused(&["the header", "18446744073709551615 metadata keys do not fit"]);
    Bytes::v3(u64::MAX, 0).refused(&["the header", "18446744073709551615 tensors do not fit"]);
}

#[test]
fn tensors_at_impossible_places() {
    four_floats(1 << 40).data(32, 16).refused(&["tensor `t`", "1099511627776", "beyond the end of the file"]);
    four_floats(u64::MAX - 31).data(32, 16).refused(&["tensor `t`", "beyond the end of the file"]);
    four_floats(8).data(32, 64).refused(&["tensor `t` at byte 49", "offset 8", "alignment 32"]);
    two_tensors(0, 0).refused(&["`a`", "`b`", "overlap at byte 96"]);
    let bytes = Bytes::v3(2, 0).tensor("a", &[8], F32, 32).tensor("b", &[9], F32, 0).data(32, 128);
    bytes.refused(&["`a`", "`b`", "overlap at byte 128"]);
}

#[test]
fn tensors_in_any_order_and_with_gaps_are_sound() {
    two_tensors(32, 0).open().unwrap();
    two_tensors(0, 96).open().unwrap();
}

#[test]
fn names_that_are_there_twice() {
    let bytes = Bytes::v3(0, 2).key("a", U32).u32(1).key("a", U32).u32(2);
    bytes.refused(&["metadata key `a` is there twice"]);
    let bytes = Bytes::v3(2, 0).tensor("a", &[8], F32, 0).tensor("a", &[8], F32, 32).data(32, 64);
    bytes.refused(&["tensor `a` is there twice"]);
}

#[test]
fn known_keys_of_wrong_type() {
    one_key("general.alignment", STRING).str("32").refused(&["`general.alignment`", "found string"]);
    one_key("split.count", STRING).str("2").refused(&["`split.count`", "found string"]);
    let gguf = one_key("general.architecture", U32).u32(1).open().unwrap();
    let message = gguf.metadata().str("general.architecture").unwrap_err().to_string();
    assert_eq!(message, "hostile.gguf: metadata key `general.architecture`: found u32, wanted a string");
}

#[test]
fn impossible_alignments() {
    for n in [0, 3, 48] {
        let bytes = one_key("general.alignment", U32).u32(n);
        bytes.refused(&["`general.alignment`", &n.to_string(), "power of two"]);
    }
    let bytes =
        Bytes::v3(1, 1).key("general.alignment", U32).u32(1 << 31).tensor("t", &[4], F32, 0).data(32, 64);
    bytes.refused(&["tensor `t`", "beyond the end of the file"]);
}

#[test]
fn impossible_shapes() {
    for shape in [&[0][..], &[4, 0], &[0, u64::MAX, u64::MAX]] {
        one_tensor(shape, F32).refused(&["tensor `t` at byte 37", "dimension of zero"]);
    }
    one_tensor(&[], F32).refused(&["tensor `t` at byte 33", "0 dimensions"]);
    one_tensor(&[1; 5], F32).refused(&["tensor `t` at byte 33", "5 dimensions"]);
    let bytes = Bytes::v3(1, 0).str("t").u32(u32::MAX).data(32, 64);
    bytes.refused(&["tensor `t` at byte 33", "4294967295 dimensions"]);
    for shape in [&[1 << 32, 1 << 32][..], &[1 << 62], &[1 << 16; 4], &[u64::MAX, 1]] {
        one_tensor(shape, F32).refused(&["tensor `t` at byte 37", "overflows 64 bits"]);
    }
    // 2^64 weights, although their bytes would fit in 64 bits.
    one_tensor(&[1 << 32, 1 << 32], Q4_0).refused(&["tensor `t`", "overflows 64 bits"]);
    let bytes = Bytes::v3(1, 0).tensor("t", &[33, 32], Q4_0, 0).data(32, 1024);
    bytes.refused(&["tensor `t` at byte 37", "rows of 33", "Q4_0's block of 32"]);
}

#[test]
fn unknown_types() {
    // 4 was Q4_2, gone since 2023; 36 is one of the repacked types that no file may carry.
    for ty in [4, 36, 1000, u32::MAX] {
        let bytes = one_tensor(&[32], ty);
        bytes.refused(&["tensor `t` at byte 45", &format!("tensor type {ty} is unknown")]);
    }
    one_key("k", 13).u64(0).refused(&["metadata key `k` at byte 33", "unknown value type 13"]);
    let bytes = one_key("k", ARRAY).u32(13).u64(1).u64(0);
    bytes.refused(&["metadata key `k` at byte 37", "unknown type 13"]);
    let bytes = one_key("k", ARRAY).u32(ARRAY).u64(1).u32(U32).u64(1).u32(7);
    bytes.refused(&["metadata key `k` at byte 37", "array of arrays"]);
}

#[test]
fn impossible_values() {
    one_key("k", BOOL).raw(&[2]).refused(&["metadata key `k` at byte 37", "neither false nor true"]);
    let bytes = one_key("k", ARRAY).u32(BOOL).u64(3).raw(&[0, 1, 255]);
    bytes.refused(&["metadata key `k` at byte 51", "255"]);
}

#[test]
fn bad_utf8() {
    let bytes = Bytes::v3(0, 1).u64(2).raw(&[b'k', 0xff]).u32(U8).raw(&[0]);
    bytes.refused(&["metadata key 0 at byte 33", "UTF-8"]);
    let bytes = one_key("k", STRING).u64(2).raw(&[0xc3, 0x28]);
    bytes.refused(&["metadata key `k` at byte 45", "UTF-8"]);
    let bytes = Bytes::v3(1, 0).u64(1).raw(&[0x80]).u32(1).u64(4).u32(F32).u64(0).data(32, 16);
    bytes.refused(&["name of tensor 0 at byte 32", "UTF-8"]);
    let bytes = one_key("k", ARRAY).u32(STRING).u64(2).u64(1).raw(&[0xc3]).u64(1).raw(&[0xbc]);
    bytes.refused(&["metadata key `k` at byte 57", "UTF-8"]);
}

#[test]
fn empty_names() {
    one_key("", U32).u32(1).raw(&[0]).refused(&["metadata key 0 at byte 24", "empty"]);
    Bytes::v3(1, 0).tensor("", &[4], F32, 0).data(32, 16).refused(&["tensor 0 at byte 24", "empty"]);
}

#[test]
fn names_that_would_spoil_the_message() {
    let name = "a\nb\u{1b}[31m".to_owned() + &"x".repeat(100_000);
    let bytes = Bytes::v3(1, 0).tensor(&name, &[0], F32, 0).data(32, 16);
    let message = bytes.open().unwrap_err().to_string();
    assert!(message.contains(r"`a\nb\u{1b}[31mxxx") && message.len() < 300, "{message}");
}

#[test]
fn files_of_other_kinds() {
    Bytes(Vec::new()).refused(&["the file is empty"]);
    let pointer = b"version https://git-lfs.github.com/spec/v1\n";
    Bytes(pointer.to_vec()).refused(&["not a GGUF file", r#"it begins with "version https://""#]);
    Bytes(b"PK\x03\x04\x14\0".to_vec()).refused(&[r#""PK\x03\x04\x14\x00""#]);
    Bytes(b"G".to_vec()).refused(&["the header"]);
    Bytes::head(1, 0, 0).refused(&["GGUF version 1", "convert"]);
    for version in [0, 4, u32::MAX] {
        Bytes::head(version, 0, 0).refused(&[&format!("GGUF version {version}"), "versions 2 and 3"]);
    }
    // gguf-py keeps the magic and swaps the rest; older tools swapped the magic too.
    Bytes(b"GGUF\0\0\0\x03".to_vec()).raw(&[0; 16]).refused(&["big-endian"]);
    Bytes(b"FUGG\0\0\0\x03".to_vec()).raw(&[0; 16]).refused(&["big-endian"]);
    let bytes = Bytes::v3(0, 2).key("split.no", U32).u32(1).key("split.count", U32).u32(3);
    bytes.refused(&["shard 2 of 3"]);
}
