//! Reading the weight rows of a group side by side.

use super::lanes::Lanes;
use crate::quant::Block;

/// One block of every row of a group. The rows lie one behind the other, and so do the groups.
#[derive(Clone, Copy)]
pub struct Rows {
    block: *const u8,
    stride: usize,
    ahead: *const u8,
}

impl Rows {
    /// The blocks `offset` bytes into rows that begin at `first + i · stride`.
    ///
    /// # Safety
    /// The whole blocks are readable as long as the value is in use.
    #[inline(always)]
    pub unsafe fn new<L: Lanes>(first: *const u8, stride: usize, offset: usize) -> Self {
        let ahead = first.wrapping_add(L::ROWS * (stride + offset));
        // SAFETY: the caller's.
        Rows { block: unsafe { first.add(offset) }, stride, ahead }
    }

    /// The block of one row.
    ///
    /// # Safety
    /// The group has the row, and its block is a `B`.
    pub unsafe fn block_of<'a, B: Block>(self, row: usize) -> &'a B {
        // SAFETY: the caller's; a block may lie at any address.
        unsafe { &*self.block.add(row * self.stride).cast() }
    }

    /// Bytes `at..at + 16` of every block: vector i holds the i-th four of each row.
    ///
    /// So many rows side by side are too much for the hardware's foresight, so each call also fetches as much
    /// of the next group as it reads of this one. Fetched in larger portions it costs twice the time.
    ///
    /// # Safety
    /// A block has that many bytes.
    #[inline(always)]
    pub unsafe fn bytes_16<L: Lanes>(self, l: L, at: usize) -> [L::V; 4] {
        for line in (0..16 * L::ROWS).step_by(64) {
            l.prefetch(self.ahead.wrapping_add(L::ROWS * at + line));
        }
        // SAFETY: the caller's.
        unsafe { l.rows_16_bytes(self.block.add(at), self.stride) }
    }

    /// # Safety
    /// A block has that many bytes.
    #[inline(always)]
    pub unsafe fn bytes_32<L: Lanes>(self, l: L, at: usize) -> [L::V; 8] {
        // SAFETY: the caller's.
        unsafe {
            let [a, b, c, d] = self.bytes_16(l, at);
            let [e, f, g, h] = self.bytes_16(l, at + 16);
            [a, b, c, d, e, f, g, h]
        }
    }

    /// # Safety
    /// A block has 16 bytes.
    #[inline(always)]
    pub unsafe fn first_4_bytes<L: Lanes>(self, l: L) -> L::V {
        // SAFETY: the caller's; the vectors that are not used are not computed.
        unsafe { l.rows_16_bytes(self.block, self.stride)[0] }
    }
}
