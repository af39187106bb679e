//! Unpacked weights of one group of rows.

use super::lanes::Lanes;

/// Up to 8 blocks of 32 columns, for 8 or 16 rows (one per lane, the lanes of fewer rows first).
///
/// Indices count modulo the extent: in range or not, they stay inside, and no bounds check stands in the way.
#[repr(C, align(64))]
pub struct Panel {
    // [block][4 columns each][row][4], unsigned with the format's offset, or signed: see Lanes::SIGNED_BYTES
    ints: [[[u8; 64]; 8]; Panel::GROUPS],
    // [block][row]
    scales: [[f32; 16]; Panel::GROUPS],
    // [block][half][row]
    minimums: [[[f32; 16]; 2]; Panel::GROUPS],
    // [block][half][row]
    sub_scales: [[[i32; 16]; 2]; Panel::GROUPS],
}

impl Panel {
    pub const GROUPS: usize = 8;
    /// Bytes from one vector of integers to the next.
    pub const INTS_STRIDE: usize = 64;

    pub fn new() -> Self {
        Panel {
            ints: [[[0; 64]; 8]; Panel::GROUPS],
            scales: [[0.0; 16]; Panel::GROUPS],
            minimums: [[[0.0; 16]; 2]; Panel::GROUPS],
            sub_scales: [[[0; 16]; 2]; Panel::GROUPS],
        }
    }

    /// The weights of the first or the second 16 columns of block `b`: 4 vectors.
    #[inline(always)]
    pub fn ints(&self, b: usize, half: usize) -> *const u8 {
        self.ints[b % Panel::GROUPS][half % 2 * 4..].as_ptr().cast()
    }

    /// The weights of columns `4·j..4·j+4` of block `b`.
    #[inline(always)]
    pub fn put_ints<L: Lanes>(&mut self, l: L, b: usize, j: usize, v: L::V) {
        // SAFETY: a vector has at most 64 bytes, here and below.
        unsafe { l.store(self.ints[b % Panel::GROUPS][j % 8].as_mut_ptr(), v) };
    }

    #[inline(always)]
    pub fn scale<L: Lanes>(&self, l: L, b: usize) -> L::F {
        unsafe { l.load_f32(self.scales[b % Panel::GROUPS].as_ptr()) }
    }

    #[inline(always)]
    pub fn put_scale<L: Lanes>(&mut self, l: L, b: usize, v: L::F) {
        unsafe { l.store_f32(self.scales[b % Panel::GROUPS].as_mut_ptr(), v) };
    }

    #[inline(always)]
    pub fn minimum<L: Lanes>(&self, l: L, b: usize, half: usize) -> L::F {
        unsafe { l.load_f32(self.minimums[b % Panel::GROUPS][half % 2].as_ptr()) }
    }

    #[inline(always)]
    pub fn put_minimum<L: Lanes>(&mut self, l: L, b: usize, half: usize, v: L::F) {
        unsafe { l.store_f32(self.minimums[b % Panel::GROUPS][half % 2].as_mut_ptr(), v) };
    }

    #[inline(always)]
    pub fn sub_scale<L: Lanes>(&self, l: L, b: usize, half: usize) -> L::V {
        unsafe { l.load(self.sub_scales[b % Panel::GROUPS][half % 2].as_ptr().cast()) }
    }

    #[inline(always)]
    pub fn put_sub_scale<L: Lanes>(&mut self, l: L, b: usize, half: usize, v: L::V) {
        unsafe { l.store(self.sub_scales[b % Panel::GROUPS][half % 2].as_mut_ptr().cast(), v) };
    }
}
