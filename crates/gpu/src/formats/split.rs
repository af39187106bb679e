//! Takes the blocks of files apart into streams.

use super::{BLOCK, FileType, Format, Rate};
use crate::{
    backend::cpu::matmul::{Packable, Split},
    quant::{Block, F16, GgmlType, Weights, blocks::*, grids::LEVELS_2},
};

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

    /// The same for a format that keeps nothing of them but the high plane, where `format` is one: of a plane of four bits all, or
    /// the upper two.
    pub fn kept_by(mut self, format: Format) -> Self {
        if format.high_alone().is_some() {
            if format.streams()[0] == Rate::of(8, 1) {
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

    /// Numbers of so many bits: the upper four are in the high plane, if there are more.
    #[inline(always)]
    fn numbers(&mut self, bits: u32, q: &[u8; BLOCK]) {
        self.high(&q.map(|q| q >> bits.saturating_sub(4)));
        match bits {
            5 => self.low(&side_by_side::<1, 4>(q)),
            6 => self.low(&side_by_side::<2, 8>(q)),
            8 => self.low(&plane(q)),
            _ => {}
        }
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
pub fn of_plane(plane: &[u8; 16]) -> [u8; BLOCK] {
    std::array::from_fn(|i| plane[i / 8 * 4 + i % 4] >> (i % 8 / 4 * 4) & 15)
}

/// One row of the file's blocks, appended to the streams. `factor` is what the weights are multiplied by.
pub fn split_row(ty: GgmlType, factor: f32, row: &[u8], out: &mut Streams) {
    assert!(factor == 1.0 || ty == GgmlType::NVFP4, "{ty} has no scales of the file's tensors");
    let file =
        FileType::of(ty).unwrap_or_else(|| panic!("{ty} cannot be read: checked when a model is loaded"));
    (file.split)(row, factor, out);
}

fn blocks<B: bytemuck::Pod>(row: &[u8]) -> &[B] {
    bytemuck::cast_slice(row)
}

/// Floats of so many bytes, padded with zeros to whole blocks.
pub fn floats<const BYTES: usize>(row: &[u8], _: f32, out: &mut Streams) {
    let padding = row.len().next_multiple_of(BLOCK * BYTES) - row.len();
    let stream = &mut out.0[0];
    stream.extend_from_slice(row);
    stream.resize(stream.len() + padding, 0);
}

/// The numbers of a block of a file, 32 at a time.
fn numbers_of<B: Packable>(block: &B) -> impl Iterator<Item = [u8; BLOCK]> {
    (0..B::TYPE.block_len() / BLOCK).map(|b| bytemuck::cast(block.bits(b).map(u32::to_le_bytes)))
}

/// All of them, with as many bits as the format has.
fn numbers<B: Packable>(block: &B, out: &mut Streams) {
    numbers_of(block).for_each(|q| out.numbers(<B::Whole as Split>::BITS, &q));
}

/// Numbers, and scales that stay as they are in the file.
pub fn same_scales<B: Packable>(row: &[u8], _: f32, out: &mut Streams) {
    for b in blocks::<B>(row) {
        numbers(b, out);
        B::HEAD.iter().for_each(|range| out.scales(&bytemuck::bytes_of(b)[range.clone()]));
    }
}

pub fn q3_k(row: &[u8], _: f32, out: &mut Streams) {
    for b in blocks::<BlockQ3K>(row) {
        // 32 more, as Q6_K counts; 4 less, as Q3_K does.
        numbers_of(b).for_each(|q| out.numbers(6, &q.map(|q| 28 + q)));
        out.scales(&std::array::from_fn::<u8, 16, _>(|sub| b.scale(sub) as u8));
        out.scales(&b.d.to_f32().to_le_bytes());
    }
}

pub fn q6_k(row: &[u8], _: f32, out: &mut Streams) {
    for b in blocks::<BlockQ6K>(row) {
        numbers(b, out);
        out.scales(bytemuck::cast_slice(&b.scales));
        out.scales(&b.d.to_f32().to_le_bytes());
    }
}

pub fn iq4_xs(row: &[u8], _: f32, out: &mut Streams) {
    for b in blocks::<BlockIq4Xs>(row) {
        numbers(b, out);
        (0..8).for_each(|sub| out.scales(&(b.d.to_f32() * f32::from(b.scale(sub))).to_le_bytes()));
    }
}

pub fn nvfp4(row: &[u8], factor: f32, out: &mut Streams) {
    for b in blocks::<BlockNvfp4>(row) {
        numbers(b, out);
        let scales = [b.scales(0), b.scales(1)];
        scales.as_flattened().iter().for_each(|scale| out.scales(&(scale * factor).to_le_bytes()));
    }
}

fn groups<B: Block>(blocks: &[B]) -> impl Iterator<Item = Weights> {
    blocks.iter().flat_map(|block| (0..B::TYPE.block_len() / BLOCK).map(|b| block.weights(b)))
}

/// As Q4_0: whole numbers from -8 to 7, under scales that are halves.
pub fn four_bit_rows<B: Block>(row: &[u8], _: f32, out: &mut Streams) {
    for Weights { scale, ints, .. } in groups(blocks::<B>(row)) {
        out.high(&ints.map(|int| (int + 8) as u8));
        out.scales(&F16::from_f32(scale).0);
    }
}

/// As Q6_K: whole numbers from -32 to 31, a small multiple of one scale for each sixteen.
pub fn six_bit_rows<B: Block>(row: &[u8], _: f32, out: &mut Streams) {
    for block in blocks::<B>(row) {
        groups(std::slice::from_ref(block))
            .for_each(|group| out.numbers(6, &group.ints.map(|int| (int + 32) as u8)));
        sixteen_scales(block, out);
    }
}

/// The levels of IQ2, by their number, and 8 more where they are negative.
pub fn six_level_rows<B: Block>(row: &[u8], _: f32, out: &mut Streams) {
    for block in blocks::<B>(row) {
        for group in groups(std::slice::from_ref(block)) {
            out.high(&group.ints.map(|int| {
                let level = LEVELS_2.iter().position(|&level| u16::from(level) == int.unsigned_abs());
                level.expect("a level of the format") as u8 | if int < 0 { 8 } else { 0 }
            }));
        }
        sixteen_scales(block, out);
    }
}

fn sixteen_scales<B: Block>(block: &B, out: &mut Streams) {
    let of_all: Vec<Weights> = groups(std::slice::from_ref(block)).collect();
    out.scales(&of_all.iter().flat_map(|group| group.sub.map(|sub| sub as u8)).collect::<Vec<u8>>());
    out.scales(&of_all[0].scale.to_le_bytes());
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
