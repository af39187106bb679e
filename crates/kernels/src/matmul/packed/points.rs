//! What packing needs of the formats whose weights are points of grids: words of their numbers, eight bits of each, and of
//! signs. A sign is where vectors find it: bit j of byte i is that of weight `4·j + i`.

use std::ops::Range;

use super::{
    Packable,
    formats::{layout, word},
    split::Opaque,
};
use crate::quant::{Block, Weights, blocks::*, grids::even_signs};

/// From the order of the weights.
fn in_place(signs: u32) -> u32 {
    let every_fourth = |signs: u32| {
        let ones = signs & 0x1111_1111;
        let twos = (ones | ones >> 3) & 0x0303_0303;
        let fours = (twos | twos >> 6) & 0x000f_000f;
        (fours | fours >> 12) as u8
    };
    u32::from_le_bytes([0, 1, 2, 3].map(|i| every_fourth(signs >> i)))
}

/// To the order of the weights.
fn in_order(signs: u32) -> u32 {
    (0..32).fold(0, |to, n| to | (signs >> (8 * (n % 4) + n / 4) & 1) << n)
}

/// The places of the signs that follow from seven others.
const SPARE: [u32; 4] = [25, 27, 29, 31];

/// Four times seven signs, and four other bits in the places of those that are not told.
fn with_spare_bits(sevens: u32, four: u32) -> u32 {
    let signs: [u8; 4] = std::array::from_fn(|l| even_signs((sevens >> (7 * l)) as u8));
    let told = in_place(u32::from_le_bytes(signs)) & !SPARE.iter().fold(0, |mask, at| mask | 1 << at);
    (0..4).fold(told, |to, l| to | (four >> l & 1) << SPARE[l])
}

/// What [`with_spare_bits`] was given.
fn from_spare_bits(word: u32) -> (u32, u32) {
    let signs = in_order(word);
    let sevens = (0..4).fold(0, |to, l| to | (signs >> (8 * l) & 127) << (7 * l));
    (sevens, (0..4).fold(0, |to, l| to | (word >> SPARE[l] & 1) << l))
}

fn padded<const N: usize>(words: [u32; N]) -> [u32; 8] {
    let mut all = [0; 8];
    all[..N].copy_from_slice(&words);
    all
}

fn put_word(bytes: &mut [u8], i: usize, word: u32) {
    bytes[4 * i..][..4].copy_from_slice(&word.to_le_bytes());
}

impl Packable for BlockIq2Xxs {
    layout!(Opaque<2>);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        let signs_and_scale = word(&self.qs[b], 1);
        padded([word(&self.qs[b], 0), with_spare_bits(signs_and_scale & 0xfff_ffff, signs_and_scale >> 28)])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        let (signs, scale) = from_spare_bits(bits[1]);
        put_word(&mut self.qs[b], 0, bits[0]);
        put_word(&mut self.qs[b], 1, signs | scale << 28);
        self.weights(b)
    }
}

impl Packable for BlockIq2Xs {
    layout!(Opaque<2>);
    const HEAD: &'static [Range<usize>] = &[66..74, 0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        let [mut low, mut ninths, mut sevens] = [0; 3];
        for l in 0..4 {
            let q = u32::from(u16::from_le_bytes(self.qs[4 * b + l]));
            low |= (q & 255) << (8 * l);
            ninths |= (q >> 8 & 1) << l;
            sevens |= q >> 9 << (7 * l);
        }
        padded([low, with_spare_bits(sevens, ninths)])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        let (sevens, ninths) = from_spare_bits(bits[1]);
        for l in 0..4 {
            let q = bits[0] >> (8 * l) & 255 | (ninths >> l & 1) << 8 | (sevens >> (7 * l) & 127) << 9;
            self.qs[4 * b + l] = (q as u16).to_le_bytes();
        }
        self.weights(b)
    }
}

impl Packable for BlockIq2S {
    layout!(Opaque<2>);
    const HEAD: &'static [Range<usize>] = &[66..82, 0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        padded([word(&self.qs, b), in_place(word(&self.signs, b))])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        put_word(&mut self.qs, b, bits[0]);
        put_word(&mut self.signs, b, in_order(bits[1]));
        self.weights(b)
    }
}

impl Packable for BlockIq3Xxs {
    layout!(Opaque<3>);
    const HEAD: &'static [Range<usize>] = &[0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        let signs_and_scale = u32::from_le_bytes(self.signs_and_scales[b]);
        let signs = with_spare_bits(signs_and_scale & 0xfff_ffff, signs_and_scale >> 28);
        padded([word(&self.qs, 2 * b), word(&self.qs, 2 * b + 1), signs])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        let (signs, scale) = from_spare_bits(bits[2]);
        put_word(&mut self.qs, 2 * b, bits[0]);
        put_word(&mut self.qs, 2 * b + 1, bits[1]);
        self.signs_and_scales[b] = (signs | scale << 28).to_le_bytes();
        self.weights(b)
    }
}

impl Packable for BlockIq3S {
    layout!(Opaque<3>);
    const HEAD: &'static [Range<usize>] = &[66..74, 106..110, 0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        padded([word(&self.qs, 2 * b), word(&self.qs, 2 * b + 1), in_place(word(&self.signs, b))])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        put_word(&mut self.qs, 2 * b, bits[0]);
        put_word(&mut self.qs, 2 * b + 1, bits[1]);
        put_word(&mut self.signs, b, in_order(bits[2]));
        self.weights(b)
    }
}

impl Packable for BlockIq1S {
    layout!(Opaque<1>);
    const HEAD: &'static [Range<usize>] = &[34..50, 0..2];

    fn bits(&self, b: usize) -> [u32; 8] {
        padded([word(&self.qs, b)])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        put_word(&mut self.qs, b, bits[0]);
        self.weights(b)
    }
}

impl Packable for BlockIq1M {
    layout!(Opaque<1>);
    const HEAD: &'static [Range<usize>] = &[32..56];

    fn bits(&self, b: usize) -> [u32; 8] {
        padded([word(&self.qs, b)])
    }
    fn weights_of(mut self, b: usize, bits: [u32; 8]) -> Weights {
        put_word(&mut self.qs, b, bits[0]);
        self.weights(b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_found_again() {
        for n in 0..32 {
            assert_eq!(in_place(1 << n), 1 << (8 * (n % 4) + n / 4), "sign {n}");
            assert_eq!(in_order(in_place(1 << n)), 1 << n, "sign {n}");
        }
        for seed in 0..1000u32 {
            let (sevens, four) = (seed.wrapping_mul(0x9e37_79b9) & 0xfff_ffff, seed % 16);
            assert_eq!(from_spare_bits(with_spare_bits(sevens, four)), (sevens, four));
        }
    }
}
