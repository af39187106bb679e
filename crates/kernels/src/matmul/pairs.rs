//! Activations of two rows together, as products of small matrices of bytes take them.

use super::acts::ActGroup;
use crate::simd::Isa;

/// From how many columns on such products are worth a panel in their order.
pub const LEAST: usize = 6;

/// Whether so many rows are kept in pairs, besides one by one.
pub fn wanted(rows: usize) -> bool {
    rows >= LEAST && Isa::I8mm.is_available()
}

/// The same group of two rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct PairedGroup {
    pub d: [f32; 2],
    pub xs: [f32; 2],
    /// For either half, d times its sum.
    pub half_xs: [[f32; 2]; 2],
    // [8 values each][row][8]
    pub q: [[[i8; 8]; 2]; 4],
}

impl PairedGroup {
    /// Writes the part of one of the two rows.
    ///
    /// # Safety
    /// `to` may be written, and nobody else touches this part of it.
    pub unsafe fn put(to: *mut PairedGroup, row: usize, group: &ActGroup) {
        assert!(row < 2, "row {row} of a pair");
        // SAFETY: the caller's; there is no reference to the whole, whose other part another thread may write.
        unsafe {
            (&raw mut (*to).d[row]).write(group.d);
            (&raw mut (*to).xs[row]).write(group.xs);
            for (half, &sum) in group.half_sums.iter().enumerate() {
                (&raw mut (*to).half_xs[half][row]).write(group.d * f32::from(sum));
            }
            for (i, &eight) in group.q.as_chunks::<8>().0.iter().enumerate() {
                (&raw mut (*to).q[i][row]).write(eight);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_has_both_rows_and_writing_one_leaves_the_other() {
        let group = |first: i8| ActGroup {
            q: std::array::from_fn(|i| first + i as i8),
            d: f32::from(first),
            xs: 7.0 * f32::from(first),
            minus_8: 0,
            half_sums: [3, -5],
        };
        let mut pair = PairedGroup::default();
        // SAFETY: exclusively borrowed.
        unsafe {
            PairedGroup::put(&raw mut pair, 1, &group(50));
            PairedGroup::put(&raw mut pair, 0, &group(-40));
        }
        assert_eq!((pair.d, pair.xs), ([-40.0, 50.0], [-280.0, 350.0]));
        assert_eq!(pair.half_xs, [[-120.0, 150.0], [200.0, -250.0]]);
        assert_eq!(pair.q[0], [[-40, -39, -38, -37, -36, -35, -34, -33], [50, 51, 52, 53, 54, 55, 56, 57]]);
        assert_eq!(pair.q[3], [[-16, -15, -14, -13, -12, -11, -10, -9], [74, 75, 76, 77, 78, 79, 80, 81]]);
    }
}
