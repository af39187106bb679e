//! 16 rows at a time; byte products by VNNI.
#![allow(clippy::needless_range_loop)] // Indices keep several arrays in step.

use std::arch::x86_64::*;

use super::lanes::Lanes;
use crate::backend::cpu::simd::avx512::Avx512;

impl Lanes for Avx512 {
    const ROWS: usize = 16;
    const SIGNED_BYTES: bool = false;
    const COLUMNS: usize = 8;
    type V = __m512i;
    type F = __m512;

    #[inline(always)]
    unsafe fn rows_16_bytes(self, p: *const u8, stride: usize) -> [__m512i; 4] {
        // SAFETY: the caller's; here and below, `self` proves that the machine has the instructions.
        unsafe {
            // Quarter q of vector i is row 4·q + i, so that a 4x4 transposition within quarters does it.
            let mut v = [_mm512_setzero_si512(); 4];
            let (p4, p8) = (p.add(4 * stride), p.add(8 * stride));
            let p12 = p4.add(8 * stride);
            for (i, v) in v.iter_mut().enumerate() {
                let at = |p: *const u8| _mm_loadu_si128(p.add(i * stride).cast());
                let low = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(at(p)), at(p4));
                let high = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(at(p8)), at(p12));
                *v = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
            }
            let (a, b) = (_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
            let (c, d) = (_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
            [
                _mm512_unpacklo_epi64(a, c),
                _mm512_unpackhi_epi64(a, c),
                _mm512_unpacklo_epi64(b, d),
                _mm512_unpackhi_epi64(b, d),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u8, v: __m512i) {
        unsafe { _mm512_storeu_si512(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn load_f32(self, p: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store_f32(self, p: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
    #[inline(always)]
    fn splat(self, x: u32) -> __m512i {
        unsafe { _mm512_set1_epi32(x as i32) }
    }
    #[inline(always)]
    fn splat_f32(self, x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn table(self, bytes: &[u8; 16]) -> __m512i {
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }
    #[inline(always)]
    fn look_up(self, table: __m512i, at: __m512i) -> __m512i {
        unsafe { _mm512_shuffle_epi8(table, at) }
    }
    #[inline(always)]
    fn spread_byte(self, v: __m512i, i: usize) -> __m512i {
        unsafe {
            let i = 0x0101_0101 * i as i32;
            let at = _mm_setr_epi32(i, 0x0404_0404 + i, 0x0808_0808 + i, 0x0c0c_0c0c + i);
            _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(at))
        }
    }
    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_xor_si512(a, b) }
    }
    #[inline(always)]
    fn min_bytes(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_min_epu8(a, b) }
    }
    #[inline(always)]
    fn shl(self, v: __m512i, n: u32) -> __m512i {
        // A constant count becomes an immediate.
        unsafe { _mm512_sll_epi32(v, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    fn shr(self, v: __m512i, n: u32) -> __m512i {
        unsafe { _mm512_srl_epi32(v, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    fn sar(self, v: __m512i, n: u32) -> __m512i {
        unsafe { _mm512_sra_epi32(v, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_sub_epi32(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_mullo_epi32(a, b) }
    }
    #[inline(always)]
    fn mul_pairs(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_madd_epi16(a, b) }
    }
    #[inline(always)]
    fn half_to_f32(self, v: __m512i) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)) }
    }
    #[inline(always)]
    fn to_f32(self, v: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(v) }
    }
    #[inline(always)]
    fn as_f32(self, v: __m512i) -> __m512 {
        unsafe { _mm512_castsi512_ps(v) }
    }
    #[inline(always)]
    fn mul_f32(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn neg_f32(self, a: __m512) -> __m512 {
        unsafe { _mm512_xor_ps(a, _mm512_set1_ps(-0.0)) }
    }
    #[inline(always)]
    fn fma_f32(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn load_halves(self, p: *const u8) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bytes(self, p: *const u8) -> __m512i {
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn dot<const N: usize, const C: usize>(
        self,
        w: &[__m512i; N],
        x: [*const i8; C],
        mut acc: [__m512i; C],
        _: u8,
        _: bool,
    ) -> [__m512i; C] {
        unsafe {
            for j in 0..N {
                for c in 0..C {
                    let x = _mm512_set1_epi32(x[c].add(4 * j).cast::<i32>().read_unaligned());
                    acc[c] = _mm512_dpbusd_epi32(acc[c], w[j], x);
                }
            }
            acc
        }
    }
}
