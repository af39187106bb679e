//! AVX-512 (F, BW, VL, DQ, VNNI): a vector is one register.

use std::arch::x86_64::*;

use super::{LANES, Simd, avx2, tier::tier};
use crate::quant::F16;

tier! {
    /// Proof that the machine has AVX-512 F, BW, VL, DQ and VNNI, and what [`avx2::Avx2`] stands for.
    Avx512: is_x86_feature_detected "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    const REGISTERS: usize = 32;

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // SAFETY: it never faults; every x86-64 machine has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: here and below, `self` proves that the machine has the instruction, and a reference to
        // an array of 16 that all of it may be read or written.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> __m512 {
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: __m512, to: &mut [f32; LANES]) {
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) }
    }
    #[inline(always)]
    fn splat_f16(self, x: F16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_set1_epi16(i16::from_le_bytes(x.0))) }
    }
    #[inline(always)]
    fn load_f16(self, x: &[F16; LANES]) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn store_f16(self, v: __m512, to: &mut [F16; LANES]) {
        unsafe {
            let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), halves);
        }
    }
    #[inline(always)]
    fn load_bf16(self, x: &[[u8; 2]; LANES]) -> __m512 {
        unsafe {
            let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
        }
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast()))) }
    }
    #[inline(always)]
    fn transpose(self, mut v: [__m512; LANES]) -> [__m512; LANES] {
        // First within quarters of a register, four rows at a time: quarter q of v[4g + c] then holds rows
        // 4g.. of column 4q + c. Then whole quarters change places.
        for g in (0..LANES).step_by(4) {
            (v[g], v[g + 1], v[g + 2], v[g + 3]) = unsafe {
                let (a, b) = (_mm512_unpacklo_ps(v[g], v[g + 1]), _mm512_unpackhi_ps(v[g], v[g + 1]));
                let (c, d) = (_mm512_unpacklo_ps(v[g + 2], v[g + 3]), _mm512_unpackhi_ps(v[g + 2], v[g + 3]));
                let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
                let (c, d) = (_mm512_castps_pd(c), _mm512_castps_pd(d));
                (
                    _mm512_castpd_ps(_mm512_unpacklo_pd(a, c)),
                    _mm512_castpd_ps(_mm512_unpackhi_pd(a, c)),
                    _mm512_castpd_ps(_mm512_unpacklo_pd(b, d)),
                    _mm512_castpd_ps(_mm512_unpackhi_pd(b, d)),
                )
            };
        }
        for c in 0..4 {
            (v[c], v[c + 4], v[c + 8], v[c + 12]) = unsafe {
                let a = _mm512_shuffle_f32x4::<0b10_00_10_00>(v[c], v[c + 4]);
                let b = _mm512_shuffle_f32x4::<0b11_01_11_01>(v[c], v[c + 4]);
                let d = _mm512_shuffle_f32x4::<0b10_00_10_00>(v[c + 8], v[c + 12]);
                let e = _mm512_shuffle_f32x4::<0b11_01_11_01>(v[c + 8], v[c + 12]);
                (
                    _mm512_shuffle_f32x4::<0b10_00_10_00>(a, d),
                    _mm512_shuffle_f32x4::<0b10_00_10_00>(b, e),
                    _mm512_shuffle_f32x4::<0b11_01_11_01>(a, d),
                    _mm512_shuffle_f32x4::<0b11_01_11_01>(b, e),
                )
            };
        }
        v
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        unsafe { _mm512_sqrt_ps(a) }
    }
    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn round_ties_even(self, a: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<_MM_FROUND_TO_NEAREST_INT>(a) }
    }
    #[inline(always)]
    fn to_i32(self, a: __m512) -> __m512i {
        unsafe { _mm512_cvtps_epi32(a) }
    }
    #[inline(always)]
    fn from_i32(self, a: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    #[inline(always)]
    fn to_bits(self, a: __m512) -> __m512i {
        unsafe { _mm512_castps_si512(a) }
    }
    #[inline(always)]
    fn from_bits(self, a: __m512i) -> __m512 {
        unsafe { _mm512_castsi512_ps(a) }
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> __m512i {
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    fn add_i32(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    fn sub_i32(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_sub_epi32(a, b) }
    }
    #[inline(always)]
    fn max_i32(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_max_epi32(a, b) }
    }
    #[inline(always)]
    fn shl_i32(self, a: __m512i, n: u32) -> __m512i {
        // A constant count becomes an immediate.
        unsafe { _mm512_sll_epi32(a, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    fn shr_i32(self, a: __m512i, n: u32) -> __m512i {
        unsafe { _mm512_sra_epi32(a, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    fn store_i8(self, v: __m512i, to: &mut [i8; LANES]) {
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtsepi32_epi8(v)) }
    }
    #[inline(always)]
    fn reduce_add(self, a: __m512) -> f32 {
        unsafe {
            let (low, high) = (_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            avx2::sum_of_8(_mm256_add_ps(low, high))
        }
    }
    #[inline(always)]
    fn reduce_max(self, a: __m512) -> f32 {
        unsafe {
            let (low, high) = (_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            avx2::max_of_8(_mm256_max_ps(low, high))
        }
    }
    #[inline(always)]
    fn reduce_add_i32(self, a: __m512i) -> i32 {
        unsafe { _mm512_reduce_add_epi32(a) }
    }
    #[inline(always)]
    fn reduce_max_i32(self, a: __m512i) -> i32 {
        unsafe { _mm512_reduce_max_epi32(a) }
    }
}
