//! Products of matrices of floats with each other, and what a loss makes of a row of logits: the work of training, where
//! both factors change all the time. Sums go in the order that is fastest, so bits are not promised.

use rayon::prelude::*;

use crate::simd::{Isa, Kernel, LANES, Simd};

/// Rows of a result for one thread at a time, so that packing the other factor again hardly counts.
const FEWEST_ROWS: usize = 64;

/// A matrix that lies somewhere, row by row or column by column.
#[derive(Clone, Copy)]
pub struct Dense<'a> {
    numbers: &'a [f32],
    rows: usize,
    cols: usize,
    between_rows: usize,
    between_cols: usize,
}

impl<'a> Dense<'a> {
    /// `[rows, cols]`, row by row.
    ///
    /// # Panics
    /// If there are not so many numbers.
    pub fn new(numbers: &'a [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(numbers.len(), rows * cols, "a matrix [{rows}, {cols}]");
        Dense { numbers, rows, cols, between_rows: cols, between_cols: 1 }
    }

    /// `cols` columns from `first` on.
    ///
    /// # Panics
    /// If it has not so many, or is transposed.
    pub fn columns(self, first: usize, cols: usize) -> Self {
        assert!(self.between_cols == 1 && first + cols <= self.cols, "{first} + {cols} of {}", self.cols);
        let begin = if self.rows == 0 { 0 } else { first };
        Dense { numbers: &self.numbers[begin..], cols, ..self }
    }

    /// `rows` rows from `first` on.
    ///
    /// # Panics
    /// If it has not so many, or is transposed.
    pub fn some_rows(self, first: usize, rows: usize) -> Self {
        assert!(self.between_cols == 1 && first + rows <= self.rows, "{first} + {rows} of {}", self.rows);
        let begin = (first * self.between_rows).min(self.numbers.len());
        Dense { numbers: &self.numbers[begin..], rows, ..self }
    }

    /// Rows for columns.
    pub fn transposed(self) -> Self {
        Dense {
            rows: self.cols,
            cols: self.rows,
            between_rows: self.between_cols,
            between_cols: self.between_rows,
            ..self
        }
    }

    /// How many there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many there are.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// # Panics
    /// If there is none, or it does not lie in one piece.
    pub fn row(&self, row: usize) -> &'a [f32] {
        assert!(self.between_cols == 1 && row < self.rows, "row {row} of {}", self.rows);
        &self.numbers[row * self.between_rows..][..self.cols]
    }

    fn check(&self) {
        let last =
            self.rows.saturating_sub(1) * self.between_rows + self.cols.saturating_sub(1) * self.between_cols;
        assert!(self.rows == 0 || self.cols == 0 || last < self.numbers.len());
    }
}

/// Where a product goes: some columns of rows that lie `between_rows` numbers apart.
pub struct DenseMut<'a> {
    numbers: &'a mut [f32],
    rows: usize,
    cols: usize,
    between_rows: usize,
}

impl<'a> DenseMut<'a> {
    /// `[rows, cols]`, row by row.
    ///
    /// # Panics
    /// If there are not so many numbers.
    pub fn new(numbers: &'a mut [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(numbers.len(), rows * cols, "a matrix [{rows}, {cols}]");
        DenseMut { numbers, rows, cols, between_rows: cols }
    }

    /// `cols` columns from `first` on.
    ///
    /// # Panics
    /// If it has not so many.
    pub fn columns(self, first: usize, cols: usize) -> Self {
        assert!(first + cols <= self.cols, "{first} + {cols} of {}", self.cols);
        let begin = if self.rows == 0 { 0 } else { first };
        DenseMut { numbers: &mut self.numbers[begin..], cols, ..self }
    }

    /// `self = a · b · times`, or with `add` `self += a · b · times`, on the threads of the current pool.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn product(self, a: Dense, b: Dense, times: f32, add: bool) {
        let DenseMut { numbers, rows, cols, between_rows } = self;
        assert_eq!((a.rows, a.cols, b.cols), (rows, b.rows, cols), "shapes of a product");
        a.check();
        b.check();
        if rows == 0 || cols == 0 {
            return;
        }
        let threads = rayon::current_num_threads();
        let share = rows.div_ceil(threads).max(FEWEST_ROWS.min(rows));
        numbers.par_chunks_mut(share * between_rows).take(rows.div_ceil(share)).enumerate().for_each(
            |(part, out)| {
                let first = part * share;
                let rows = share.min(rows - first);
                assert!((rows - 1) * between_rows + cols <= out.len());
                let beta = if add { 1.0 } else { 0.0 };
                // SAFETY: `check` and the assertion above hold every element that is read or written inside its slice, and
                // `out` is borrowed exclusively.
                unsafe {
                    matrixmultiply::sgemm(
                        rows,
                        a.cols,
                        cols,
                        times,
                        a.numbers.as_ptr().add(first * a.between_rows),
                        a.between_rows as isize,
                        a.between_cols as isize,
                        b.numbers.as_ptr(),
                        b.between_rows as isize,
                        b.between_cols as isize,
                        beta,
                        out.as_mut_ptr(),
                        between_rows as isize,
                        1,
                    );
                }
            },
        );
    }
}

/// Makes probabilities of logits.
pub struct Softmax<'a> {
    pub logits: &'a mut [f32],
}

impl Softmax<'_> {
    pub fn on(self, isa: Isa) {
        isa.dispatch(self);
    }
}

impl Kernel for Softmax<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let sum = exponentials(s, self.logits).sum;
        self.logits.iter_mut().for_each(|x| *x /= sum);
    }
}

/// The cross-entropy of what logits say to the probabilities that are wanted. What is left in the logits' place is the
/// loss's slope by each of them.
pub struct CrossEntropy<'a> {
    pub logits: &'a mut [f32],
    pub wanted: &'a [f32],
}

impl CrossEntropy<'_> {
    /// The loss.
    pub fn on(self, isa: Isa) -> f32 {
        isa.dispatch(self)
    }
}

impl Kernel for CrossEntropy<'_> {
    type Out = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let CrossEntropy { logits, wanted } = self;
        let mut expected = s.splat(0.0);
        let (chunks, rest) = logits.as_chunks::<LANES>();
        let (wanted_chunks, wanted_rest) = wanted.as_chunks::<LANES>();
        for (x, p) in chunks.iter().zip(wanted_chunks) {
            expected = s.fma(s.load(x), s.load(p), expected);
        }
        expected = s.fma(s.load_partial(rest), s.load_partial(wanted_rest), expected);
        let expected = s.reduce_add(expected);
        let Exponentials { most, sum } = exponentials(s, logits);
        for (x, p) in logits.iter_mut().zip(wanted) {
            *x = *x / sum - p;
        }
        sum.ln() + most - expected
    }
}

/// `e^(x - most)` stands in the place of each x.
struct Exponentials {
    most: f32,
    sum: f32,
}

#[inline(always)]
fn exponentials<S: Simd>(s: S, x: &mut [f32]) -> Exponentials {
    let mut most = s.splat(f32::NEG_INFINITY);
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        most = s.max(s.load(chunk), most);
    }
    let most = rest.iter().copied().fold(s.reduce_max(most), f32::max);
    let mut sum = s.splat(0.0);
    let (chunks, rest) = x.as_chunks_mut::<LANES>();
    for chunk in chunks {
        let e = s.exp(s.sub(s.load(chunk), s.splat(most)));
        sum = s.add(e, sum);
        s.store(e, chunk);
    }
    let mut total = s.reduce_add(sum);
    let last = s.exp(s.sub(s.load_partial(rest), s.splat(most)));
    s.store_partial(last, rest);
    rest.iter().for_each(|e| total += e);
    Exponentials { most, sum: total }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// By the definition, in f64.
    fn plain(
        a: &dyn Fn(usize, usize) -> f32,
        b: &dyn Fn(usize, usize) -> f32,
        k: usize,
        at: [usize; 2],
    ) -> f32 {
        (0..k).map(|i| f64::from(a(at[0], i)) * f64::from(b(i, at[1]))).sum::<f64>() as f32
    }

    #[test]
    fn products_are_sums_of_products_in_every_layout() {
        let (m, k, n) = (150, 37, 70);
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let close = |out: &[f32], width: usize, column: usize, wanted: &dyn Fn(usize, usize) -> f32| {
            for row in 0..m {
                for col in 0..n {
                    let (found, wanted) = (out[row * width + column + col], wanted(row, col));
                    assert!((found - wanted).abs() < 1e-4, "{row}, {col}: {found} for {wanted}");
                }
            }
        };
        let rows = |row: usize, col: usize| plain(&|r, i| a[r * k + i], &|i, c| b[i * n + c], k, [row, col]);
        let mut out = vec![0.5; m * n];
        DenseMut::new(&mut out, m, n).product(Dense::new(&a, m, k), Dense::new(&b, k, n), 1.0, false);
        close(&out, n, 0, &rows);
        DenseMut::new(&mut out, m, n).product(Dense::new(&a, m, k), Dense::new(&b, k, n), -2.0, true);
        close(&out, n, 0, &|row, col| -rows(row, col));
        let turned =
            |row: usize, col: usize| plain(&|r, i| a[i * m + r], &|i, c| b[c * k + i], k, [row, col]);
        let (a_turned, b_turned) = (Dense::new(&a, k, m).transposed(), Dense::new(&b, n, k).transposed());
        DenseMut::new(&mut out, m, n).product(a_turned, b_turned, 1.0, false);
        close(&out, n, 0, &turned);
        let mut wide = vec![7.0; m * (n + 5)];
        DenseMut::new(&mut wide, m, n + 5).columns(3, n).product(a_turned, b_turned, 1.0, false);
        close(&wide, n + 5, 3, &turned);
        assert!(wide.chunks(n + 5).all(|row| row[..3] == [7.0; 3] && row[n + 3..] == [7.0; 2]));
    }

    #[test]
    fn the_slope_of_the_loss_is_what_small_steps_change() {
        let (logits, mut wanted) = (numbers(53, 3), numbers(53, 4));
        Softmax { logits: &mut wanted }.on(Isa::detect());
        assert!((wanted.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        let loss = |logits: &[f32]| {
            let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
            wanted.iter().zip(logits).map(|(&p, &x)| f64::from(p) * (sum.ln() - f64::from(x))).sum::<f64>()
        };
        for isa in Isa::available() {
            let mut slope = logits.clone();
            let found = CrossEntropy { logits: &mut slope, wanted: &wanted }.on(isa);
            assert!((f64::from(found) - loss(&logits)).abs() < 1e-5, "{isa}");
            for i in 0..logits.len() {
                let at = |step: f32| {
                    let mut moved = logits.clone();
                    moved[i] += step;
                    loss(&moved)
                };
                let wanted = (at(0.01) - at(-0.01)) / 0.02;
                assert!((f64::from(slope[i]) - wanted).abs() < 1e-5, "{isa} {i}");
            }
        }
    }
}
