//! Weights rearranged at load, so that vectors read them in one stream.
//!
//! The rows of a matrix stand in groups, one row for each 32-bit lane of the tier's vectors (16 or 8; the
//! last group is filled up with rows of zeros). A group holds, per block of the format:
//! ```text
//! high plane: the scales' bytes, 4 at a time and then what is left, each of all rows side by side;
//!             then per 32 columns HIGH words of all rows: word 0 of row 0, word 0 of row 1, ..
//! low plane:  per 32 columns LOW words of all rows
//! ```
//! `HIGH`, `LOW` and what is in a word are the [`Split`]'s. The high planes of all groups lie one behind the other,
//! and then the low planes, so a coarse product, which needs the high bits alone, reads one stream too.
//! No bit is lost and none is added: [`scalar`] gets the blocks of the file back.
//!
//! A coarse weight is the middle of the values that its high bits leave open.
//!
//! Of some formats the low plane can also be packed by itself ([`low`]): then the scales and it are all that lies here.

pub mod formats;
mod low;
mod memory;
mod scalar;
pub mod split;

use std::ops::Range;

use rayon::prelude::*;

pub use formats::Packable;
pub use low::{HighBits, Low, PerHighBits};
pub use memory::PackedMemory;
use memory::Part;
pub use scalar::rows as scalar_rows;
use split::Split;

use super::{Weight, acts::GROUP};
use crate::{
    Result,
    quant::{GgmlType, for_block},
    simd::Isa,
};

/// Which layout of a format's integers is wanted, where it has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planes {
    /// High and low bits apart where that costs a full read next to nothing.
    Cheap,
    /// Apart wherever a format can have it.
    All,
    /// Together.
    Never,
}

impl Planes {
    fn layout(self, ty: GgmlType) -> Layout {
        match self {
            Planes::All => Layout::Planes,
            Planes::Cheap if ty == GgmlType::Q8_0 => Layout::Planes,
            Planes::Cheap | Planes::Never => Layout::Whole,
        }
    }
}

/// What of a matrix is packed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// All of it, high and low bits together.
    Whole,
    /// The high plane and the low one, where the format has two.
    Planes,
    /// The low plane alone, which a high plane of so many bits leaves.
    Low(HighBits),
}

/// A matrix `[rows, cols]` in groups of rows.
pub struct Packed {
    ty: GgmlType,
    rows: usize,
    cols: usize,
    lanes: usize,
    layout: Layout,
    high_bytes: usize,
    low_bytes: usize,
    data: Part,
}

/// `for_packed!(ty, layout, (B, S) => value)`: `value` with `B` the block of what lies there of a type that can be packed, and
/// `S` the split that is in use.
macro_rules! for_packed {
    ($ty:expr, $layout:expr, ($B:ident, $S:ident) => $value:expr) => {
        $crate::quant::for_block!(
            $ty,
            AsInFile => match $layout {
                $crate::matmul::packed::Layout::Whole => {
                    type $B = AsInFile;
                    type $S = <$B as $crate::matmul::packed::Packable>::Whole;
                    $value
                }
                $crate::matmul::packed::Layout::Planes => {
                    type $B = AsInFile;
                    type $S = <$B as $crate::matmul::packed::Packable>::Planes;
                    $value
                }
                $crate::matmul::packed::Layout::Low($crate::matmul::packed::HighBits::Most) => {
                    type $B = <AsInFile as $crate::matmul::packed::Packable>::Low;
                    type $S = <$B as $crate::matmul::packed::Packable>::Whole;
                    $value
                }
                $crate::matmul::packed::Layout::Low($crate::matmul::packed::HighBits::Two) => {
                    type $B = <AsInFile as $crate::matmul::packed::Packable>::LowOfTwo;
                    type $S = <$B as $crate::matmul::packed::Packable>::Whole;
                    $value
                }
            },
            else unreachable!("{} is not packed", $ty)
        )
    };
}
pub(super) use for_packed;

/// Bytes of one block of all rows of a group, in each plane.
pub(super) const fn block_bytes<B: Packable, S: Split>(lanes: usize) -> [usize; 2] {
    let subs = B::TYPE.block_len() / GROUP;
    [lanes * (B::HEAD_BYTES + subs * S::HIGH * 4), lanes * subs * S::LOW * 4]
}

/// Bytes of a row in each plane.
fn row_bytes(ty: GgmlType, cols: usize, layout: Layout) -> [usize; 2] {
    for_packed!(ty, layout, (B, S) => block_bytes::<B, S>(1)).map(|bytes| bytes * (cols / ty.block_len()))
}

impl Packed {
    /// Whether a format has a packed form.
    pub fn knows(ty: GgmlType) -> bool {
        for_block!(ty, B => true, else false)
    }

    /// [`new_in`](Self::new_in) with memory of its own.
    pub fn new(isa: Isa, w: &Weight, planes: Planes, done: impl Fn(Range<usize>)) -> Result<Self> {
        Self::new_in(&mut PackedMemory::default(), isa, w, planes, done)
    }

    /// Whether the low plane of a format can be multiplied by itself.
    pub fn has_low_plane(ty: GgmlType) -> bool {
        for_block!(ty, B => <<B as Packable>::Low as Packable>::IS_LOW, else false)
    }

    /// Packs a matrix for `isa`, in parallel on the current thread pool. `done` is told of the rows that are
    /// no longer needed in the file's form.
    pub fn new_in(
        memory: &mut PackedMemory,
        isa: Isa,
        w: &Weight,
        planes: Planes,
        done: impl Fn(Range<usize>),
    ) -> Result<Self> {
        Self::laid_out(memory, isa, w, planes.layout(w.ty), done)
    }

    /// The same of the low plane alone, which its type has.
    pub fn low_plane_in(
        memory: &mut PackedMemory,
        isa: Isa,
        w: &Weight,
        high: HighBits,
        done: impl Fn(Range<usize>),
    ) -> Result<Self> {
        assert!(Self::has_low_plane(w.ty), "{} has no low plane that lies alone", w.ty);
        Self::laid_out(memory, isa, w, Layout::Low(high), done)
    }

    pub(in crate::matmul) fn laid_out(
        memory: &mut PackedMemory,
        isa: Isa,
        w: &Weight,
        layout: Layout,
        done: impl Fn(Range<usize>),
    ) -> Result<Self> {
        let lanes = isa.lanes();
        let groups = w.rows.div_ceil(lanes);
        let [high_bytes, low_bytes] = row_bytes(w.ty, w.cols, layout).map(|bytes| bytes * lanes);
        let data = memory.take(groups * (high_bytes + low_bytes))?;
        let mut packed =
            Packed { ty: w.ty, rows: w.rows, cols: w.cols, lanes, layout, high_bytes, low_bytes, data };
        let pack_row = for_packed!(w.ty, layout, (B, S) => pack_row::<B, S> as PackRow);
        // Pieces that are large enough to share and small enough that little of the file is held twice.
        const PIECE_BYTES: usize = 8 << 20;
        let piece = (PIECE_BYTES / (high_bytes + low_bytes)).max(1);
        for first in (0..groups).step_by(piece) {
            let groups = first..groups.min(first + piece);
            pack(&mut packed, w, groups.clone(), pack_row);
            done(groups.start * lanes..w.rows.min(groups.end * lanes));
        }
        Ok(packed)
    }

    /// What [`Packed::bytes_read`] would be of a matrix, whole groups of rows taken for granted.
    pub fn bytes_read_of(ty: GgmlType, rows: usize, cols: usize, planes: Planes, coarse: bool) -> u64 {
        let [high, low] = row_bytes(ty, cols, planes.layout(ty));
        ((high + if coarse { 0 } else { low }) * rows) as u64
    }

    /// The same of a low plane alone.
    pub fn low_plane_bytes(ty: GgmlType, rows: usize, cols: usize, high: HighBits) -> u64 {
        row_bytes(ty, cols, Layout::Low(high)).into_iter().map(|bytes| (bytes * rows) as u64).sum()
    }

    /// The same of a matrix that is packed for `isa`, as [`Packed::bytes_read`] has it.
    pub fn bytes_read_for(
        isa: Isa,
        ty: GgmlType,
        [rows, cols]: [usize; 2],
        planes: Planes,
        coarse: bool,
    ) -> u64 {
        Self::bytes_read_of(ty, rows.next_multiple_of(isa.lanes()), cols, planes, coarse)
    }

    pub fn ty(&self) -> GgmlType {
        self.ty
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn lanes(&self) -> usize {
        self.lanes
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Bytes that a product reads: all, or the high planes.
    pub fn bytes_read(&self, coarse: bool) -> usize {
        let group = self.high_bytes + if coarse && self.has_coarse() { 0 } else { self.low_bytes };
        group * self.rows.div_ceil(self.lanes)
    }

    /// Whether a product can be had from the high bits alone. Those of a low plane say nothing.
    pub fn has_coarse(&self) -> bool {
        self.low_bytes > 0 && !matches!(self.layout, Layout::Low(_))
    }

    /// The planes of a group of rows.
    #[inline(always)]
    pub(super) fn group(&self, g: usize) -> [&[u8]; 2] {
        self.planes_of(g..g + 1)
    }

    /// The planes of some groups of rows.
    #[inline(always)]
    pub fn planes_of(&self, groups: Range<usize>) -> [&[u8]; 2] {
        let lows = self.rows.div_ceil(self.lanes) * self.high_bytes;
        let high = &self.data[groups.start * self.high_bytes..groups.end * self.high_bytes];
        [high, &self.data[lows..][groups.start * self.low_bytes..groups.end * self.low_bytes]]
    }
}

/// How a packed matrix lies, for whoever reads it otherwise than by the kernels here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedForm {
    pub ty: GgmlType,
    /// It is the low plane alone.
    pub is_low: bool,
    /// Rows of a group.
    pub lanes: usize,
    /// Bytes of a block's scales, and how many times 32 weights a block has.
    pub head: usize,
    pub subs: usize,
    /// Words of 32 weights in either plane.
    pub high: usize,
    pub low: usize,
}

impl PackedForm {
    /// Bits of a number in words that hold 32 of them.
    pub fn bits(&self) -> usize {
        self.high + self.low
    }
}

impl Packed {
    pub fn form(&self) -> PackedForm {
        for_packed!(self.ty, self.layout, (B, S) => PackedForm {
            ty: self.ty,
            is_low: B::IS_LOW,
            lanes: self.lanes,
            head: B::HEAD_BYTES,
            subs: self.ty.block_len() / GROUP,
            high: S::HIGH,
            low: S::LOW,
        })
    }

    /// Bytes of a group of rows in either plane.
    pub fn group_bytes(&self) -> [usize; 2] {
        [self.high_bytes, self.low_bytes]
    }
}

/// Puts a row of the file into its lane of so many in the two planes of its group.
type PackRow = fn(row: &[u8], lane: usize, lanes: usize, high: &mut [u8], low: &mut [u8]);

fn pack(to: &mut Packed, w: &Weight, groups: Range<usize>, pack_row: PackRow) {
    let (lanes, all) = (to.lanes, w.rows.div_ceil(to.lanes));
    let (highs, lows) = to.data.split_at_mut(all * to.high_bytes);
    let of = |bytes| groups.start * bytes..groups.end * bytes;
    let lows: Vec<&mut [u8]> = match to.low_bytes {
        0 => groups.clone().map(|_| &mut [][..]).collect(),
        bytes => lows[of(bytes)].chunks_exact_mut(bytes).collect(),
    };
    let highs = highs[of(to.high_bytes)].par_chunks_exact_mut(to.high_bytes);
    highs.zip(lows).zip(groups.into_par_iter()).for_each(|((high, low), g)| {
        for lane in 0..lanes {
            if let Some(row) = (g * lanes + lane < w.rows).then(|| w.row(g * lanes + lane)) {
                pack_row(row, lane, lanes, high, low);
            }
        }
    });
}

fn pack_row<B: Packable, S: Split>(row: &[u8], lane: usize, lanes: usize, high: &mut [u8], low: &mut [u8]) {
    let blocks: &[B] = bytemuck::cast_slice(row);
    let [high_block, low_block] = const { [block_bytes::<B, S>(1)[0], block_bytes::<B, S>(1)[1]] };
    for (n, block) in blocks.iter().enumerate() {
        let high = &mut high[n * high_block * lanes..][..high_block * lanes];
        let low = &mut low[n * low_block * lanes..][..low_block * lanes];
        let mut at = 0;
        for from in head_pieces::<B>() {
            let piece = from.len();
            high[at * lanes + lane * piece..][..piece].copy_from_slice(&bytemuck::bytes_of(block)[from]);
            at += piece;
        }
        for b in 0..B::TYPE.block_len() / GROUP {
            let (highs, lows) = S::split(block.bits(b));
            let put = |to: &mut [u8], i: usize, word: u32| {
                to[(i * lanes + lane) * 4..][..4].copy_from_slice(&word.to_le_bytes());
            };
            for (i, &word) in highs[..S::HIGH].iter().enumerate() {
                put(&mut high[B::HEAD_BYTES * lanes..], b * S::HIGH + i, word);
            }
            for (i, &word) in lows[..S::LOW].iter().enumerate() {
                put(low, b * S::LOW + i, word);
            }
        }
    }
}

/// Where in a block the pieces of its head stand that lie side by side: of each range 4 bytes at a time, and what is left.
fn head_pieces<B: Packable>() -> impl Iterator<Item = Range<usize>> {
    B::HEAD.iter().flat_map(|range| range.clone().step_by(4).map(|start| start..range.end.min(start + 4)))
}
