//! AVX-512 (F, BW, VL, DQ, VNNI): a vector is one register.

use std::arch::x86_64::*;

use super::{
    LANES, Simd, avx2,
    tier::{instructions, tier},
};
use crate::quant::F16;

tier! {
    /// Proof that the machine has AVX-512 F, BW, VL, DQ and VNNI, and what [`avx2::Avx2`] stands for.
    Avx512(bool): is_x86_feature_detected "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"
}

impl Avx512 {
    /// With AVX-512 VBMI, if the machine has it.
    pub fn with_byte_permutations(self) -> Self {
        Avx512(is_x86_feature_detected!("avx512vbmi"))
    }

    /// Whether it uses AVX-512 VBMI; then the machine has it.
    #[inline(always)]
    pub fn permutes_bytes(self) -> bool {
        self.0
    }
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    const REGISTERS: usize = 32;

    #[inline(always)]
    fn transpose(self, mut v: [__m512; LANES]) -> [__m512; LANES] {
        // First within quarters of a register, four rows at a time: quarter q of v[4g + c] then holds rows
        // 4g.. of column 4q + c. Then whole quarters change places.
        for g in (0..LANES).step_by(4) {
            // SAFETY: `self` proves that the machine has the instructions.
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
            // SAFETY: as above.
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

    instructions! {
        fn prefetch(address: *const u8) { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
        fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn load(x: &[f32; LANES]) -> __m512 { _mm512_loadu_ps(x.as_ptr()) }
        fn store(v: __m512, to: &mut [f32; LANES]) { _mm512_storeu_ps(to.as_mut_ptr(), v) }
        fn splat_f16(x: F16) -> __m512 { _mm512_cvtph_ps(_mm256_set1_epi16(i16::from_le_bytes(x.0))) }
        fn load_f16(x: &[F16; LANES]) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())) }
        fn store_f16(v: __m512, to: &mut [F16; LANES]) {
            let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), halves);
        }
        fn load_bf16(x: &[[u8; 2]; LANES]) -> __m512 {
            let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
        }
        fn load_i8(x: &[i8; LANES]) -> __m512 { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast()))) }
        fn load_nibbles(x: &[u8; LANES], high: usize, levels: &[i8; 16]) -> __m512 {
            let levels = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(levels.as_ptr().cast())));
            let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(x.as_ptr().cast()));
            // Of a lane's number the lowest four bits count.
            _mm512_permutexvar_ps(_mm512_srl_epi32(bytes, _mm_cvtsi32_si128(4 * high as i32)), levels)
        }
        fn add_where(v: __m512, lanes: u16, x: f32) -> __m512 { _mm512_mask_add_ps(v, lanes, v, _mm512_set1_ps(x)) }
        fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn div(a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
        fn sqrt(a: __m512) -> __m512 { _mm512_sqrt_ps(a) }
        fn abs(a: __m512) -> __m512 { _mm512_abs_ps(a) }
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        fn min(a: __m512, b: __m512) -> __m512 { _mm512_min_ps(a, b) }
        fn round_ties_even(a: __m512) -> __m512 { _mm512_roundscale_ps::<_MM_FROUND_TO_NEAREST_INT>(a) }
        fn if_more(a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), y, x)
        }
        fn to_i32(a: __m512) -> __m512i { _mm512_cvtps_epi32(a) }
        fn from_i32(a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }
        fn to_bits(a: __m512) -> __m512i { _mm512_castps_si512(a) }
        fn from_bits(a: __m512i) -> __m512 { _mm512_castsi512_ps(a) }
        fn splat_i32(x: i32) -> __m512i { _mm512_set1_epi32(x) }
        fn add_i32(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        fn sub_i32(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi32(a, b) }
        fn max_i32(a: __m512i, b: __m512i) -> __m512i { _mm512_max_epi32(a, b) }
        fn shl_i32(a: __m512i, n: u32) -> __m512i {
            // A constant count becomes an immediate.
            _mm512_sll_epi32(a, _mm_cvtsi32_si128(n as i32))
        }
        fn shr_i32(a: __m512i, n: u32) -> __m512i { _mm512_sra_epi32(a, _mm_cvtsi32_si128(n as i32)) }
        fn store_i8(v: __m512i, to: &mut [i8; LANES]) { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtsepi32_epi8(v)) }
        fn reduce_add(a: __m512) -> f32 {
            let (low, high) = (_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            avx2::sum_of_8(_mm256_add_ps(low, high))
        }
        fn reduce_max(a: __m512) -> f32 {
            let (low, high) = (_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            avx2::max_of_8(_mm256_max_ps(low, high))
        }
        fn reduce_add_i32(a: __m512i) -> i32 { _mm512_reduce_add_epi32(a) }
        fn reduce_max_i32(a: __m512i) -> i32 { _mm512_reduce_max_epi32(a) }
    }
}
