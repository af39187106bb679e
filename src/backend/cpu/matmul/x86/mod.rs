//! AVX2 and AVX-512 kernels for quantized weights: eight weight rows at a time, a run of 32 weights of each row
//! in a register, so that the eight sums come out side by side and need one convert and one fma.

mod unpack;

use std::{arch::x86_64::*, ops::Range};

pub use unpack::Unpack;

use super::{
    OutStripe,
    acts::{ActBlock, QuantRows},
    codec::{Codec, Minima, Scales},
};
use crate::backend::cpu::simd::{avx2 as avx2_set, avx512 as avx512_set};

const ROWS: usize = 8;

/// Four products of signed bytes into each of eight i32 lanes: 32 weights and 32 activations.
trait Dot {
    /// # Safety
    /// The instruction set is there.
    unsafe fn dot(w: __m256i, x: __m256i) -> __m256i;
}

struct Maddubs;
struct Vnni;

impl Dot for Maddubs {
    #[inline(always)]
    unsafe fn dot(w: __m256i, x: __m256i) -> __m256i {
        // |w| ≤ 128 and |x| ≤ 127: a pair stays below 2^15.
        unsafe {
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
            _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
        }
    }
}

impl Dot for Vnni {
    #[inline(always)]
    unsafe fn dot(w: __m256i, x: __m256i) -> __m256i {
        unsafe { _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_abs_epi8(w), _mm256_sign_epi8(x, w)) }
    }
}

pub fn avx2<C: Codec + Unpack>(
    blocks: &[C],
    per_row: usize,
    rows: Range<usize>,
    acts: &QuantRows,
    m: usize,
    out: OutStripe,
) {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn enter<C: Codec + Unpack>(task: &Task<C>) {
        // SAFETY: this function has the features.
        unsafe { task.run::<Maddubs>() }
    }
    assert!(avx2_set::runs_here());
    // SAFETY: just checked.
    unsafe { enter(&Task { blocks, per_row, rows, acts, m, out }) }
}

pub fn avx512<C: Codec + Unpack>(
    blocks: &[C],
    per_row: usize,
    rows: Range<usize>,
    acts: &QuantRows,
    m: usize,
    out: OutStripe,
) {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn enter<C: Codec + Unpack>(task: &Task<C>) {
        // SAFETY: this function has the features.
        unsafe { task.run::<Vnni>() }
    }
    assert!(avx512_set::runs_here());
    // SAFETY: just checked.
    unsafe { enter(&Task { blocks, per_row, rows, acts, m, out }) }
}

struct Task<'a, C> {
    blocks: &'a [C],
    per_row: usize,
    rows: Range<usize>,
    acts: &'a QuantRows,
    m: usize,
    out: OutStripe,
}

impl<C: Codec + Unpack> Task<'_, C> {
    #[inline(always)]
    unsafe fn run<D: Dot>(&self) {
        for first in self.rows.clone().step_by(ROWS) {
            let count = (self.rows.end - first).min(ROWS);
            // Rows beyond the end are computed as copies of the last one and dropped.
            let rows: [&[C]; ROWS] = std::array::from_fn(|r| {
                let row = first + r.min(count - 1);
                &self.blocks[row * self.per_row..][..self.per_row]
            });
            let mut column = 0;
            while column < self.m {
                // SAFETY: the caller has the features.
                unsafe {
                    column += match self.m - column {
                        1 => self.tile::<D, 1>(&rows, first, count, column),
                        2 => self.tile::<D, 2>(&rows, first, count, column),
                        3 => self.tile::<D, 3>(&rows, first, count, column),
                        4 => self.tile::<D, 4>(&rows, first, count, column),
                        5 => self.tile::<D, 5>(&rows, first, count, column),
                        6 => self.tile::<D, 6>(&rows, first, count, column),
                        7 => self.tile::<D, 7>(&rows, first, count, column),
                        _ => self.tile::<D, 8>(&rows, first, count, column),
                    }
                }
            }
        }
    }

    /// Eight weight rows times `N` activation rows; returns `N`.
    #[inline(always)]
    unsafe fn tile<D: Dot, const N: usize>(
        &self,
        rows: &[&[C]; ROWS],
        first: usize,
        count: usize,
        column: usize,
    ) -> usize {
        let runs = C::TYPE.block_len() / 32;
        // SAFETY: a barrier lies between the writing of the activations and this.
        let acts: [&[ActBlock]; N] = std::array::from_fn(|c| unsafe { self.acts.row(column + c) });
        let acts = acts.map(|row| &row[..self.per_row * runs]);
        // SAFETY: the caller has the features; all loads are of whole fields.
        unsafe {
            let mut acc = [_mm256_setzero_ps(); N];
            for b in 0..self.per_row {
                for sub in 0..runs {
                    let mut scales = ScalesOf8::ZERO;
                    for r in 0..ROWS {
                        scales.set(r, rows[r][b].scales(sub));
                    }
                    // Loops, not `array::from_fn`: that is compiled without the features of this function.
                    let mut w = [_mm256_setzero_si256(); ROWS];
                    for r in 0..ROWS {
                        w[r] = rows[r][b].unpack(sub);
                    }
                    let a = _mm256_loadu_ps(scales.a.as_ptr());
                    for c in 0..N {
                        let x = &acts[c][b * runs + sub];
                        let q = _mm256_loadu_si256(x.q.as_ptr().cast());
                        let mut sums = w;
                        for r in 0..ROWS {
                            sums[r] = D::dot(w[r], q);
                            if C::HALF_SCALES {
                                sums[r] = _mm256_mullo_epi32(sums[r], scales.half_vector(r));
                            }
                        }
                        let sum = _mm256_cvtepi32_ps(add_lanes(sums));
                        acc[c] = _mm256_fmadd_ps(_mm256_mul_ps(a, _mm256_set1_ps(x.d)), sum, acc[c]);
                        let xs: &[f32] = match C::MINIMA {
                            Minima::None => &[],
                            Minima::Per32 => &[x.xs],
                            Minima::Per16 => &x.half_xs,
                        };
                        for (minima, &xs) in scales.minima.iter().zip(xs) {
                            acc[c] = _mm256_fmadd_ps(_mm256_loadu_ps(minima.as_ptr()), _mm256_set1_ps(xs), acc[c]);
                        }
                    }
                }
            }
            for (c, acc) in acc.into_iter().enumerate() {
                let mut sums = [0.0; ROWS];
                _mm256_storeu_ps(sums.as_mut_ptr(), acc);
                for (r, &sum) in sums[..count].iter().enumerate() {
                    self.out.put(column + c, first + r, sum);
                }
            }
        }
        N
    }
}

/// Scales of one run of eight rows, side by side.
#[derive(Clone, Copy)]
struct ScalesOf8 {
    a: [f32; ROWS],
    minima: [[f32; ROWS]; 2],
    halves: [[i32; 2]; ROWS],
}

impl ScalesOf8 {
    const ZERO: Self = ScalesOf8 { a: [0.0; ROWS], minima: [[0.0; ROWS]; 2], halves: [[0; 2]; ROWS] };

    #[inline(always)]
    fn set(&mut self, row: usize, scales: Scales) {
        self.a[row] = scales.a;
        self.halves[row] = scales.halves;
        for half in 0..2 {
            self.minima[half][row] = scales.minima[half];
        }
    }

    /// The scale of the first half in four lanes, that of the second in the other four.
    #[inline(always)]
    unsafe fn half_vector(&self, row: usize) -> __m256i {
        let [low, high] = self.halves[row];
        unsafe { _mm256_set_m128i(_mm_set1_epi32(high), _mm_set1_epi32(low)) }
    }
}

/// Lane r of the result is the sum of the lanes of vector r.
#[inline(always)]
unsafe fn add_lanes(v: [__m256i; ROWS]) -> __m256i {
    unsafe {
        let low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
        let high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
        _mm256_add_epi32(
            _mm256_permute2x128_si256::<0x20>(low, high),
            _mm256_permute2x128_si256::<0x31>(low, high),
        )
    }
}
