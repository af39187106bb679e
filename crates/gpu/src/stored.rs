//! How keys and values lie on the device: what `shaders/common/stored.wgsl` reads and writes. A row is whole quads of
//! words. Blocks are taken apart: first the whole numbers of all, then their fifth bits, then their scales.

use super::work::head_stride;
use crate::kv_type::KvType;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    pub keys: KvType,
    pub values: KvType,
}

const IN_F32: u32 = 0;
const IN_F16: u32 = 1;
const IN_Q8_0: u32 = 2;
const IN_BF16: u32 = 3;
/// With some of what follows added.
const IN_NIBBLES: u32 = 8;
const FIFTH: u32 = 1;
const MINIMUM: u32 = 2;
const LEVELS: u32 = 4;

/// What `stored.wgsl` calls a type.
fn number(ty: KvType) -> u32 {
    match ty {
        KvType::F32 => IN_F32,
        KvType::F16 => IN_F16,
        KvType::BF16 => IN_BF16,
        KvType::Q8_0 => IN_Q8_0,
        KvType::Q4_0 => IN_NIBBLES,
        KvType::Q4_1 => IN_NIBBLES + MINIMUM,
        KvType::Q5_0 => IN_NIBBLES + FIFTH,
        KvType::Q5_1 => IN_NIBBLES + FIFTH + MINIMUM,
        KvType::IQ4_NL => IN_NIBBLES + LEVELS,
    }
}

/// Bytes of a block's scale with its minimum, which come first in the format, and of its fifth bits, which come next.
fn parts(ty: KvType) -> [usize; 2] {
    let has = |what| number(ty) >= IN_NIBBLES && number(ty) & what != 0;
    [if has(MINIMUM) { 4 } else { 2 }, if has(FIFTH) { 4 } else { 0 }]
}

/// Words of a stored key or value: whole quads, so that keys can be read by quads.
pub fn kv_words(ty: KvType, head_dim: usize) -> usize {
    let block = ty.format().block_len();
    if block == 1 {
        return ty.row_bytes(head_stride(head_dim)) / 4;
    }
    let blocks = head_dim.div_ceil(block);
    (blocks * ty.format().block_bytes()).div_ceil(4).next_multiple_of(4)
}

/// The words of a row of a CPU's cache.
pub fn words_of(ty: KvType, row: &[u8]) -> Vec<u32> {
    let mut bytes = row.to_vec();
    if ty.format().block_len() > 1 {
        let [scale, fifth] = parts(ty);
        let part = |from: usize, to: usize| {
            row.chunks_exact(ty.format().block_bytes()).flat_map(move |block| block[from..to].iter().copied())
        };
        let (fifths, quants) = (part(scale, scale + fifth), part(scale + fifth, ty.format().block_bytes()));
        bytes = quants.chain(fifths).chain(part(0, scale)).collect();
        bytes.resize(bytes.len().next_multiple_of(16), 0);
    }
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// The row of a CPU's cache that such words are.
#[cfg(test)]
pub fn row_of(ty: KvType, words: &[u32], head_dim: usize) -> Vec<u8> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (block, size) = (ty.format().block_len(), ty.format().block_bytes());
    if block == 1 {
        return bytes[..ty.row_bytes(head_dim)].to_vec();
    }
    let [scale, fifth] = parts(ty);
    let (blocks, quant) = (head_dim / block, size - scale - fifth);
    let of = |first: usize, len: usize, i: usize| &bytes[first * blocks + i * len..][..len];
    (0..blocks)
        .flat_map(|i| [of(quant + fifth, scale, i), of(quant, fifth, i), of(0, quant, i)].concat())
        .collect()
}

impl Stored {
    pub fn constants(self, flushes_halves: bool) -> [(&'static str, f64); 3] {
        [
            ("KEYS", f64::from(number(self.keys))),
            ("VALUES", f64::from(number(self.values))),
            ("FLUSHES_HALVES", f64::from(u8::from(flushes_halves))),
        ]
    }

    /// Each type for keys and values, and each with halves for the other.
    #[cfg(test)]
    pub fn all() -> impl Iterator<Item = Stored> {
        let halves = KvType::F16;
        KvType::ALL.into_iter().flat_map(move |ty| {
            let beside = if ty == halves { vec![] } else { vec![(ty, halves), (halves, ty)] };
            beside.into_iter().chain([(ty, ty)]).map(|(keys, values)| Stored { keys, values })
        })
    }
}
