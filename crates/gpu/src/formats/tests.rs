//! Formats on the device against those of files.

use spec_run_kernels::quant::{iq4_nl::KVALUES, mxfp4, q4_k};

use super::{split::of_plane, *};
use crate::{
    harness::Random,
    quant::{F16, dequantize, grids::LEVELS_2},
};

fn random_row(ty: GgmlType, len: usize) -> Vec<u8> {
    let mut random = Random::new(ty as u64);
    let mut bytes: Vec<u8> = (0..ty.row_bytes(len).unwrap()).map(|_| random.next() as u8).collect();
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

/// The streams of whole weights, so many low bits of each being those of a number. They are in the low plane, as far as there is
/// one, and in the plane of four bits.
pub fn with_low_bits(mut streams: Streams, low_bits: u32, number: u8) -> Streams {
    let [high, low, _] = &mut streams.0;
    let of_plane = (4 * low.len() / high.len()) as u32;
    let of_each = number & ((1 << of_plane) - 1);
    low.fill((0..8).step_by(of_plane.max(1) as usize).fold(0, |byte, at| byte | of_each << at));
    let mask = (1 << (low_bits - of_plane)) - 1;
    high.iter_mut().for_each(|byte| *byte = *byte & !(mask * 0x11) | ((number >> of_plane) * 0x11));
    streams
}

/// Types with the formats of their high planes.
pub fn high_planes() -> impl Iterator<Item = (GgmlType, Format)> {
    let of = |ty| HighBits::ALL.map(|high| Some((ty, Format::of_high_plane(ty, high)?)));
    let mut all: Vec<_> = GgmlType::ALL.iter().flat_map(|&ty| of(ty)).flatten().collect();
    all.dedup();
    all.into_iter()
}

/// A high plane alone stands for the weights whose low bits are a one and zeros.
#[test]
fn a_high_plane_alone_stands_for_the_middle() {
    assert_eq!(high_planes().count(), 9);
    for (ty, high) in high_planes() {
        let low_bits = high.high_alone().expect("it is one").low_bits;
        let (len, row) = (768, random_row(ty, 768));
        let mut whole = Streams::default();
        split_row(ty, 1.0, &row, &mut whole);
        let alone = whole.clone().kept_by(high).finish();
        for (stream, rate) in alone.iter().zip(high.streams()) {
            assert_eq!(stream.len(), rate.bytes_for(len / BLOCK), "{ty}");
        }
        let set = with_low_bits(whole, low_bits, 1 << (low_bits - 1)).finish();
        let format = Format::of(ty).unwrap();
        for block in 0..len / BLOCK {
            assert_eq!(unsplit(high, &alone, block), unsplit(format, &set, block), "{high:?}, block {block}");
        }
    }
}

/// What a GPU has of a type with its high plane alone, the CPU has with the low one.
#[test]
fn planes_lie_apart_on_both_sides_or_on_none() {
    use crate::backend::cpu::matmul::Packed;
    let mut apart = 0;
    for &ty in GgmlType::ALL.iter().filter(|ty| Packed::knows(**ty)) {
        for high in HighBits::ALL {
            assert_eq!(Format::of_high_plane(ty, high).is_some(), Packed::has_low_plane(ty), "{ty}");
        }
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

/// What the shaders do, in scalar code: weights of one row back from the streams.
fn unsplit(format: Format, streams: &[Vec<u8>; 3], block: usize) -> [f32; BLOCK] {
    let [high, low, scales] = streams;
    let half = |at: usize| F16([scales[at], scales[at + 1]]).to_f32();
    let from_plane = |plane: &[u8], i: usize| of_plane(plane[16 * block..].first_chunk().unwrap())[i];
    let hi = |i: usize| from_plane(high, i);
    let fifth = |i: usize| low[4 * block + i % 4] >> (i / 4) & 1;
    let twos = |plane: &[u8], i: usize| plane[8 * block + i / 16 * 4 + i % 4] >> (i / 4 % 4 * 2) & 3;
    let two = |i: usize| twos(low, i);
    // What is meant by the upper bits, and a one and zeros below.
    let top = |i: usize, low_bits: u32| f32::from(twos(high, i) << low_bits | 1 << (low_bits - 1));
    let upper_two = |i: usize| top(i, 2);
    let k_scales = || -> (f32, f32) {
        let s: &[u8; 16] = scales[block / 8 * 16..].first_chunk().unwrap();
        let (scale, min) = q4_k::scale_min(s[4..].first_chunk().unwrap(), block % 8);
        (F16([s[0], s[1]]).to_f32() * f32::from(scale), F16([s[2], s[3]]).to_f32() * f32::from(min))
    };
    let signed_scale = |i: usize| {
        let at = block / 8 * 20;
        let scale = scales[at + block % 8 * 2 + i / 16] as i8;
        f32::from_le_bytes(*scales[at + 16..].first_chunk().unwrap()) * f32::from(scale)
    };
    std::array::from_fn(|i| match format {
        Format::Q4_0 => half(2 * block) * (f32::from(hi(i)) - 8.0),
        Format::Q4_1 => half(4 * block) * f32::from(hi(i)) + half(4 * block + 2),
        Format::Q5_0 => half(2 * block) * (f32::from(hi(i) << 1 | fifth(i)) - 16.0),
        Format::Q5_1 => half(4 * block) * f32::from(hi(i) << 1 | fifth(i)) + half(4 * block + 2),
        Format::Q8_0 => half(2 * block) * (f32::from(hi(i) << 4 | from_plane(low, i)) - 128.0),
        Format::Q8High => half(2 * block) * (f32::from(hi(i) << 4) - 120.0),
        Format::Q8Top => half(2 * block) * (top(i, 6) - 128.0),
        Format::Q4_0High => half(2 * block) * (upper_two(i) - 8.0),
        Format::Q4_1High => half(4 * block) * upper_two(i) + half(4 * block + 2),
        Format::Q4KHigh => k_scales().0 * upper_two(i) - k_scales().1,
        Format::Q5KHigh => k_scales().0 * f32::from(hi(i) << 1 | 1) - k_scales().1,
        Format::Q5KTop => k_scales().0 * top(i, 3) - k_scales().1,
        Format::Q2_K => {
            let at = block / 8 * 20;
            let byte = scales[at + block % 8 * 2 + i / 16];
            half(at + 16) * f32::from(byte & 15) * f32::from(hi(i)) - half(at + 18) * f32::from(byte >> 4)
        }
        Format::Q4_K => k_scales().0 * f32::from(hi(i)) - k_scales().1,
        Format::Q5_K => k_scales().0 * f32::from(hi(i) << 1 | fifth(i)) - k_scales().1,
        Format::Q6_K => signed_scale(i) * (f32::from(hi(i) << 2 | two(i)) - 32.0),
        Format::Q6KHigh => signed_scale(i) * (f32::from(hi(i) << 2 | 2) - 32.0),
        Format::Q6KTop => signed_scale(i) * (top(i, 4) - 32.0),
        Format::Iq4Nl => half(2 * block) * f32::from(KVALUES[hi(i) as usize]),
        Format::Iq4Xs => {
            f32::from_le_bytes(*scales[4 * block..].first_chunk().unwrap())
                * f32::from(KVALUES[hi(i) as usize])
        }
        Format::Iq2 => {
            let at = block / 8 * 20;
            let d = f32::from_le_bytes(*scales[at + 16..].first_chunk().unwrap());
            let level = f32::from(LEVELS_2[usize::from(hi(i) & 7)]);
            d * f32::from(scales[at + block % 8 * 2 + i / 16]) * if hi(i) > 7 { -level } else { level }
        }
        Format::Mxfp4 => mxfp4::e8m0_half(scales[block]) * f32::from(mxfp4::VALUES[hi(i) as usize]),
        Format::Nvfp4 => {
            let scale = f32::from_le_bytes(*scales[8 * block + i / 16 * 4..].first_chunk().unwrap());
            scale * f32::from(mxfp4::VALUES[hi(i) as usize])
        }
        Format::F16 => F16(*high[64 * block + 2 * i..].first_chunk().unwrap()).to_f32(),
        Format::Bf16 => {
            let [a, b] = *high[64 * block + 2 * i..].first_chunk().unwrap();
            f32::from_le_bytes([0, 0, a, b])
        }
        Format::F32 => f32::from_le_bytes(*high[128 * block + 4 * i..].first_chunk().unwrap()),
    })
}
