//! How weights lie in device memory: each matrix in streams, one per kind of bits, so that every load of a kernel
//! is whole and aligned. The unit is a block of 32 weights of one row; what a stream holds of a block is said in
//! the shader text of its format.

#[cfg(test)]
mod tests;

use crate::quant::{
    F16, GgmlType,
    blocks::*,
    grids::LEVELS_2,
    groups::{Group, Grouped},
};

/// Weights in a block.
pub const BLOCK: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types)]
pub enum Format {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    /// The high plane of Q8_0, whose low plane lies elsewhere; and so on.
    Q8High,
    Q4_0High,
    Q4_1High,
    Q4KHigh,
    Q5KHigh,
    Q6KHigh,
    Q2_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Iq4Nl,
    Iq4Xs,
    Iq2,
    Mxfp4,
    Nvfp4,
    F16,
    Bf16,
    F32,
}

/// What one stream of a matrix takes: so many bytes for so many blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub bytes: usize,
    pub blocks: usize,
}

impl Rate {
    const NONE: Rate = Rate { bytes: 0, blocks: 1 };

    const fn per_block(bytes: usize) -> Self {
        Rate { bytes, blocks: 1 }
    }

    /// Bytes for so many blocks, whole words.
    pub fn bytes_for(self, blocks: usize) -> usize {
        (blocks.div_ceil(self.blocks) * self.bytes).next_multiple_of(4)
    }
}

/// What a high plane alone stands for: see `shaders/common/high/alone.wgsl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighAlone {
    pub low_bits: u32,
    pub zero: u32,
}

/// How the weights of a type change on their way to the GPU, where they are more than taken apart.
pub fn conversion(ty: GgmlType) -> Option<&'static str> {
    Some(match ty {
        GgmlType::Q3_K | GgmlType::IQ3_XXS | GgmlType::IQ3_S | GgmlType::IQ1_S | GgmlType::IQ1_M => "as Q6_K",
        GgmlType::Q1_0 | GgmlType::Q2_0 | GgmlType::TQ1_0 | GgmlType::TQ2_0 => "as Q4_0",
        GgmlType::IQ4_XS | GgmlType::NVFP4 => "with its scales multiplied out",
        GgmlType::Q2_K | GgmlType::IQ2_XXS | GgmlType::IQ2_XS | GgmlType::IQ2_S => "in four bits",
        _ => return None,
    })
}

impl Format {
    pub const ALL: [Format; 23] = {
        use Format::*;
        [
            Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8High, Q4_0High, Q4_1High, Q4KHigh, Q5KHigh, Q6KHigh, Q2_K, Q4_K,
            Q5_K, Q6_K, Iq4Nl, Iq4Xs, Iq2, Mxfp4, Nvfp4, F16, Bf16, F32,
        ]
    };

    /// The format that holds weights of this type without loss; `None` for types that cannot be read at all.
    pub fn of(ty: GgmlType) -> Option<Self> {
        use GgmlType as T;
        Some(match ty {
            T::Q4_0 => Format::Q4_0,
            T::Q4_1 => Format::Q4_1,
            T::Q5_0 => Format::Q5_0,
            T::Q5_1 => Format::Q5_1,
            T::Q8_0 => Format::Q8_0,
            T::Q2_K => Format::Q2_K,
            // Signed scales of sixteen weights, as Q6_K has them; what is smaller than 32 fits into six bits.
            T::Q3_K | T::IQ3_XXS | T::IQ3_S | T::IQ1_S | T::IQ1_M => Format::Q6_K,
            T::Q1_0 | T::Q2_0 | T::TQ1_0 | T::TQ2_0 => Format::Q4_0,
            T::IQ2_XXS | T::IQ2_XS | T::IQ2_S => Format::Iq2,
            T::Q4_K => Format::Q4_K,
            T::Q5_K => Format::Q5_K,
            T::Q6_K => Format::Q6_K,
            T::IQ4_NL => Format::Iq4Nl,
            T::IQ4_XS => Format::Iq4Xs,
            T::MXFP4 => Format::Mxfp4,
            T::NVFP4 => Format::Nvfp4,
            T::F16 => Format::F16,
            T::BF16 => Format::Bf16,
            T::F32 => Format::F32,
            _ => return None,
        })
    }

    /// The format of a type's high plane alone, where products can be made of it and of the low plane apart.
    pub fn of_high_plane(ty: GgmlType) -> Option<Self> {
        Some(match ty {
            GgmlType::Q8_0 => Format::Q8High,
            GgmlType::Q4_0 => Format::Q4_0High,
            GgmlType::Q4_1 => Format::Q4_1High,
            GgmlType::Q4_K => Format::Q4KHigh,
            GgmlType::Q5_K => Format::Q5KHigh,
            GgmlType::Q6_K => Format::Q6KHigh,
            _ => return None,
        })
    }

    /// Of a high plane alone: how many bits are elsewhere, and what whole numbers are too large by.
    pub const fn high_alone(self) -> Option<HighAlone> {
        let (low_bits, zero) = match self {
            Format::Q8High => (4, 128),
            Format::Q4_0High => (2, 8),
            Format::Q4_1High | Format::Q4KHigh => (2, 0),
            Format::Q5KHigh => (1, 0),
            Format::Q6KHigh => (2, 32),
            _ => return None,
        };
        Some(HighAlone { low_bits, zero })
    }

    /// The streams in the order of their bindings: the high plane (or all of a float), the low plane, the scales.
    pub const fn streams(self) -> [Rate; 3] {
        let halves = Rate { bytes: 4, blocks: 2 };
        let plane = Rate::per_block(16);
        let of_twos = Rate::per_block(8);
        match self {
            Format::Q4_0High => [of_twos, Rate::NONE, halves],
            Format::Q4_1High => [of_twos, Rate::NONE, Rate::per_block(4)],
            Format::Q4KHigh => [of_twos, Rate::NONE, Rate { bytes: 16, blocks: 8 }],
            Format::Q5KHigh => [plane, Rate::NONE, Rate { bytes: 16, blocks: 8 }],
            Format::Q6KHigh => [plane, Rate::NONE, Rate { bytes: 20, blocks: 8 }],
            Format::Q4_0 | Format::Iq4Nl | Format::Q8High => [plane, Rate::NONE, halves],
            Format::Q4_1 => [plane, Rate::NONE, Rate::per_block(4)],
            Format::Q5_0 => [plane, Rate::per_block(4), halves],
            Format::Q5_1 => [plane, Rate::per_block(4), Rate::per_block(4)],
            Format::Q8_0 => [plane, plane, halves],
            Format::Q2_K | Format::Iq2 => [plane, Rate::NONE, Rate { bytes: 20, blocks: 8 }],
            Format::Q4_K => [plane, Rate::NONE, Rate { bytes: 16, blocks: 8 }],
            Format::Q5_K => [plane, Rate::per_block(4), Rate { bytes: 16, blocks: 8 }],
            Format::Q6_K => [plane, Rate::per_block(8), Rate { bytes: 20, blocks: 8 }],
            Format::Iq4Xs => [plane, Rate::NONE, Rate::per_block(4)],
            Format::Mxfp4 => [plane, Rate::NONE, Rate { bytes: 4, blocks: 4 }],
            Format::Nvfp4 => [plane, Rate::NONE, Rate::per_block(8)],
            Format::F16 | Format::Bf16 => [Rate::per_block(64), Rate::NONE, Rate::NONE],
            Format::F32 => [Rate::per_block(128), Rate::NONE, Rate::NONE],
        }
    }

    /// Device bytes of so many blocks, without what alignment adds.
    pub fn bytes(self, blocks: usize) -> usize {
        self.streams().iter().map(|rate| rate.bytes_for(blocks)).sum()
    }

    /// Whether the low bits of a weight lie apart, here or elsewhere, so that it can be read by its high ones alone.
    pub const fn has_planes(self) -> bool {
        self.streams()[1].bytes > 0 || self.high_alone().is_some()
    }

    /// Whether either half of a block has a scale of its own.
    pub const fn has_half_scales(self) -> bool {
        matches!(self, Format::Q2_K | Format::Q6_K | Format::Q6KHigh | Format::Iq2 | Format::Nvfp4)
    }

    /// Whether the kernel of wide tiles has room in registers for what it keeps of a block.
    pub const fn fits_wide_tiles(self) -> bool {
        !self.is_float() && !self.has_half_scales() && !matches!(self, Format::Q5_1 | Format::Q5_K)
    }

    pub const fn is_float(self) -> bool {
        matches!(self, Format::F16 | Format::Bf16 | Format::F32)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Format::Q4_0 => "q4_0",
            Format::Q4_1 => "q4_1",
            Format::Q5_0 => "q5_0",
            Format::Q5_1 => "q5_1",
            Format::Q8_0 => "q8_0",
            Format::Q8High => "q8_high",
            Format::Q4_0High => "q4_0_high",
            Format::Q4_1High => "q4_1_high",
            Format::Q4KHigh => "q4_k_high",
            Format::Q5KHigh => "q5_k_high",
            Format::Q6KHigh => "q6_k_high",
            Format::Q2_K => "q2_k",
            Format::Q4_K => "q4_k",
            Format::Q5_K => "q5_k",
            Format::Q6_K => "q6_k",
            Format::Iq4Nl => "iq4_nl",
            Format::Iq4Xs => "iq4_xs",
            Format::Iq2 => "iq2",
            Format::Mxfp4 => "mxfp4",
            Format::Nvfp4 => "nvfp4",
            Format::F16 => "f16",
            Format::Bf16 => "bf16",
            Format::F32 => "f32",
        }
    }
}

/// Streams under construction.
#[derive(Clone, Debug, Default)]
pub struct Streams(pub [Vec<u8>; 3]);

impl Streams {
    /// Whole words, as the device takes them.
    pub fn finish(mut self) -> [Vec<u8>; 3] {
        for stream in &mut self.0 {
            stream.resize(stream.len().next_multiple_of(4), 0);
        }
        self.0
    }

    /// The same for a format that keeps nothing of them but the high plane, where `format` is one. Of four bits these are the
    /// upper two.
    pub fn kept_by(mut self, format: Format) -> Self {
        if format.high_alone().is_some() {
            if format.streams()[0] == Rate::per_block(8) {
                let blocks = self.0[0].as_chunks::<16>().0.iter();
                self.0[0] =
                    blocks.flat_map(|block| side_by_side::<2, 8>(&of_plane(block).map(|q| q >> 2))).collect();
            }
            self.0[1].clear();
        }
        self
    }

    fn high(&mut self, q: &[u8; BLOCK]) {
        self.0[0].extend_from_slice(&plane(q));
    }

    fn low(&mut self, bytes: &[u8]) {
        self.0[1].extend_from_slice(bytes);
    }

    fn scales(&mut self, bytes: &[u8]) {
        self.0[2].extend_from_slice(bytes);
    }
}

/// Four bits a weight. Word j holds weights 8j..8j+8: the first four in the low halves of its bytes, the others
/// in the high halves.
fn plane(q: &[u8; BLOCK]) -> [u8; 16] {
    std::array::from_fn(|i| {
        let first = i / 4 * 8 + i % 4;
        q[first] & 15 | q[first + 4] << 4
    })
}

/// The inverse of [`plane`].
fn of_plane(plane: &[u8; 16]) -> [u8; BLOCK] {
    std::array::from_fn(|i| plane[i / 8 * 4 + i % 4] >> (i % 8 / 4 * 4) & 15)
}

/// The nibbles of 16 bytes as ggml lays them: low ones first.
fn nibbles(qs: &[u8; 16]) -> [u8; BLOCK] {
    std::array::from_fn(|i| qs[i % 16] >> (i / 16 * 4) & 15)
}

/// One row of the file's blocks, appended to the streams; floats are padded with zeros to whole blocks. `factor` is what the
/// weights are multiplied by.
pub fn split_row(ty: GgmlType, factor: f32, row: &[u8], out: &mut Streams) {
    assert!(factor == 1.0 || ty == GgmlType::NVFP4, "{ty} has no scales of the file's tensors");
    use GgmlType as T;
    fn blocks<B: bytemuck::Pod>(row: &[u8]) -> &[B] {
        bytemuck::cast_slice(row)
    }
    match ty {
        T::Q4_0 => blocks(row).iter().for_each(|b: &BlockQ4_0| {
            out.high(&nibbles(&b.qs));
            out.scales(&b.d.0);
        }),
        T::Q4_1 => blocks(row).iter().for_each(|b: &BlockQ4_1| {
            out.high(&nibbles(&b.qs));
            out.scales(&[b.d.0, b.m.0].concat());
        }),
        T::Q5_0 => blocks(row).iter().for_each(|b: &BlockQ5_0| {
            five_bits(&b.qs, b.fifth_bits(), out);
            out.scales(&b.d.0);
        }),
        T::Q5_1 => blocks(row).iter().for_each(|b: &BlockQ5_1| {
            five_bits(&b.qs, b.fifth_bits(), out);
            out.scales(&[b.d.0, b.m.0].concat());
        }),
        T::Q8_0 => blocks(row).iter().for_each(|b: &BlockQ8_0| {
            let q = b.qs.map(|q| q as u8 ^ 0x80);
            out.high(&q.map(|q| q >> 4));
            out.low(&plane(&q.map(|q| q & 15)));
            out.scales(&b.d.0);
        }),
        T::Q2_K => blocks(row).iter().for_each(|b: &BlockQ2K| {
            for block in 0..8 {
                let (half, shift) = (block / 4, block % 4 * 2);
                out.high(&std::array::from_fn(|i| b.qs[half * 32 + i] >> shift & 3));
            }
            out.scales(&b.scales);
            out.scales(&[b.d.0, b.dmin.0].concat());
        }),
        T::Q3_K => blocks(row).iter().for_each(|b: &BlockQ3K| {
            for block in 0..8 {
                let (half, shift) = (block / 4, block % 4 * 2);
                let q: [u8; BLOCK] = std::array::from_fn(|i| {
                    // 32 more, as Q6_K counts; 4 less, as Q3_K does.
                    28 + (b.qs[half * 32 + i] >> shift & 3 | (b.hmask[i] >> block & 1) << 2)
                });
                six_bits(&q, out);
            }
            out.scales(&std::array::from_fn::<u8, 16, _>(|sub| b.scale(sub) as u8));
            out.scales(&b.d.to_f32().to_le_bytes());
        }),
        T::Q4_K => blocks(row).iter().for_each(|b: &BlockQ4K| {
            for block in 0..8 {
                let (run, shift) = (block / 2 * 32, block % 2 * 4);
                out.high(&std::array::from_fn(|i| b.qs[run + i] >> shift & 15));
            }
            out.scales(&[b.d.0, b.dmin.0].concat());
            out.scales(&b.scales);
        }),
        T::Q5_K => blocks(row).iter().for_each(|b: &BlockQ5K| {
            for block in 0..8 {
                let (run, shift) = (block / 2 * 32, block % 2 * 4);
                let q: [u8; BLOCK] = std::array::from_fn(|i| b.qs[run + i] >> shift & 15);
                let fifth = (0..BLOCK).fold(0, |bits, i| bits | u32::from(b.qh[i] >> block & 1) << i);
                with_fifth(&q, fifth, out);
            }
            out.scales(&[b.d.0, b.dmin.0].concat());
            out.scales(&b.scales);
        }),
        T::Q6_K => blocks(row).iter().for_each(|b: &BlockQ6K| {
            for block in 0..8 {
                let (half, in_half) = (block / 4, block % 4);
                let (low_at, low_shift) = (half * 64 + in_half % 2 * 32, in_half / 2 * 4);
                let q: [u8; BLOCK] = std::array::from_fn(|i| {
                    b.ql[low_at + i] >> low_shift & 15 | (b.qh[half * 32 + i] >> (in_half * 2) & 3) << 4
                });
                six_bits(&q, out);
            }
            out.scales(bytemuck::cast_slice(&b.scales));
            out.scales(&b.d.to_f32().to_le_bytes());
        }),
        T::IQ4_NL => blocks(row).iter().for_each(|b: &BlockIq4Nl| {
            out.high(&nibbles(&b.qs));
            out.scales(&b.d.0);
        }),
        T::IQ4_XS => blocks(row).iter().for_each(|b: &BlockIq4Xs| {
            for (sub, qs) in b.qs.as_chunks::<16>().0.iter().enumerate() {
                out.high(&nibbles(qs));
                out.scales(&(b.d.to_f32() * f32::from(b.scale(sub))).to_le_bytes());
            }
        }),
        T::MXFP4 => blocks(row).iter().for_each(|b: &BlockMxfp4| {
            out.high(&nibbles(&b.qs));
            out.scales(&[b.e]);
        }),
        T::NVFP4 => blocks(row).iter().for_each(|b: &BlockNvfp4| {
            for half in 0..2 {
                out.high(&b.nibbles(half));
                b.scales(half).iter().for_each(|scale| out.scales(&(scale * factor).to_le_bytes()));
            }
        }),
        T::IQ1_S => six_bit_rows::<BlockIq1S>(blocks(row), out),
        T::IQ1_M => six_bit_rows::<BlockIq1M>(blocks(row), out),
        T::IQ3_XXS => six_bit_rows::<BlockIq3Xxs>(blocks(row), out),
        T::IQ3_S => six_bit_rows::<BlockIq3S>(blocks(row), out),
        T::IQ2_XXS => six_level_rows::<BlockIq2Xxs>(blocks(row), out),
        T::IQ2_XS => six_level_rows::<BlockIq2Xs>(blocks(row), out),
        T::IQ2_S => six_level_rows::<BlockIq2S>(blocks(row), out),
        T::TQ1_0 => four_bit_rows::<BlockTq1>(blocks(row), out),
        T::TQ2_0 => four_bit_rows::<BlockTq2>(blocks(row), out),
        T::Q1_0 => four_bit_rows::<BlockQ1_0>(blocks(row), out),
        T::Q2_0 => four_bit_rows::<BlockQ2_0>(blocks(row), out),
        T::F16 | T::BF16 | T::F32 => {
            let bytes = ty.block_bytes();
            out.0[0].extend_from_slice(row);
            let padded = (row.len() / bytes).next_multiple_of(BLOCK) * bytes;
            let len = out.0[0].len() + padded - row.len();
            out.0[0].resize(len, 0);
        }
        other => panic!("{other} cannot be read: checked when a model is loaded"),
    }
}

fn groups<B: Grouped>(blocks: &[B]) -> impl Iterator<Item = Group> {
    blocks.iter().flat_map(|block| (0..B::TYPE.block_len() / BLOCK).map(|b| block.group(b)))
}

/// As Q4_0: whole numbers from -8 to 7, under scales that are halves.
fn four_bit_rows<B: Grouped>(blocks: &[B], out: &mut Streams) {
    for Group { scale, ints, .. } in groups(blocks) {
        out.high(&ints.map(|int| (int + 8) as u8));
        out.scales(&F16::from_f32(scale).0);
    }
}

/// As Q6_K: whole numbers from -32 to 31, a small multiple of one scale for each sixteen.
fn six_bit_rows<B: Grouped>(blocks: &[B], out: &mut Streams) {
    for block in blocks {
        groups(std::slice::from_ref(block))
            .for_each(|group| six_bits(&group.ints.map(|int| (int + 32) as u8), out));
        sixteen_scales(block, out);
    }
}

/// The levels of IQ2, by their number, and 8 more where they are negative.
fn six_level_rows<B: Grouped>(blocks: &[B], out: &mut Streams) {
    for block in blocks {
        for group in groups(std::slice::from_ref(block)) {
            out.high(&group.ints.map(|int| {
                let level = LEVELS_2.iter().position(|&level| level == int.unsigned_abs());
                level.expect("a level of the format") as u8 | if int < 0 { 8 } else { 0 }
            }));
        }
        sixteen_scales(block, out);
    }
}

fn sixteen_scales<B: Grouped>(block: &B, out: &mut Streams) {
    let of_all: Vec<Group> = groups(std::slice::from_ref(block)).collect();
    out.scales(&of_all.iter().flat_map(|group| group.sub.map(|sub| sub as u8)).collect::<Vec<u8>>());
    out.scales(&of_all[0].scale.to_le_bytes());
}

fn five_bits(qs: &[u8; 16], fifth: u32, out: &mut Streams) {
    with_fifth(&nibbles(qs), fifth, out);
}

/// `low4` are the lower four of five bits; the high plane wants the upper four.
fn with_fifth(low4: &[u8; BLOCK], fifth: u32, out: &mut Streams) {
    out.high(&std::array::from_fn(|i| low4[i] >> 1 | ((fifth >> i & 1) as u8) << 3));
    out.low(&side_by_side::<1, 4>(low4));
}

fn six_bits(q: &[u8; BLOCK], out: &mut Streams) {
    out.high(&q.map(|q| q >> 2));
    out.low(&side_by_side::<2, 8>(q));
}

/// The lowest `BITS` of each number. A word has those of as many quads as fit; its byte k those of the k-th number of each. So
/// one shift and one mask give a quad's, a byte each.
fn side_by_side<const BITS: usize, const BYTES: usize>(q: &[u8; BLOCK]) -> [u8; BYTES] {
    let in_byte = 8 / BITS;
    std::array::from_fn(|byte| {
        let (word, k) = (byte / 4, byte % 4);
        (0..in_byte).fold(0, |bits, quad| {
            bits | (q[4 * (in_byte * word + quad) + k] & ((1 << BITS) - 1)) << (BITS * quad)
        })
    })
}

/// What the shaders do, in scalar code: weights of one row back from the streams.
#[cfg(test)]
fn unsplit(format: Format, streams: &[Vec<u8>; 3], block: usize) -> [f32; BLOCK] {
    use spec_run_kernels::quant::{iq4_nl::KVALUES, mxfp4, q4_k};
    let [high, low, scales] = streams;
    let half = |at: usize| F16([scales[at], scales[at + 1]]).to_f32();
    let from_plane = |plane: &[u8], i: usize| of_plane(plane[16 * block..].first_chunk().unwrap())[i];
    let hi = |i: usize| from_plane(high, i);
    let fifth = |i: usize| low[4 * block + i % 4] >> (i / 4) & 1;
    let twos = |plane: &[u8], i: usize| plane[8 * block + i / 16 * 4 + i % 4] >> (i / 4 % 4 * 2) & 3;
    let two = |i: usize| twos(low, i);
    // What is meant by the upper bits, and a one and zeros below.
    let upper_two = |i: usize| f32::from(twos(high, i) << 2 | 2);
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
        Format::Q4_0High => half(2 * block) * (upper_two(i) - 8.0),
        Format::Q4_1High => half(4 * block) * upper_two(i) + half(4 * block + 2),
        Format::Q4KHigh => k_scales().0 * upper_two(i) - k_scales().1,
        Format::Q5KHigh => k_scales().0 * f32::from(hi(i) << 1 | 1) - k_scales().1,
        Format::Q2_K => {
            let at = block / 8 * 20;
            let byte = scales[at + block % 8 * 2 + i / 16];
            half(at + 16) * f32::from(byte & 15) * f32::from(hi(i)) - half(at + 18) * f32::from(byte >> 4)
        }
        Format::Q4_K => k_scales().0 * f32::from(hi(i)) - k_scales().1,
        Format::Q5_K => k_scales().0 * f32::from(hi(i) << 1 | fifth(i)) - k_scales().1,
        Format::Q6_K => signed_scale(i) * (f32::from(hi(i) << 2 | two(i)) - 32.0),
        Format::Q6KHigh => signed_scale(i) * (f32::from(hi(i) << 2 | 2) - 32.0),
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
