//! Reading real files: what the gguf package for Python says is in them.

use spec_run_fixtures::fixture;

use super::*;

#[test]
#[cfg(embedded_model)]
fn the_embedded_model_is_as_its_card_says() {
    let gguf = crate::embedded::open().unwrap();
    let m = gguf.metadata();
    assert_eq!(gguf.version(), 3);
    assert_eq!(m.str("general.architecture").unwrap(), Some("llama"));
    assert_eq!(m.u32("llama.block_count").unwrap(), Some(16));
    assert_eq!(m.u32("llama.embedding_length").unwrap(), Some(256));
    assert_eq!(m.strings("tokenizer.ggml.tokens").unwrap().unwrap().len(), 2048);
    let q = gguf.tensor("blk.15.attn_k.weight").unwrap();
    assert_eq!((q.ty, &q.shape[..], q.bytes), (GgmlType::Q8_0, &[256, 128][..], 128 * 8 * 34));
    assert_eq!(gguf.bytes(q).len(), 128 * 8 * 34);
    assert!(gguf.tensor("blk.16.attn_k.weight").is_none());
}

#[test]
fn a_vocabulary_without_tensors_opens() {
    let Some(path) = fixture("a_vocabulary_without_tensors_opens", "vocab/ggml-vocab-llama-bpe.gguf") else {
        return;
    };
    let gguf = Gguf::open(&path).unwrap();
    assert!(gguf.tensors().is_empty());
    let tokens = gguf.metadata().strings("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!((tokens.len(), tokens.get(0), tokens.get(128_256)), (128_256, Some("!"), None));
    assert_eq!(gguf.metadata().i32s("tokenizer.ggml.token_type").unwrap().unwrap().len(), 128_256);
}

/// Every metadata key with its value, and every tensor with its bytes.
fn assert_same(a: &Gguf, b: &Gguf) {
    assert!(a.metadata().iter().eq(b.metadata().iter()));
    assert_eq!(a.tensors().len(), b.tensors().len());
    for (x, y) in a.tensors().iter().zip(b.tensors()) {
        assert_eq!((&x.name, x.ty, &x.shape), (&y.name, y.ty, &y.shape));
        assert!(a.bytes(x) == b.bytes(y), "{}", x.name);
    }
}

fn write_again(gguf: &Gguf) -> Vec<u8> {
    let mut writer = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        writer.set(key, value.clone());
    }
    for t in gguf.tensors() {
        writer.tensor(&t.name, t.ty, &t.shape);
    }
    let mut file = Vec::new();
    let in_pieces = |i: usize, sink: &mut Sink| -> Result<()> {
        gguf.bytes(&gguf.tensors()[i]).chunks(1000).try_for_each(|piece| sink.write(piece))
    };
    writer.write(&mut file, in_pieces).unwrap();
    file
}

#[test]
#[cfg(embedded_model)]
fn a_model_written_again_is_the_same_file() {
    let model = crate::embedded::open().unwrap();
    let written = write_again(&model);
    // llama-quantize made the original, and has its keys and tensors in the order it keeps them in.
    let original =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/stories13m-q8_0.gguf"));
    assert!(written == original.unwrap());
    assert_same(&model, &Gguf::from_bytes("written", written).unwrap());
}

#[test]
fn every_value_type_survives_writing() {
    let mut writer = Writer::new();
    writer
        .set("general.alignment", 64u32)
        .set("u8", u8::MAX)
        .set("i8", i8::MIN)
        .set("u16", u16::MAX)
        .set("i16", i16::MIN)
        .set("u32", u32::MAX)
        .set("i32", i32::MIN)
        .set("f32", f32::MIN_POSITIVE)
        .set("bool", true)
        .set("string", "grüße\n")
        .set("u64", u64::MAX)
        .set("i64", i64::MIN)
        .set("f64", f64::MAX)
        .set("u8s", vec![1u8, 2])
        .set("i8s", vec![-1i8])
        .set("u16s", vec![1u16, 65535])
        .set("i16s", vec![-32768i16])
        .set("u32s", vec![7u32])
        .set("i32s", vec![-7i32, 8])
        .set("f32s", vec![0.5f32, f32::INFINITY])
        .set("bools", vec![true, false])
        .set("strings", ["", "a", "", "öl"].iter().collect::<Strings>())
        .set("u64s", vec![u64::MAX])
        .set("i64s", vec![i64::MIN])
        .set("f64s", vec![1e300f64])
        .set("none", Vec::<f64>::new())
        .tensor("a", GgmlType::F32, &[3])
        .tensor("b", GgmlType::Q4_0, &[64, 2, 1, 3]);
    let mut file = Vec::new();
    writer.write(&mut file, |i, sink| sink.write(&vec![i as u8 + 1; sink.left() as usize])).unwrap();
    let gguf = Gguf::from_bytes("all types", file).unwrap();
    let m = gguf.metadata();
    assert_eq!(m.get("i64"), Some(&Value::I64(i64::MIN)));
    assert_eq!(m.get("u64s"), Some(&Value::Array(Array::U64(vec![u64::MAX]))));
    assert_eq!(m.strings("strings").unwrap().unwrap().iter().collect::<Vec<_>>(), ["", "a", "", "öl"]);
    assert_eq!(m.i32s("u16s").unwrap(), Some(vec![1, 65535]));
    assert_eq!(m.u32("u16").unwrap(), Some(65535));
    let [a, b] = gguf.tensors() else { panic!("two tensors") };
    assert_eq!((a.bytes, b.bytes, a.offset % 64, b.offset - a.offset), (12, 12 * 18, 0, 64));
    assert_eq!((gguf.bytes(a), gguf.bytes(b)), (&[1; 12][..], &[2; 12 * 18][..]));
    assert_same(&gguf, &Gguf::from_bytes("again", write_again(&gguf)).unwrap());
}

#[test]
fn the_writer_refuses_what_could_not_be_read_back() {
    fn refused(make: impl FnOnce(&mut Writer) -> &mut Writer, data: usize) -> String {
        let mut writer = Writer::new();
        make(&mut writer);
        writer.write(Vec::new(), |_, sink| sink.write(&vec![0; data])).unwrap_err().to_string()
    }
    fn f32s(w: &mut Writer) -> &mut Writer {
        w.tensor("t", GgmlType::F32, &[4])
    }
    for (message, wanted) in [
        (refused(f32s, 15), "1 of its 16 bytes were not written"),
        (refused(f32s, 17), "more data than its 16 bytes"),
        (refused(|w| w.tensor("t", GgmlType::Q4_0, &[33]), 18), "not a multiple"),
        (refused(|w| w.tensor("t", GgmlType::F32, &[0]), 0), "dimension of zero"),
        (refused(|w| w.tensor("t", GgmlType::F32, &[1; 5]), 4), "5 dimensions"),
        (refused(|w| w.tensor("t", GgmlType::F32, &[1 << 40, 1 << 40]), 4), "overflows"),
        (refused(|w| f32s(f32s(w)), 16), "`t` is there twice"),
        (refused(|w| w.set("general.alignment", 48u32), 0), "power of two"),
        (refused(|w| w.set("", 48u32), 0), "without a name"),
    ] {
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn typed_reads_say_what_was_found() {
    let mut file = Vec::new();
    let mut writer = Writer::new();
    writer.set("text", "x").set("big", 1u64 << 32).set("minus", -1i32).set("list", vec![1i64, 1 << 40]);
    writer.write(&mut file, |_, _| Ok(())).unwrap();
    let gguf = Gguf::from_bytes("m.gguf", file).unwrap();
    let m = gguf.metadata();
    assert_eq!(m.u32("absent").unwrap(), None);
    for (message, wanted) in [
        (m.u32("text").unwrap_err(), "m.gguf: metadata key `text`: found string, wanted an integer"),
        (
            m.u32("big").unwrap_err(),
            "m.gguf: metadata key `big`: 4294967296 does not fit in 32 bits without a sign",
        ),
        (
            m.u32("minus").unwrap_err(),
            "m.gguf: metadata key `minus`: -1 does not fit in 32 bits without a sign",
        ),
        (m.f32("list").unwrap_err(), "m.gguf: metadata key `list`: found an array of i64, wanted a float"),
        (
            m.i32s("list").unwrap_err(),
            "m.gguf: metadata key `list`: element 1 does not fit in 32 bits with a sign",
        ),
    ] {
        assert_eq!(message.to_string(), wanted);
    }
}
