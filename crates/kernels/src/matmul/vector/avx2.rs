//! 8 rows at a time; byte products by dot products of bytes, or in pairs of 16 bits, which must not overflow.
#![allow(clippy::needless_range_loop)] // Indices keep several arrays in step.

use std::arch::{asm, x86_64::*};

use super::lanes::Lanes;
use crate::simd::{
    avx2::{Avx2, DotProducts},
    instructions,
};

impl Lanes for Avx2 {
    const ROWS: usize = 8;
    const SIGNED_BYTES: bool = true;
    const COLUMNS: usize = 4;
    type V = __m256i;
    type F = __m256;

    #[inline(always)]
    unsafe fn dot<const N: usize, const C: usize>(
        self,
        w: &[__m256i; N],
        x: [*const i8; C],
        mut acc: [__m256i; C],
        largest: u8,
        signed: bool,
    ) -> [__m256i; C] {
        // SAFETY: the caller's; the machine has what is found.
        unsafe {
            match self.dot_products() {
                DotProducts::InPairs => {}
                DotProducts::AvxVnni => return dot_at_once::<N, C, true>(w, x, acc, signed),
                DotProducts::Avx512Vl => return dot_at_once::<N, C, false>(w, x, acc, signed),
            }
        }
        // How many vectors' pairs of products a signed 16-bit lane can hold.
        let run = (32767 / (2 * 127 * largest as usize)).clamp(1, N);
        // SAFETY: `self` proves that the machine has the instructions; the memory is the caller's promise.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            let mut words = [_mm256_setzero_si256(); C];
            for j in 0..N {
                // The first operand is unsigned: where weights are signed, their sign moves to x.
                let size = if signed { _mm256_abs_epi8(w[j]) } else { w[j] };
                for c in 0..C {
                    let x = _mm256_set1_epi32(x[c].add(4 * j).cast::<i32>().read_unaligned());
                    let x = if signed { _mm256_sign_epi8(x, w[j]) } else { x };
                    let pairs = _mm256_maddubs_epi16(size, x);
                    words[c] = if j % run == 0 { pairs } else { _mm256_add_epi16(words[c], pairs) };
                    if j % run == run - 1 || j == N - 1 {
                        acc[c] = _mm256_add_epi32(acc[c], _mm256_madd_epi16(words[c], ones));
                    }
                }
            }
            acc
        }
    }

    instructions! {
        fn prefetch(p: *const u8) { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
        fn splat(x: u32) -> __m256i { _mm256_set1_epi32(x as i32) }
        fn splat_f32(x: f32) -> __m256 { _mm256_set1_ps(x) }
        fn table(bytes: &[u8; 16]) -> __m256i { _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast())) }
        fn look_up(table: __m256i, at: __m256i) -> __m256i { _mm256_shuffle_epi8(table, at) }
        fn spread_byte(v: __m256i, i: usize) -> __m256i {
            let i = 0x0101_0101 * i as i32;
            let at = _mm_setr_epi32(i, 0x0404_0404 + i, 0x0808_0808 + i, 0x0c0c_0c0c + i);
            _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(at))
        }
        fn and(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
        fn or(a: __m256i, b: __m256i) -> __m256i { _mm256_or_si256(a, b) }
        fn xor(a: __m256i, b: __m256i) -> __m256i { _mm256_xor_si256(a, b) }
        fn min_bytes(a: __m256i, b: __m256i) -> __m256i { _mm256_min_epu8(a, b) }
        fn shl(v: __m256i, n: u32) -> __m256i {
            // A constant count becomes an immediate.
            _mm256_sll_epi32(v, _mm_cvtsi32_si128(n as i32))
        }
        fn shr(v: __m256i, n: u32) -> __m256i { _mm256_srl_epi32(v, _mm_cvtsi32_si128(n as i32)) }
        fn sar(v: __m256i, n: u32) -> __m256i { _mm256_sra_epi32(v, _mm_cvtsi32_si128(n as i32)) }
        fn add(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(a, b) }
        fn sub(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi32(a, b) }
        fn mul(a: __m256i, b: __m256i) -> __m256i { _mm256_mullo_epi32(a, b) }
        fn mul_pairs(a: __m256i, b: __m256i) -> __m256i { _mm256_madd_epi16(a, b) }
        fn half_to_f32(v: __m256i) -> __m256 {
            // Packing works within 128-bit lanes; the permutation brings the two halves together.
            let words = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
            let words = _mm256_permute4x64_epi64::<0b10_00>(_mm256_packus_epi32(words, words));
            _mm256_cvtph_ps(_mm256_castsi256_si128(words))
        }
        fn to_f32(v: __m256i) -> __m256 { _mm256_cvtepi32_ps(v) }
        fn as_f32(v: __m256i) -> __m256 { _mm256_castsi256_ps(v) }
        fn mul_f32(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
        fn neg_f32(a: __m256) -> __m256 { _mm256_xor_ps(a, _mm256_set1_ps(-0.0)) }
        fn fma_f32(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }
    }

    instructions! {
        unsafe fn rows_16_bytes(p: *const u8, stride: usize) -> [__m256i; 4] {
            // Half h of vector i is row 4·h + i, so that a 4x4 transposition within halves does it.
            let mut v = [_mm256_setzero_si256(); 4];
            let p4 = p.add(4 * stride);
            for (i, v) in v.iter_mut().enumerate() {
                let low = _mm_loadu_si128(p.add(i * stride).cast());
                let high = _mm_loadu_si128(p4.add(i * stride).cast());
                *v = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
            }
            let (a, b) = (_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
            let (c, d) = (_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
            [
                _mm256_unpacklo_epi64(a, c),
                _mm256_unpackhi_epi64(a, c),
                _mm256_unpacklo_epi64(b, d),
                _mm256_unpackhi_epi64(b, d),
            ]
        }
        unsafe fn gather(table: *const u32, at: __m256i) -> __m256i { _mm256_i32gather_epi32::<4>(table.cast(), at) }
        unsafe fn load(p: *const u8) -> __m256i { _mm256_loadu_si256(p.cast()) }
        unsafe fn store(p: *mut u8, v: __m256i) { _mm256_storeu_si256(p.cast(), v) }
        unsafe fn load_f32(p: *const f32) -> __m256 { _mm256_loadu_ps(p) }
        unsafe fn store_f32(p: *mut f32, v: __m256) { _mm256_storeu_ps(p, v) }
        unsafe fn load_halves(p: *const u8) -> __m256 { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
        unsafe fn load_bytes(p: *const u8) -> __m256i { _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())) }
    }
}

/// # Safety
/// As [`Lanes::dot`], where the machine has AVX-VNNI, or AVX-512 VNNI on such vectors.
#[inline(always)]
unsafe fn dot_at_once<const N: usize, const C: usize, const AVX_VNNI: bool>(
    w: &[__m256i; N],
    x: [*const i8; C],
    mut acc: [__m256i; C],
    signed: bool,
) -> [__m256i; C] {
    // SAFETY: the caller's.
    unsafe {
        for j in 0..N {
            let size = if signed { _mm256_abs_epi8(w[j]) } else { w[j] };
            for c in 0..C {
                let x = _mm256_set1_epi32(x[c].add(4 * j).cast::<i32>().read_unaligned());
                let x = if signed { _mm256_sign_epi8(x, w[j]) } else { x };
                add_products::<AVX_VNNI>(&mut acc[c], size, x);
            }
        }
        acc
    }
}

/// Adds the products of each lane's four bytes, of which those of `a` have no sign. It is one instruction in two encodings,
/// as text, since the functions around it are compiled for processors that have neither.
///
/// # Safety
/// The machine has the instruction.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn add_products<const AVX_VNNI: bool>(acc: &mut __m256i, a: __m256i, b: __m256i) {
    // SAFETY: the caller's; it touches registers only.
    unsafe {
        if AVX_VNNI {
            asm!("{{vex}} vpdpbusd {0}, {1}, {2}", inout(ymm_reg) *acc, in(ymm_reg) a, in(ymm_reg) b,
                options(pure, nomem, nostack, preserves_flags));
        } else {
            asm!("{{evex}} vpdpbusd {0}, {1}, {2}", inout(ymm_reg) *acc, in(ymm_reg) a, in(ymm_reg) b,
                options(pure, nomem, nostack, preserves_flags));
        }
    }
}
