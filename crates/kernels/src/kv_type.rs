//! In what form keys and values are kept.

use std::{fmt, str::FromStr};

use half::bf16;

use crate::{
    Error, Result,
    quant::{self, Block, F16, GgmlType, Quantize, blocks::*},
};

/// The one list: a name that is also a weight format's, and how numbers are stored.
macro_rules! kv_types {
    ($($(#[$doc:meta])* $T:ident $store:ident($of:expr),)*) => {
        /// How keys or values are stored.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, reason = "as the formats are called")]
        pub enum KvType { $($(#[$doc])* $T,)* }

        impl KvType {
            /// All of them.
            pub const ALL: [KvType; [$(KvType::$T),*].len()] = [$(KvType::$T),*];

            /// The weight format of the same form.
            pub const fn format(self) -> GgmlType {
                match self { $(KvType::$T => GgmlType::$T,)* }
            }

            /// Stores one head's row.
            pub fn put(self, x: &[f32], row: &mut [u8]) {
                match self { $(KvType::$T => $store(x, row, $of),)* }
            }
        }
    };
}

kv_types! {
    /// Floats of 32 bits.
    F32 floats(f32::to_le_bytes),
    /// Floats of 16 bits.
    F16 floats(|x| F16::from_f32(x).0),
    /// The upper half of a float of 32 bits.
    BF16 floats(|x| bf16::from_f32(x).to_le_bytes()),
    /// Blocks of 32: an f16 scale and 32 bytes.
    Q8_0 blocks(BlockQ8_0::quantize),
    /// The same with 32 whole numbers of four bits.
    Q4_0 blocks(BlockQ4_0::quantize),
    /// These above a minimum, an f16 too.
    Q4_1 blocks(BlockQ4_1::quantize),
    /// Whole numbers of five bits.
    Q5_0 blocks(BlockQ5_0::quantize),
    /// These above a minimum.
    Q5_1 blocks(BlockQ5_1::quantize),
    /// An f16 scale and 32 numbers of a table of sixteen levels.
    IQ4_NL blocks(BlockIq4Nl::quickly),
}

fn floats<const N: usize>(x: &[f32], row: &mut [u8], of: impl Fn(f32) -> [u8; N]) {
    for (x, out) in x.iter().zip(row.as_chunks_mut::<N>().0) {
        *out = of(*x);
    }
}

fn blocks<B: Block>(x: &[f32], row: &mut [u8], of: impl Fn(&[f32]) -> B) {
    for (x, out) in x.chunks_exact(B::TYPE.block_len()).zip(row.chunks_exact_mut(size_of::<B>())) {
        out.copy_from_slice(bytemuck::bytes_of(&of(x)));
    }
}

impl KvType {
    /// Bytes of one head's row.
    pub fn row_bytes(self, head_dim: usize) -> usize {
        head_dim / self.format().block_len() * self.format().block_bytes()
    }

    /// A stored row as numbers.
    pub fn take(self, row: &[u8], out: &mut [f32]) {
        quant::dequantize(self.format(), row, out);
    }

    /// Whether heads of such a length can be stored so.
    pub fn check(self, head_dim: usize) -> Result<()> {
        let block = self.format().block_len();
        if head_dim.is_multiple_of(block) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "-ctk/-ctv {self} needs heads of a multiple of {block}, this model's have {head_dim}: use f16"
        )))
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let named = |ty: &KvType| ty.format().name().eq_ignore_ascii_case(s);
        KvType::ALL.into_iter().find(named).ok_or_else(|| {
            let names = KvType::ALL.map(|ty| ty.to_string());
            format!("supported types are {}", names.join(", "))
        })
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.format().name().to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of 64 numbers by the formats' own count of bits, as llama.cpp's tables have them.
    #[test]
    fn a_row_takes_what_its_format_says() {
        let bytes = [256, 128, 128, 68, 36, 40, 44, 48, 36];
        assert_eq!(KvType::ALL.map(|ty| ty.row_bytes(64)), bytes);
        for ty in KvType::ALL {
            assert_eq!(ty.to_string().parse(), Ok(ty));
            assert_eq!(ty.check(80).is_ok(), ty.format().block_len() == 1, "{ty}");
        }
        assert!("q2_k".parse::<KvType>().unwrap_err().contains("q5_1, iq4_nl"));
    }

    /// What is stored is within half a step of what it was, the step being that of the block; a whole one where four
    /// or five bits have no number for the side that is not the largest.
    #[test]
    fn a_row_comes_back_to_within_a_step() {
        let x: Vec<f32> = (0..96).map(|i| ((i * 37 % 101) as f32 - 40.0) * 0.03).collect();
        for ty in KvType::ALL {
            let mut row = vec![0xa5; ty.row_bytes(x.len())];
            let mut back = vec![f32::NAN; x.len()];
            ty.put(&x, &mut row);
            ty.take(&row, &mut back);
            for (x, back) in x.chunks(32).zip(back.chunks(32)) {
                let (low, high) = x.iter().fold((0f32, 0f32), |(low, high), x| (low.min(*x), high.max(*x)));
                let most = high.max(-low);
                let step = match ty {
                    KvType::F32 => 0.0,
                    KvType::F16 => most * 2f32.powi(-11),
                    KvType::BF16 => most * 2f32.powi(-8),
                    KvType::Q8_0 => most / 127.0,
                    KvType::Q4_0 => 2.0 * most / 8.0,
                    KvType::Q5_0 => 2.0 * most / 16.0,
                    KvType::Q4_1 => (high - low) / 15.0,
                    KvType::Q5_1 => (high - low) / 31.0,
                    // The widest gap between levels is 24 of 127; the scale is fitted to all 32.
                    KvType::IQ4_NL => 1.5 * most * 24.0 / 127.0,
                };
                // Scales are halves.
                let limit = 0.5 * step + most * 2f32.powi(-10);
                for (x, back) in x.iter().zip(back) {
                    assert!((x - back).abs() <= if step == 0.0 { 0.0 } else { limit }, "{ty}: {x} {back}");
                }
            }
        }
    }
}
