//! Activations as int8: quantized once per row, shared by every matrix that reads the row.

use std::{marker::PhantomData, ops::Range};

use super::pairs::{self, PairedGroup};
use crate::simd::{Isa, Kernel, LANES, Simd};

/// Values with one scale.
pub const GROUP: usize = 32;

/// Below this, 127 / amax would overflow; such a group counts as zero.
const TINY: f32 = f32::from_bits((127 - 100) << 23);

/// 32 activations of a row: see the contract in [the module's text](super). One pointer serves a kernel for
/// everything that it needs of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct ActGroup {
    pub q: [i8; GROUP],
    pub d: f32,
    /// d times the sum of q.
    pub xs: f32,
    /// -8 times the sum of q: where the products with weights that are 8 too large begin.
    pub minus_8: i32,
    pub half_sums: [i16; 2],
}

/// `[rows, k]` activations in groups of 32.
#[derive(Clone, Debug, Default)]
pub struct QuantRows {
    rows: usize,
    k: usize,
    // [rows, k / 32], and maybe more
    groups: Vec<ActGroup>,
    // [pairs of rows, k / 32], and maybe more, if they are wanted
    pairs: Vec<PairedGroup>,
}

impl QuantRows {
    pub fn new() -> Self {
        Self::default()
    }

    /// Rows of `k` values each, quantized.
    pub fn of(isa: Isa, x: &[f32], k: usize) -> Self {
        let mut rows = Self::new();
        rows.resize(x.len() / k, k);
        rows.quantize(isa, x);
        rows
    }

    /// Makes room for `rows` rows of `k` values; allocates only if there never was that much. What the
    /// rows hold is unspecified until they are quantized. Panics if k is no multiple of 32.
    pub fn resize(&mut self, rows: usize, k: usize) {
        assert!(k.is_multiple_of(GROUP), "rows of {k} values are no whole groups of {GROUP}");
        let groups = rows * (k / GROUP);
        (self.rows, self.k) = (rows, k);
        if self.groups.len() < groups {
            self.groups.resize(groups, ActGroup::default());
        }
        let pairs = if pairs::wanted(rows) { rows.div_ceil(2) * (k / GROUP) } else { 0 };
        if self.pairs.len() < pairs {
            self.pairs.resize(pairs, PairedGroup::default());
        }
    }

    /// What a group of one of so many rows takes.
    pub fn bytes_per_group(rows: usize) -> usize {
        size_of::<ActGroup>() + if pairs::wanted(rows) { size_of::<PairedGroup>() / 2 } else { 0 }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn k(&self) -> usize {
        self.k
    }

    #[inline(always)]
    pub fn row(&self, r: usize) -> &[ActGroup] {
        assert!(r < self.rows, "row {r} of {}", self.rows);
        let groups = self.k / GROUP;
        &self.groups[r * groups..][..groups]
    }

    /// The rows `2·pair` and `2·pair + 1` together; of an odd number of rows the last has nothing meant beside it. Panics
    /// unless so many rows are wanted in pairs.
    #[inline(always)]
    pub fn pair(&self, pair: usize) -> &[PairedGroup] {
        assert!(2 * pair < self.rows, "pair {pair} of {} rows", self.rows);
        debug_assert!(pairs::wanted(self.rows));
        let groups = self.k / GROUP;
        &self.pairs[pair * groups..][..groups]
    }

    /// Of all rows, one after the other.
    pub fn all_groups(&self) -> &[ActGroup] {
        &self.groups[..self.rows * (self.k / GROUP)]
    }

    /// Quantizes all rows: `x` is `[rows, k]`.
    pub fn quantize(&mut self, isa: Isa, x: &[f32]) {
        assert_eq!(x.len(), self.rows * self.k, "activations are [{}, {}]", self.rows, self.k);
        let k = self.k;
        for r in 0..self.rows {
            self.quantize_row(isa, r, &x[r * k..][..k]);
        }
    }

    /// Quantizes row `r`.
    pub fn quantize_row(&mut self, isa: Isa, r: usize, x: &[f32]) {
        assert_eq!(x.len(), self.k, "a row has {} values", self.k);
        // SAFETY: exclusively borrowed.
        unsafe { self.writer().quantize(isa, r, 0, x) };
    }

    /// Becomes `width` values each of some rows of another, from the columns given: whole groups.
    pub fn gather(
        &mut self,
        from: &QuantRows,
        width: usize,
        rows: impl ExactSizeIterator<Item = (usize, usize)>,
    ) {
        self.resize(rows.len(), width);
        let groups = width / GROUP;
        for (to, (row, column)) in self.groups.chunks_exact_mut(groups.max(1)).zip(rows) {
            assert!(column.is_multiple_of(GROUP), "groups are not cut");
            to.copy_from_slice(&from.row(row)[column / GROUP..][..groups]);
        }
        let writer = self.writer();
        for r in 0..writer.rows {
            // SAFETY: exclusively borrowed.
            unsafe { writer.pair_up(r, 0..groups) };
        }
    }

    /// For threads that quantize different rows at the same time.
    pub fn writer(&mut self) -> QuantRowsWriter<'_> {
        let QuantRows { rows, k, groups, pairs } = self;
        let pairs = pairs::wanted(*rows).then_some(pairs.as_mut_ptr());
        QuantRowsWriter { rows: *rows, k: *k, groups: groups.as_mut_ptr(), pairs, owned: PhantomData }
    }
}

/// Write access to [`QuantRows`] for several threads.
pub struct QuantRowsWriter<'a> {
    rows: usize,
    k: usize,
    groups: *mut ActGroup,
    pairs: Option<*mut PairedGroup>,
    owned: PhantomData<&'a mut QuantRows>,
}

// SAFETY: whoever writes a row promises that nobody else does.
unsafe impl Send for QuantRowsWriter<'_> {}
// SAFETY: as above.
unsafe impl Sync for QuantRowsWriter<'_> {}

impl QuantRowsWriter<'_> {
    /// Quantizes the numbers from column `from` of row `r`: whole groups.
    ///
    /// # Safety
    /// No two threads write the same groups at the same time.
    pub unsafe fn quantize(&self, isa: Isa, r: usize, from: usize, x: &[f32]) {
        assert!(
            r < self.rows && from + x.len() <= self.k,
            "row {r} of {}, {} values from {from} of {}",
            self.rows,
            x.len(),
            self.k
        );
        assert!(from.is_multiple_of(GROUP) && x.len().is_multiple_of(GROUP), "groups are not cut");
        let groups = from / GROUP..(from + x.len()) / GROUP;
        let first = r * (self.k / GROUP) + groups.start;
        // SAFETY: the buffer holds `rows` rows, and by the caller's promise nobody else writes these groups.
        let to = unsafe { std::slice::from_raw_parts_mut(self.groups.add(first), groups.len()) };
        isa.dispatch(Quantize { x, to });
        // SAFETY: the caller's.
        unsafe { self.pair_up(r, groups) };
    }

    /// Puts groups of row `r` where the pairs have them, if they are wanted.
    ///
    /// # Safety
    /// The groups exist, and nobody else writes them here or there.
    unsafe fn pair_up(&self, r: usize, groups: Range<usize>) {
        let Some(pairs) = self.pairs else { return };
        let in_row = self.k / GROUP;
        for group in groups {
            // SAFETY: the buffers hold all rows and all pairs of them; the other row's part of a pair is not touched.
            unsafe {
                let from = *self.groups.add(r * in_row + group);
                PairedGroup::put(pairs.add(r / 2 * in_row + group), r % 2, &from);
            }
        }
    }
}

struct Quantize<'a> {
    x: &'a [f32],
    to: &'a mut [ActGroup],
}

impl Kernel for Quantize<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (x, _) = self.x.as_chunks::<LANES>();
        let (x, _) = x.as_chunks::<2>();
        for (x, to) in x.iter().zip(self.to) {
            let (x0, x1) = (s.load(&x[0]), s.load(&x[1]));
            // As integers, because NaN > infinity > every number in that order.
            let largest = s.max_i32(s.to_bits(s.abs(x0)), s.to_bits(s.abs(x1)));
            let amax = f32::from_bits(s.reduce_max_i32(largest) as u32);
            if !(TINY..f32::INFINITY).contains(&amax) {
                let d = if amax < TINY { 0.0 } else { f32::NAN };
                *to = ActGroup { d, xs: d, ..ActGroup::default() };
                continue;
            }
            let inverse = s.splat(127.0 / amax);
            let (q0, q1) = (s.to_i32(s.mul(x0, inverse)), s.to_i32(s.mul(x1, inverse)));
            let (halves, _) = to.q.as_chunks_mut::<LANES>();
            s.store_i8(q0, &mut halves[0]);
            s.store_i8(q1, &mut halves[1]);
            let sums = [s.reduce_add_i32(q0), s.reduce_add_i32(q1)];
            to.d = amax / 127.0;
            to.xs = to.d * (sums[0] + sums[1]) as f32;
            to.minus_8 = -8 * (sums[0] + sums[1]);
            to.half_sums = [sums[0] as i16, sums[1] as i16];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_contract_by_hand() {
        // 254 / 127 = 2: ties at the odd multiples of 1.
        let mut x = [0.0f32; 32];
        x[..6].copy_from_slice(&[254.0, -254.0, 1.0, 3.0, -1.0, 4.5]);
        x[16] = 7.0;
        for isa in Isa::available() {
            let rows = QuantRows::of(isa, &x, x.len());
            let group = rows.row(0)[0];
            assert_eq!(group.q[..6], [127, -127, 0, 2, 0, 2], "{isa}");
            assert_eq!((group.q[16], group.d, group.half_sums, group.xs), (4, 2.0, [4, 4], 16.0), "{isa}");
            assert_eq!(group.minus_8, -64, "{isa}");
        }
    }

    #[test]
    fn zero_tiny_and_unbounded_groups() {
        for isa in Isa::available() {
            for (value, expect_nan) in [
                (0.0, false),
                (-0.0, false),
                (1e-45, false),
                (1e-31, false),
                (f32::NAN, true),
                (f32::INFINITY, true),
            ] {
                let mut x = [0.0; 64];
                (x[3], x[40]) = (value, 1.0);
                let rows = QuantRows::of(isa, &x, x.len());
                let &[odd, plain] = rows.row(0) else { panic!("64 values are two groups") };
                assert_eq!((odd.q, odd.half_sums, odd.minus_8), ([0; 32], [0; 2], 0));
                assert_eq!((odd.d.is_nan(), odd.xs.is_nan()), (expect_nan, expect_nan), "{isa} {value}");
                assert!(expect_nan || (odd.d == 0.0 && odd.xs == 0.0));
                assert_eq!((plain.q[8], plain.half_sums), (127, [127, 0]), "neighbours are untouched");
            }
            assert_eq!(QuantRows::of(isa, &[f32::MAX; 32], 32).row(0)[0].q, [127; 32]);
        }
    }

    #[test]
    fn all_tiers_agree() {
        let mut state = 7u32;
        let x: Vec<f32> = (0..32 * 500)
            .map(|i| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state as i32 as f32 / 2f32.powi(31)) * 2f32.powi(i / 32 % 200 - 110)
            })
            .collect();
        let expected = QuantRows::of(Isa::Scalar, &x, x.len());
        for isa in Isa::available() {
            let got = QuantRows::of(isa, &x, x.len());
            let bytes: &[u8] = bytemuck::cast_slice(got.row(0));
            assert_eq!(bytes, bytemuck::cast_slice::<_, u8>(expected.row(0)), "{isa}");
            for (i, x) in x.iter().enumerate() {
                let group = got.row(0)[i / 32];
                // Half a step, and three roundings to f32 of a product of at most 127.
                let d = f64::from(group.d);
                let limit = d * (0.5 + 4.0 * 127.0 * 2f64.powi(-24));
                let q = f64::from(group.q[i % 32]);
                assert!(d == 0.0 || (d * q - f64::from(*x)).abs() <= limit, "{isa} {i}");
            }
        }
    }

    /// Whoever writes a part of a row writes it to its pair.
    #[test]
    fn pairs_hold_what_their_rows_do() {
        const ROWS: usize = 7;
        if !pairs::wanted(ROWS) {
            println!("not run: pairs_hold_what_their_rows_do: this machine has no I8MM");
            return;
        }
        let x: Vec<f32> = (0..ROWS * 96).map(|i| (i as f32 * 0.37).sin()).collect();
        for isa in Isa::available() {
            let mut rows = QuantRows::new();
            rows.resize(ROWS, 96);
            for (r, x) in x.chunks_exact(96).enumerate() {
                // SAFETY: exclusively borrowed.
                unsafe {
                    rows.writer().quantize(isa, r, 32, &x[32..]);
                    rows.writer().quantize(isa, r, 0, &x[..32]);
                }
            }
            let mut gathered = QuantRows::new();
            gathered.gather(&rows, 64, (0..ROWS).rev().map(|r| (r, 32)));
            assert_eq!(gathered.row(1), &rows.row(5)[1..]);
            for rows in [rows, gathered] {
                for r in 0..ROWS {
                    assert_eq!(rows.pair(r / 2).len(), rows.row(r).len());
                    for (pair, row) in rows.pair(r / 2).iter().zip(rows.row(r)) {
                        assert_eq!((pair.d[r % 2], pair.xs[r % 2]), (row.d, row.xs), "{isa} row {r}");
                        let halves = row.half_sums.map(|sum| row.d * f32::from(sum));
                        assert_eq!(pair.half_xs.map(|half| half[r % 2]), halves, "{isa} row {r}");
                        let q: Vec<i8> = pair.q.iter().flat_map(|eight| eight[r % 2]).collect();
                        assert_eq!(q, row.q, "{isa} row {r}");
                    }
                }
            }
        }
    }

    #[test]
    fn shrinking_and_growing_keeps_rows_apart() {
        let mut rows = QuantRows::new();
        for (n, k) in [(3, 64), (1, 32), (2, 96), (5, 64)] {
            rows.resize(n, k);
            let x: Vec<f32> = (0..n * k).map(|i| 1.0 + (i / k) as f32).collect();
            rows.quantize(Isa::detect(), &x);
            for r in 0..n {
                assert!(rows.row(r).iter().all(|group| group.d == (1.0 + r as f32) / 127.0));
            }
        }
    }
}
