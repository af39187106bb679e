//! Unpacked weights of one group of rows.

use super::lanes::Lanes;

/// Up to 8 blocks of 32 columns, for 8 or 16 rows (one per lane, the lanes of fewer rows first).
///
/// Indices count modulo the extent: in range or not, they stay inside, and no bounds check stands in the way.
#[repr(C, align(64))]
pub struct Panel {
    // [block][4 columns each][row][4], unsigned with the format's offset, or signed: see Lanes::SIGNED_BYTES
    ints: [[[u8; 64]; 8]; Panel::GROUPS],
    pub scales: Scales,
}

/// What goes with the integers of up to 8 blocks.
#[repr(C, align(64))]
pub struct Scales {
    // [block][row]
    scales: [[f32; 16]; Panel::GROUPS],
    // [block][row], of the second sixteen where they have their own
    second_scales: [[f32; 16]; Panel::GROUPS],
    // [block][half][row]
    minimums: [[[f32; 16]; 2]; Panel::GROUPS],
    // [block][half][row]
    sub_scales: [[[i32; 16]; 2]; Panel::GROUPS],
}

impl Panel {
    pub const GROUPS: usize = 8;

    pub fn new() -> Self {
        Panel { ints: [[[0; 64]; 8]; Panel::GROUPS], scales: Scales::new() }
    }

    /// The weights of columns `4·j..4·j+4` of block `b`.
    #[inline(always)]
    pub fn int_vector<L: Lanes>(&self, l: L, b: usize, j: usize) -> L::V {
        // SAFETY: a vector has at most 64 bytes.
        unsafe { l.load(self.ints[b % Panel::GROUPS][j % 8].as_ptr()) }
    }

    #[inline(always)]
    pub fn put_ints<L: Lanes>(&mut self, l: L, b: usize, j: usize, v: L::V) {
        // SAFETY: a vector has at most 64 bytes.
        unsafe { l.store(self.ints[b % Panel::GROUPS][j % 8].as_mut_ptr(), v) };
    }

    /// The weights of one row in block `b`, unsigned with the format's offset.
    pub fn put_row_ints(&mut self, b: usize, row: usize, ints: [u8; 32]) {
        for (four, of_panel) in ints.as_chunks::<4>().0.iter().zip(&mut self.ints[b % Panel::GROUPS]) {
            of_panel[4 * (row % 16)..][..4].copy_from_slice(four);
        }
    }
}

impl Scales {
    /// The scale of one row in block `b`, and the multiples of it that its halves have.
    pub fn put_of_row(&mut self, b: usize, row: usize, scale: f32, sub: [i32; 2]) {
        self.scales[b % Panel::GROUPS][row % 16] = scale;
        for (half, sub) in sub.into_iter().enumerate() {
            self.sub_scales[b % Panel::GROUPS][half][row % 16] = sub;
        }
    }

    pub const fn new() -> Self {
        Scales {
            scales: [[0.0; 16]; Panel::GROUPS],
            second_scales: [[0.0; 16]; Panel::GROUPS],
            minimums: [[[0.0; 16]; 2]; Panel::GROUPS],
            sub_scales: [[[0; 16]; 2]; Panel::GROUPS],
        }
    }

    #[inline(always)]
    pub fn scale<L: Lanes>(&self, l: L, b: usize) -> L::F {
        // SAFETY: a vector has at most 64 bytes.
        unsafe { l.load_f32(self.scales[b % Panel::GROUPS].as_ptr()) }
    }

    #[inline(always)]
    pub fn put_scale<L: Lanes>(&mut self, l: L, b: usize, v: L::F) {
        // SAFETY: a vector has at most 64 bytes.
        unsafe { l.store_f32(self.scales[b % Panel::GROUPS].as_mut_ptr(), v) };
    }

    #[inline(always)]
    pub fn half_scales<L: Lanes>(&self, l: L, b: usize) -> [L::F; 2] {
        // SAFETY: a vector has at most 64 bytes.
        [self.scale(l, b), unsafe { l.load_f32(self.second_scales[b % Panel::GROUPS].as_ptr()) }]
    }

    #[inline(always)]
    pub fn put_half_scales<L: Lanes>(&mut self, l: L, b: usize, [first, second]: [L::F; 2]) {
        self.put_scale(l, b, first);
        // SAFETY: a vector has at most 64 bytes.
        unsafe { l.store_f32(self.second_scales[b % Panel::GROUPS].as_mut_ptr(), second) };
    }

    #[inline(always)]
    pub fn minimum<L: Lanes>(&self, l: L, b: usize, half: usize) -> L::F {
        // SAFETY: a vector has at most 64 bytes.
        unsafe { l.load_f32(self.minimums[b % Panel::GROUPS][half % 2].as_ptr()) }
    }

    #[inline(always)]
    pub fn put_minimum<L: Lanes>(&mut self, l: L, b: usize, half: usize, v: L::F) {
        // SAFETY: a vector has at most 64 bytes.
        unsafe { l.store_f32(self.minimums[b % Panel::GROUPS][half % 2].as_mut_ptr(), v) };
    }

    #[inline(always)]
    pub fn sub_scale<L: Lanes>(&self, l: L, b: usize, half: usize) -> L::V {
        // SAFETY: a vector has at most 64 bytes.
        unsafe { l.load(self.sub_scales[b % Panel::GROUPS][half % 2].as_ptr().cast()) }
    }

    /// The one multiple of both halves.
    #[inline(always)]
    pub fn put_sub_scale<L: Lanes>(&mut self, l: L, b: usize, v: L::V) {
        // SAFETY: a vector has at most 64 bytes.
        unsafe { l.store(self.sub_scales[b % Panel::GROUPS][0].as_mut_ptr().cast(), v) };
    }

    #[inline(always)]
    pub fn put_sub_scales<L: Lanes>(&mut self, l: L, b: usize, [s0, s1]: [L::V; 2]) {
        // SAFETY: a vector has at most 64 bytes.
        unsafe {
            l.store(self.sub_scales[b % Panel::GROUPS][0].as_mut_ptr().cast(), s0);
            l.store(self.sub_scales[b % Panel::GROUPS][1].as_mut_ptr().cast(), s1);
        }
    }
}
