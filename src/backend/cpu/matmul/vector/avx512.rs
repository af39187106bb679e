//! 16 rows at a time; byte products by VNNI.
#![allow(clippy::needless_range_loop)] // Indices keep several arrays in step.

use std::arch::x86_64::*;

use super::lanes::Lanes;
use crate::backend::cpu::simd::{avx512::Avx512, instructions};

impl Lanes for Avx512 {
    const ROWS: usize = 16;
    const SIGNED_BYTES: bool = false;
    const COLUMNS: usize = 8;
    type V = __m512i;
    type F = __m512;

    #[inline(always)]
    unsafe fn dot<const N: usize, const C: usize>(
        self,
        w: &[__m512i; N],
        x: [*const i8; C],
        mut acc: [__m512i; C],
        _: u8,
        _: bool,
    ) -> [__m512i; C] {
        // SAFETY: `self` proves that the machine has the instructions; the memory is the caller's promise.
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

    instructions! {
        fn prefetch(p: *const u8) { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
        fn splat(x: u32) -> __m512i { _mm512_set1_epi32(x as i32) }
        fn splat_f32(x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn table(bytes: &[u8; 16]) -> __m512i { _mm512_broadcast_i32x4(_mm_loadu_si128(bytes.as_ptr().cast())) }
        fn look_up(table: __m512i, at: __m512i) -> __m512i { _mm512_shuffle_epi8(table, at) }
        fn spread_byte(v: __m512i, i: usize) -> __m512i {
            let i = 0x0101_0101 * i as i32;
            let at = _mm_setr_epi32(i, 0x0404_0404 + i, 0x0808_0808 + i, 0x0c0c_0c0c + i);
            _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(at))
        }
        fn and(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        fn or(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
        fn xor(a: __m512i, b: __m512i) -> __m512i { _mm512_xor_si512(a, b) }
        fn min_bytes(a: __m512i, b: __m512i) -> __m512i { _mm512_min_epu8(a, b) }
        fn shl(v: __m512i, n: u32) -> __m512i {
            // A constant count becomes an immediate.
            _mm512_sll_epi32(v, _mm_cvtsi32_si128(n as i32))
        }
        fn shr(v: __m512i, n: u32) -> __m512i { _mm512_srl_epi32(v, _mm_cvtsi32_si128(n as i32)) }
        fn sar(v: __m512i, n: u32) -> __m512i { _mm512_sra_epi32(v, _mm_cvtsi32_si128(n as i32)) }
        fn add(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        fn sub(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi32(a, b) }
        fn mul(a: __m512i, b: __m512i) -> __m512i { _mm512_mullo_epi32(a, b) }
        fn mul_pairs(a: __m512i, b: __m512i) -> __m512i { _mm512_madd_epi16(a, b) }
        fn half_to_f32(v: __m512i) -> __m512 { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)) }
        fn to_f32(v: __m512i) -> __m512 { _mm512_cvtepi32_ps(v) }
        fn as_f32(v: __m512i) -> __m512 { _mm512_castsi512_ps(v) }
        fn mul_f32(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn neg_f32(a: __m512) -> __m512 { _mm512_xor_ps(a, _mm512_set1_ps(-0.0)) }
        fn fma_f32(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
    }

    instructions! {
        unsafe fn rows_16_bytes(p: *const u8, stride: usize) -> [__m512i; 4] {
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
        unsafe fn load(p: *const u8) -> __m512i { _mm512_loadu_si512(p.cast()) }
        unsafe fn store(p: *mut u8, v: __m512i) { _mm512_storeu_si512(p.cast(), v) }
        unsafe fn load_f32(p: *const f32) -> __m512 { _mm512_loadu_ps(p) }
        unsafe fn store_f32(p: *mut f32, v: __m512) { _mm512_storeu_ps(p, v) }
        unsafe fn load_halves(p: *const u8) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
        unsafe fn load_bytes(p: *const u8) -> __m512i { _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())) }
    }
}
