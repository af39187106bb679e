//! Formats on the device against those of files.

use super::*;
use crate::quant::dequantize;

fn random_row(ty: GgmlType, len: usize) -> Vec<u8> {
    let mut state = ty as u64 + 1;
    let mut bytes: Vec<u8> = (0..ty.row_bytes(len).unwrap())
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect();
    // Neither infinite nor NaN, whatever these bytes are used for.
    bytes.iter_mut().filter(|b| **b & 0x7c == 0x7c).for_each(|b| *b ^= 0x24);
    bytes
}

#[test]
fn streams_hold_every_weight_of_every_type() {
    for &ty in GgmlType::ALL.iter().filter(|ty| ty.readable()) {
        let format = Format::of(ty).unwrap();
        let lens: &[usize] = if ty.block_len() == 1 { &[1, 31, 100, 512] } else { &[256, 768] };
        for &len in lens {
            let row = random_row(ty, len);
            let mut expected = vec![0.0; len];
            dequantize(ty, &row, &mut expected);
            // A power of two, so that it does not matter when it is multiplied.
            let factor = if ty == GgmlType::NVFP4 { 0.25 } else { 1.0 };
            expected.iter_mut().for_each(|w| *w *= factor);
            expected.resize(len.next_multiple_of(BLOCK), 0.0);
            let mut streams = Streams::default();
            split_row(ty, factor, &row, &mut streams);
            let streams = streams.finish();
            let blocks = len.div_ceil(BLOCK);
            for (stream, rate) in streams.iter().zip(format.streams()) {
                assert_eq!(stream.len(), rate.bytes_for(blocks), "{ty} {len}");
            }
            let got: Vec<f32> = (0..blocks).flat_map(|block| unsplit(format, &streams, block)).collect();
            assert_eq!(got, expected, "{ty} {len}");
        }
    }
}

/// A high plane alone stands for the weights whose low bits are a one and zeros.
#[test]
fn a_high_plane_alone_stands_for_the_middle() {
    for &ty in GgmlType::ALL {
        let Some(high) = Format::of_high_plane(ty) else { continue };
        let low_bits = high.high_alone().expect("it is one").low_bits;
        let (len, row) = (768, random_row(ty, 768));
        let mut whole = Streams::default();
        split_row(ty, 1.0, &row, &mut whole);
        let alone = whole.clone().kept_by(high).finish();
        for (stream, rate) in alone.iter().zip(high.streams()) {
            assert_eq!(stream.len(), rate.bytes_for(len / BLOCK), "{ty}");
        }
        // By the layout of the low plane, or of nibbles where both are one.
        match (low_bits, &mut whole.0) {
            (4, [_, low, _]) => low.fill(0x88),
            (2, [_, low, _]) if !low.is_empty() => low.fill(0xaa),
            (2, [high, ..]) => high.iter_mut().for_each(|byte| *byte = *byte & 0xcc | 0x22),
            (1, [_, low, _]) => low.fill(0xff),
            (bits, _) => panic!("{bits} low bits"),
        }
        let set = whole.finish();
        let format = Format::of(ty).unwrap();
        for block in 0..len / BLOCK {
            assert_eq!(unsplit(high, &alone, block), unsplit(format, &set, block), "{ty}, block {block}");
        }
    }
}

/// What a GPU has of a type with its high plane alone, the CPU has with the low one.
#[test]
fn planes_lie_apart_on_both_sides_or_on_none() {
    use crate::backend::cpu::matmul::Packed;
    let mut apart = 0;
    for &ty in GgmlType::ALL.iter().filter(|ty| Packed::knows(**ty)) {
        assert_eq!(Format::of_high_plane(ty).is_some(), Packed::has_low_plane(ty), "{ty}");
        apart += usize::from(Packed::has_low_plane(ty));
    }
    assert_eq!(apart, 6);
}

#[test]
fn no_type_that_can_be_read_is_left_out() {
    for ty in GgmlType::ALL {
        assert_eq!(Format::of(*ty).is_some(), ty.readable(), "{ty}");
    }
}
