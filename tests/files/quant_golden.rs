//! The block formats against the numbers of the `gguf` package and of llama-quantize (tests/golden/make.py).

use std::collections::BTreeSet;
use std::path::Path;

use spec_run::quant::{self, F16, GgmlType};

struct Record {
    label: String,
    ty: GgmlType,
    encoded: Vec<u8>,
    values: Vec<f32>,
}

fn golden(file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn records(file: &str) -> Vec<Record> {
    fn take<'a>(rest: &mut &'a [u8], n: usize) -> &'a [u8] {
        let (head, tail) = rest.split_at(n);
        *rest = tail;
        head
    }
    fn number(rest: &mut &[u8]) -> u32 {
        u32::from_le_bytes(take(rest, 4).try_into().unwrap())
    }
    let bytes = golden(file);
    let mut rest = &bytes[..];
    let mut records = Vec::new();
    while !rest.is_empty() {
        let len = number(&mut rest) as usize;
        let label = String::from_utf8(take(&mut rest, len).to_vec()).unwrap();
        let ty = GgmlType::from_id(number(&mut rest)).unwrap();
        let len = number(&mut rest) as usize;
        let encoded = take(&mut rest, len).to_vec();
        let count = number(&mut rest) as usize;
        let floats = take(&mut rest, 4 * count).chunks_exact(4);
        let values = floats.map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        records.push(Record { label, ty, encoded, values });
    }
    records
}

fn types_of(records: &[Record]) -> BTreeSet<&'static str> {
    records.iter().map(|r| r.ty.name()).collect()
}

fn all_types_that(holds: fn(GgmlType) -> bool) -> BTreeSet<&'static str> {
    GgmlType::ALL.iter().filter(|&&ty| holds(ty)).map(|ty| ty.name()).collect()
}

/// Bit for bit, signs of zeros and payloads of NaNs included: every format is defined as the same
/// sequence of f32 operations here and in the reference.
#[test]
fn dequantizes_to_the_same_bits_as_gguf_py() {
    let records = records("dequantize.bin");
    assert_eq!(types_of(&records), all_types_that(GgmlType::readable));
    for Record { label, ty, encoded, values } in &records {
        let mut ours = vec![f32::NAN; values.len()];
        quant::dequantize(*ty, encoded, &mut ours);
        for (i, (ours, theirs)) in ours.iter().zip(values).enumerate() {
            assert_eq!(ours.to_bits(), theirs.to_bits(), "{label}, value {i}: {ours:e}, expected {theirs:e}");
        }
    }
}

#[test]
fn dequantizes_rows_of_real_files() {
    let real: Vec<_> =
        records("dequantize.bin").into_iter().filter(|r| r.label.starts_with("stories13m")).collect();
    for ty in ["Q8_0", "Q4_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"] {
        assert!(types_of(&real).contains(ty), "no row of a real {ty} file");
    }
    // An independent check of the records themselves: they are all roundings of one row of the F16 file.
    let source = real.iter().find(|r| r.ty == GgmlType::F16).expect("the F16 row");
    let norm = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>().sqrt();
    for Record { label, ty, values, .. } in &real {
        let error: Vec<f32> = values.iter().zip(&source.values).map(|(a, b)| a - b).collect();
        let allowed = if *ty == GgmlType::Q2_K { 0.35 } else { 0.2 };
        assert!(norm(&error) < allowed * norm(&source.values), "{label} is not the row that it should be");
    }
}

#[test]
fn quantizes_to_the_same_bytes_as_gguf_py_and_llama_quantize() {
    let records = records("quantize.bin");
    // The formats in blocks of 256 are written with a bounded error, not with the reference's bytes.
    assert_eq!(types_of(&records), all_types_that(|ty| ty.writable() && ty.block_len() <= 64));
    for Record { label, ty, encoded, values } in &records {
        let mut ours = vec![0xa5];
        quant::quantize(*ty, values, &mut ours).unwrap_or_else(|| panic!("{label}: not written"));
        assert_eq!(ours[0], 0xa5, "{label}: quantize appends");
        for (i, (ours, theirs)) in
            ours[1..].chunks(ty.block_bytes()).zip(encoded.chunks(ty.block_bytes())).enumerate()
        {
            let input = &values[i * ty.block_len()..][..ty.block_len()];
            assert_eq!(ours, theirs, "{label}, block {i} of {input:?}");
        }
        assert_eq!(ours.len(), 1 + encoded.len(), "{label}");
    }
}

/// The conversion to half precision has one path with and one without the machine's instruction.
#[test]
fn halves_are_rounded_the_same_with_and_without_hardware() {
    let records = records("quantize.bin");
    let rounding = records.iter().find(|r| r.ty == GgmlType::F16).expect("the F16 record");
    for (&x, theirs) in rounding.values.iter().zip(rounding.encoded.chunks_exact(2)) {
        assert_eq!(F16::from_f32(x).0, theirs, "{x:e}");
        assert_eq!(half::f16::from_f32_const(x).to_le_bytes(), theirs, "{x:e} without hardware");
    }
}

#[test]
fn quantize_declines_what_it_cannot_write() {
    let mut out = vec![1, 2, 3];
    for &ty in GgmlType::ALL {
        let x = vec![0.5; ty.block_len()];
        assert_eq!(quant::quantize(ty, &x, &mut Vec::new()).is_some(), ty.writable(), "{ty}");
        if ty.block_len() > 1 {
            assert_eq!(quant::quantize(ty, &x[1..], &mut out), None, "{ty}: part of a block");
        }
    }
    assert_eq!(quant::quantize(GgmlType::Q2_K, &[0.0; 256], &mut out), None);
    assert_eq!(out, [1, 2, 3]);
}

/// Blocks lie at any address in a mapped file.
#[test]
fn dequantizes_at_any_alignment() {
    for Record { label, ty, encoded, values } in records("dequantize.bin") {
        for shift in 1..4 {
            let mut moved = vec![0; shift];
            moved.extend_from_slice(&encoded);
            let mut ours = vec![0.0; values.len()];
            quant::dequantize(ty, &moved[shift..], &mut ours);
            assert!(
                ours.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits()),
                "{label}, shift {shift}"
            );
        }
    }
}

/// (number, name, block length, block bytes)
type Row = (u32, String, usize, usize);

#[test]
fn the_type_table_is_that_of_gguf_py_and_llama_cpp() {
    let listing: Vec<serde_json::Value> = serde_json::from_slice(&golden("types.json")).unwrap();
    let mut expected: Vec<Row> = Vec::new();
    for entry in &listing {
        let number = |key: &str| entry[key].as_u64().unwrap() as usize;
        let name = entry["name"].as_str().unwrap().to_string();
        // Where the two differ, llama.cpp is right: two halves and 32 bytes make 36.
        let bytes = if name == "Q8_1" { 36 } else { number("block_bytes") };
        expected.push((number("id") as u32, name, number("block_len"), bytes));
    }
    // In llama.cpp since July 2026 (its pull request 24448), not yet in the package.
    expected.push((42, "Q2_0".into(), 64, 18));

    let ours: Vec<Row> = GgmlType::ALL
        .iter()
        .map(|&ty| (ty as u32, ty.name().to_string(), ty.block_len(), ty.block_bytes()))
        .collect();
    assert_eq!(ours, expected);
    for &ty in GgmlType::ALL {
        assert_eq!(GgmlType::from_id(ty as u32), Some(ty));
    }
    for withdrawn_or_unknown in [4, 5, 31, 32, 33, 36, 37, 38, 43, u32::MAX] {
        assert_eq!(GgmlType::from_id(withdrawn_or_unknown), None);
    }
}

#[test]
fn rows_are_whole_blocks_and_do_not_overflow() {
    assert_eq!(GgmlType::Q4_K.row_bytes(512), Some(288));
    assert_eq!(GgmlType::Q4_K.row_bytes(0), Some(0));
    assert_eq!(GgmlType::Q4_K.row_bytes(511), None);
    assert_eq!(GgmlType::Q8_0.row_bytes(usize::MAX - 31), None);
    assert_eq!(GgmlType::F64.row_bytes(usize::MAX / 4), None);
}
