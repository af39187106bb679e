//! 16 rows at a time; byte products by VNNI.
#![allow(clippy::needless_range_loop)] // Indices keep several arrays in step.

use std::arch::{asm, x86_64::*};

use super::{
    lanes::Lanes,
    points::{self, Eights, Fours},
};
use crate::simd::{avx512::Avx512, instructions};

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

    #[inline(always)]
    fn fours<const N: usize>(self, table: &Fours<N>, low: __m512i, high: __m512i) -> [__m512i; 4] {
        if !self.permutes_bytes() {
            return points::fours(self, table, low, high);
        }
        // SAFETY: `self` proves that the machine has the instructions.
        unsafe {
            // Within quarters of a register, byte k of lane r becomes byte r of lane k, so that unpacking brings it back.
            let at =
                _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
            let (low, high) = (_mm512_shuffle_epi8(low, at), _mm512_shuffle_epi8(high, at));
            let mut weights = [low; 4];
            for i in 0..4 {
                weights[i] = bytes_at(&table.bytes[i], low, high);
            }
            let [w0, w1, w2, w3] = weights;
            let (a, b) = (_mm512_unpacklo_epi8(w0, w1), _mm512_unpackhi_epi8(w0, w1));
            let (c, d) = (_mm512_unpacklo_epi8(w2, w3), _mm512_unpackhi_epi8(w2, w3));
            [
                _mm512_unpacklo_epi16(a, c),
                _mm512_unpackhi_epi16(a, c),
                _mm512_unpacklo_epi16(b, d),
                _mm512_unpackhi_epi16(b, d),
            ]
        }
    }

    #[inline(always)]
    fn eights<const N: usize>(self, table: &Eights<N>, low: __m512i, high: __m512i) -> [__m512i; 8] {
        if !self.permutes_bytes() {
            return points::eights(self, table, low, high);
        }
        // SAFETY: `self` proves that the machine has the instructions; the table of levels is a register long.
        unsafe {
            let levels = _mm512_load_si512(table.levels.as_ptr().cast());
            let mut out = [low; 8];
            for half in 0..2 {
                let digits = bytes_at(&table.digits[half], low, high);
                for k in 0..4 {
                    // Of either lane of 64 bits, the bits from 0, 2, 4 and 6 of byte k on.
                    let from = 0x2624_2220_0604_0200 + 0x0808_0808_0808_0808 * k as i64;
                    let digits = bits_from(_mm512_set1_epi64(from), digits);
                    out[2 * k + half] = permute_bytes(digits, levels);
                }
            }
            out
        }
    }

    instructions! {
        fn with_signs(weights: __m512i, signs: __m512i, j: usize, offset: u8) -> __m512i {
            let negative = _mm512_test_epi8_mask(signs, _mm512_set1_epi8((1u8 << j) as i8));
            _mm512_mask_sub_epi8(weights, negative, _mm512_set1_epi8((2 * offset) as i8), weights)
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
        unsafe fn gather(table: *const u32, at: __m512i) -> __m512i { _mm512_i32gather_epi32::<4>(at, table.cast()) }
        unsafe fn load(p: *const u8) -> __m512i { _mm512_loadu_si512(p.cast()) }
        unsafe fn store(p: *mut u8, v: __m512i) { _mm512_storeu_si512(p.cast(), v) }
        unsafe fn load_f32(p: *const f32) -> __m512 { _mm512_loadu_ps(p) }
        unsafe fn store_f32(p: *mut f32, v: __m512) { _mm512_storeu_ps(p, v) }
        unsafe fn load_halves(p: *const u8) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
        unsafe fn load_bytes(p: *const u8) -> __m512i { _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())) }
    }
}

/// Bytes of a table of pages of 256: `low` says which of its page, `high` of which page.
///
/// # Safety
/// The machine has AVX-512 VBMI; the table begins at a multiple of 64.
#[inline(always)]
unsafe fn bytes_at<const N: usize>(table: &[u8; N], low: __m512i, high: __m512i) -> __m512i {
    const { assert!(N.is_multiple_of(256) && (N / 256).is_power_of_two() && N <= 2048) };
    // SAFETY: all parts are within the table; the rest is the caller's.
    unsafe {
        let upper_half = _mm512_movepi8_mask(low);
        let mut found = [low; 8];
        for page in 0..N / 256 {
            let part = |i: usize| _mm512_load_si512(table.as_ptr().add(256 * page + 64 * i).cast());
            let of_lower = permute_two(low, part(0), part(1));
            found[page] = _mm512_mask_blend_epi8(upper_half, of_lower, permute_two(low, part(2), part(3)));
        }
        let (mut pages, mut bit) = (N / 256, 1);
        while pages > 1 {
            let odd = _mm512_test_epi8_mask(high, _mm512_set1_epi8(bit));
            for page in 0..pages / 2 {
                found[page] = _mm512_mask_blend_epi8(odd, found[2 * page], found[2 * page + 1]);
            }
            (pages, bit) = (pages / 2, bit * 2);
        }
        found[0]
    }
}

/// Instructions of AVX-512 VBMI as text, since the functions around them are compiled for processors that have none.
macro_rules! by_text {
    ($($(#[$about:meta])* fn $name:ident($($arg:ident),*) = $instruction:literal;)+) => {$(
        $(#[$about])*
        ///
        /// # Safety
        /// The machine has the instruction.
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        unsafe fn $name($($arg: __m512i),*) -> __m512i {
            let out;
            // SAFETY: the caller's; it touches registers only.
            unsafe {
                asm!(concat!($instruction, " {0}, {1}, {2}"), out(zmm_reg) out, $(in(zmm_reg) $arg),*,
                    options(pure, nomem, nostack, preserves_flags));
            }
            out
        }
    )+};
}
by_text! {
    /// Bytes of `table` by the low six bits of each of `at`.
    fn permute_bytes(at, table) = "vpermb";
    /// Eight bits from each of eight places, of each 64 bits.
    fn bits_from(places, of) = "vpmultishiftqb";
}

/// Bytes of two registers by the low seven bits of each of `at`.
///
/// # Safety
/// The machine has AVX-512 VBMI.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn permute_two(mut at: __m512i, first: __m512i, second: __m512i) -> __m512i {
    // SAFETY: the caller's; it touches registers only.
    unsafe {
        asm!("vpermi2b {0}, {1}, {2}", inout(zmm_reg) at, in(zmm_reg) first, in(zmm_reg) second,
            options(pure, nomem, nostack, preserves_flags));
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        quant::{iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs},
        simd::{Tier, Work},
    };

    struct Compare<'a, T>(&'a T, [[u8; 64]; 2]);

    fn bytes(v: __m512i) -> [u8; 64] {
        // SAFETY: any bytes are a register.
        unsafe { std::mem::transmute(v) }
    }

    impl<const N: usize> Work<Avx512> for Compare<'_, Eights<N>> {
        type Out = [[[u8; 64]; 8]; 2];
        #[inline(always)]
        fn run(self, l: Avx512) -> Self::Out {
            // SAFETY: 64 bytes are readable.
            let [low, high] = self.1.map(|bytes| unsafe { l.load(bytes.as_ptr()) });
            [l.eights(self.0, low, high), points::eights(l, self.0, low, high)].map(|found| found.map(bytes))
        }
    }

    impl<const N: usize> Work<Avx512> for Compare<'_, Fours<N>> {
        type Out = [[[u8; 64]; 4]; 2];
        #[inline(always)]
        fn run(self, l: Avx512) -> Self::Out {
            // SAFETY: as above.
            let [low, high] = self.1.map(|bytes| unsafe { l.load(bytes.as_ptr()) });
            [l.fours(self.0, low, high), points::fours(l, self.0, low, high)].map(|found| found.map(bytes))
        }
    }

    struct Signs([[u8; 64]; 2], usize);

    impl Work<Avx512> for Signs {
        type Out = [[u8; 64]; 2];
        #[inline(always)]
        fn run(self, l: Avx512) -> Self::Out {
            // SAFETY: as above.
            let [weights, signs] = self.0.map(|bytes| unsafe { l.load(bytes.as_ptr()) });
            [l.with_signs(weights, signs, self.1, 64), points::with_signs(l, weights, signs, self.1, 64)]
                .map(bytes)
        }
    }

    /// What only this tier does, and only on newer processors, finds what words of the tables do.
    #[test]
    fn points_by_permutations_are_those_by_words() {
        if !Avx512::is_available() {
            println!("not run: points_by_permutations_are_those_by_words: this machine has no AVX-512");
            return;
        }
        // SAFETY: found above.
        let l = unsafe { Avx512::assume() }.with_byte_permutations();
        assert!(l.permutes_bytes() || !is_x86_feature_detected!("avx512vbmi"));
        for seed in 0..64u32 {
            let mix = |i: usize, n: u32| ((i as u32 * 64 + seed).wrapping_mul(n) >> 16) as u8;
            let low = std::array::from_fn(|i| mix(i, 0x9e37_79b9));
            let high = |pages: u8| std::array::from_fn(|i| mix(i, 0x85eb_ca6b) % pages);
            macro_rules! compare {
                ($table:expr, $pages:literal) => {
                    let [by_permutations, by_words] = l.call(Compare($table, [low, high($pages)]));
                    assert!(by_permutations == by_words, "{} seed {seed}", stringify!($table));
                };
            }
            compare!(&iq1_s::POINTS, 8);
            compare!(&iq2_xxs::POINTS, 1);
            compare!(&iq2_xs::POINTS, 2);
            compare!(&iq2_s::POINTS, 4);
            compare!(&iq3_xxs::POINTS, 1);
            compare!(&iq3_s::POINTS, 2);
            let weights = std::array::from_fn(|i| 64 + mix(i, 0xc2b2_ae35) % 44);
            let [at_once, plain] = l.call(Signs([weights, low], seed as usize % 8));
            assert!(at_once == plain, "signs, seed {seed}");
        }
    }
}
