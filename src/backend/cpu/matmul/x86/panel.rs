//! Unpacked weights of one group of rows.

use super::lanes::Lanes;

/// Up to 8 blocks of 32 columns, for 8 or 16 rows (one per lane); vectors lie one behind the other.
#[repr(C, align(64))]
pub struct Panel {
    // [block][4 columns each][row][4], unsigned with the format's offset, or signed: see Lanes::SIGNED_BYTES
    ints: [u8; Panel::GROUPS * 32 * 16],
    // [block][row]
    scales: [f32; Panel::GROUPS * 16],
    // [block][half][row]
    minimums: [f32; Panel::GROUPS * 2 * 16],
    // [block][half][row]
    sub_scales: [i32; Panel::GROUPS * 2 * 16],
}

impl Panel {
    pub const GROUPS: usize = 8;

    pub fn new() -> Self {
        Panel {
            ints: [0; Panel::GROUPS * 32 * 16],
            scales: [0.0; Panel::GROUPS * 16],
            minimums: [0.0; Panel::GROUPS * 2 * 16],
            sub_scales: [0; Panel::GROUPS * 2 * 16],
        }
    }

    /// Where the weights of columns `4·j..4·j+4` of block `b` stand.
    #[inline(always)]
    pub fn ints<L: Lanes>(&self, b: usize, j: usize) -> *const u8 {
        self.ints[(b * 8 + j) * 4 * L::ROWS..].as_ptr()
    }

    #[inline(always)]
    pub fn put_ints<L: Lanes>(&mut self, l: L, b: usize, j: usize, v: L::V) {
        // SAFETY: 8 vectors per block lie within the array.
        unsafe { l.store(self.ints[(b * 8 + j) * 4 * L::ROWS..][..4 * L::ROWS].as_mut_ptr(), v) };
    }

    #[inline(always)]
    pub fn scale<L: Lanes>(&self, l: L, b: usize) -> L::F {
        // SAFETY: the slice is one vector.
        unsafe { l.load_f32(self.scales[b * L::ROWS..][..L::ROWS].as_ptr()) }
    }

    #[inline(always)]
    pub fn put_scale<L: Lanes>(&mut self, l: L, b: usize, v: L::F) {
        // SAFETY: the slice is one vector.
        unsafe { l.store_f32(self.scales[b * L::ROWS..][..L::ROWS].as_mut_ptr(), v) };
    }

    #[inline(always)]
    pub fn minimum<L: Lanes>(&self, l: L, b: usize, half: usize) -> L::F {
        // SAFETY: the slice is one vector.
        unsafe { l.load_f32(self.minimums[(b * 2 + half) * L::ROWS..][..L::ROWS].as_ptr()) }
    }

    #[inline(always)]
    pub fn put_minimum<L: Lanes>(&mut self, l: L, b: usize, half: usize, v: L::F) {
        // SAFETY: the slice is one vector.
        unsafe { l.store_f32(self.minimums[(b * 2 + half) * L::ROWS..][..L::ROWS].as_mut_ptr(), v) };
    }

    #[inline(always)]
    pub fn sub_scale<L: Lanes>(&self, l: L, b: usize, half: usize) -> L::V {
        // SAFETY: the slice is one vector.
        unsafe { l.load(self.sub_scales[(b * 2 + half) * L::ROWS..][..L::ROWS].as_ptr().cast()) }
    }

    #[inline(always)]
    pub fn put_sub_scale<L: Lanes>(&mut self, l: L, b: usize, half: usize, v: L::V) {
        // SAFETY: the slice is one vector.
        unsafe { l.store(self.sub_scales[(b * 2 + half) * L::ROWS..][..L::ROWS].as_mut_ptr().cast(), v) };
    }
}
