//! AVX2, FMA and F16C: a vector is two halves of 8 lanes. Newer processors have dot products of bytes besides.

use std::arch::x86_64::*;

use super::{
    LANES, Simd,
    tier::{instructions, tier},
};
use crate::quant::F16;

tier! {
    /// Proof that the machine has AVX2, FMA and F16C.
    Avx2(DotProducts): is_x86_feature_detected "avx2", "fma", "f16c"
}

/// How four products of bytes are added to a lane. It is no type of its own: the compiler would make all kernels twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DotProducts {
    /// By two instructions that every processor with AVX2 has.
    #[default]
    InPairs,
    /// By one of AVX-VNNI.
    AvxVnni,
    /// By the same of AVX-512 VNNI on vectors of 256 bits.
    Avx512Vl,
}

impl DotProducts {
    /// In one instruction, if the machine has one.
    fn best() -> Self {
        if is_x86_feature_detected!("avxvnni") {
            DotProducts::AvxVnni
        } else if is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl") {
            DotProducts::Avx512Vl
        } else {
            DotProducts::InPairs
        }
    }
}

/// Whether the processor says that it is of Intel.
pub fn is_of_intel() -> bool {
    let said = __cpuid(0);
    [said.ebx, said.edx, said.ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
}

impl Avx2 {
    /// Whether the machine has [`Avx2`] and dot products of bytes.
    pub fn has_dot_products() -> bool {
        Self::is_available() && DotProducts::best() != DotProducts::InPairs
    }

    /// With the machine's dot products of bytes, if it has them.
    pub fn with_dot_products(self) -> Self {
        Avx2(DotProducts::best())
    }

    /// Which of them it uses; the machine has them.
    #[inline(always)]
    pub fn dot_products(self) -> DotProducts {
        self.0
    }
}

#[derive(Clone, Copy)]
pub struct F(__m256, __m256);

#[derive(Clone, Copy)]
pub struct I(__m256i, __m256i);

/// Methods that apply an instruction to both halves.
macro_rules! halves {
    ($(fn $name:ident($($v:ident: $V:ty),*) -> $Out:ident = $instruction:ident;)+) => {
        instructions! {
            $(fn $name($($v: $V),*) -> $Out { $Out($instruction($($v.0),*), $instruction($($v.1),*)) })+
        }
    };
}

impl Simd for Avx2 {
    type F = F;
    type I = I;
    const REGISTERS: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        // SAFETY: `self` proves that the machine has the instruction.
        let v = unsafe { _mm256_set1_ps(x) };
        F(v, v)
    }
    #[inline(always)]
    fn transpose(self, v: [F; LANES]) -> [F; LANES] {
        // Quadrant by quadrant.
        let [mut a, mut b, mut c, mut d] = [[v[0].0; 8]; 4];
        for i in 0..8 {
            (a[i], b[i], c[i], d[i]) = (v[i].0, v[i].1, v[i + 8].0, v[i + 8].1);
        }
        // SAFETY: `self` proves that the machine has AVX2.
        let (a, b, c, d) = unsafe { (transpose_8(a), transpose_8(b), transpose_8(c), transpose_8(d)) };
        let mut out = v;
        for i in 0..8 {
            (out[i], out[i + 8]) = (F(a[i], c[i]), F(b[i], d[i]));
        }
        out
    }
    #[inline(always)]
    fn abs(self, a: F) -> F {
        let sign = self.splat(-0.0);
        // SAFETY: `self` proves that the machine has the instruction.
        unsafe { F(_mm256_andnot_ps(sign.0, a.0), _mm256_andnot_ps(sign.1, a.1)) }
    }
    #[inline(always)]
    fn round_ties_even(self, a: F) -> F {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: as above.
        unsafe { F(_mm256_round_ps::<NEAREST>(a.0), _mm256_round_ps::<NEAREST>(a.1)) }
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> I {
        // SAFETY: as above.
        let v = unsafe { _mm256_set1_epi32(x) };
        I(v, v)
    }

    halves! {
        fn add(a: F, b: F) -> F = _mm256_add_ps;
        fn sub(a: F, b: F) -> F = _mm256_sub_ps;
        fn mul(a: F, b: F) -> F = _mm256_mul_ps;
        fn div(a: F, b: F) -> F = _mm256_div_ps;
        fn sqrt(a: F) -> F = _mm256_sqrt_ps;
        fn fma(a: F, b: F, c: F) -> F = _mm256_fmadd_ps;
        fn max(a: F, b: F) -> F = _mm256_max_ps;
        fn min(a: F, b: F) -> F = _mm256_min_ps;
        fn if_more(a: F, b: F, x: F, y: F) -> F = choose_8;
        fn to_i32(a: F) -> I = _mm256_cvtps_epi32;
        fn from_i32(a: I) -> F = _mm256_cvtepi32_ps;
        fn to_bits(a: F) -> I = _mm256_castps_si256;
        fn from_bits(a: I) -> F = _mm256_castsi256_ps;
        fn add_i32(a: I, b: I) -> I = _mm256_add_epi32;
        fn sub_i32(a: I, b: I) -> I = _mm256_sub_epi32;
        fn max_i32(a: I, b: I) -> I = _mm256_max_epi32;
    }

    instructions! {
        fn load_bf16(x: &[[u8; 2]; LANES]) -> F {
            let p = x.as_ptr().cast::<__m128i>();
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.add(1)));
            let (low, high) = (_mm256_slli_epi32::<16>(low), _mm256_slli_epi32::<16>(high));
            F(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high))
        }
        fn prefetch(address: *const u8) { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
        fn load(x: &[f32; LANES]) -> F { F(_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))) }
        fn store(v: F, to: &mut [f32; LANES]) {
            _mm256_storeu_ps(to.as_mut_ptr(), v.0);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), v.1);
        }
        fn splat_f16(x: F16) -> F {
            let half = _mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes(x.0)));
            F(half, half)
        }
        fn load_f16(x: &[F16; LANES]) -> F {
            let p = x.as_ptr().cast::<__m128i>();
            F(_mm256_cvtph_ps(_mm_loadu_si128(p)), _mm256_cvtph_ps(_mm_loadu_si128(p.add(1))))
        }
        fn store_f16(v: F, to: &mut [F16; LANES]) {
            let p = to.as_mut_ptr().cast::<__m128i>();
            _mm_storeu_si128(p, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.0));
            _mm_storeu_si128(p.add(1), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.1));
        }
        fn load_i8(x: &[i8; LANES]) -> F { of_bytes(_mm_loadu_si128(x.as_ptr().cast())) }
        fn load_nibbles(x: &[u8; LANES], high: usize, levels: &[i8; 16]) -> F {
            let both = _mm_srl_epi16(_mm_loadu_si128(x.as_ptr().cast()), _mm_cvtsi32_si128(4 * high as i32));
            let nibbles = _mm_and_si128(both, _mm_set1_epi8(15));
            of_bytes(_mm_shuffle_epi8(_mm_loadu_si128(levels.as_ptr().cast()), nibbles))
        }
        fn add_where(v: F, lanes: u16, x: f32) -> F {
            let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let x = _mm256_set1_ps(x);
            let in_half = |v: __m256, lanes: u16| {
                let set = _mm256_and_si256(_mm256_set1_epi32(i32::from(lanes)), bits);
                let set = _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bits));
                _mm256_blendv_ps(v, _mm256_add_ps(v, x), set)
            };
            F(in_half(v.0, lanes & 255), in_half(v.1, lanes >> 8))
        }
        fn shl_i32(a: I, n: u32) -> I {
            // A constant count becomes an immediate.
            let n = _mm_cvtsi32_si128(n as i32);
            I(_mm256_sll_epi32(a.0, n), _mm256_sll_epi32(a.1, n))
        }
        fn shr_i32(a: I, n: u32) -> I {
            let n = _mm_cvtsi32_si128(n as i32);
            I(_mm256_sra_epi32(a.0, n), _mm256_sra_epi32(a.1, n))
        }
        fn store_i8(v: I, to: &mut [i8; LANES]) {
            // Packing works within 128-bit lanes; the permutation puts the four quarters back in order.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(v.0, v.1));
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(to.as_mut_ptr().cast(), bytes);
        }
        fn reduce_add(a: F) -> f32 { sum_of_8(_mm256_add_ps(a.0, a.1)) }
        fn reduce_max(a: F) -> f32 { max_of_8(_mm256_max_ps(a.0, a.1)) }
        fn reduce_add_i32(a: I) -> i32 { sum_of_8_i32(_mm256_add_epi32(a.0, a.1)) }
        fn reduce_max_i32(a: I) -> i32 { max_of_8_i32(_mm256_max_epi32(a.0, a.1)) }
    }
}

/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn choose_8(a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
    // SAFETY: the caller's.
    unsafe { _mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_GT_OQ>(a, b)) }
}

/// Sixteen signed bytes.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn of_bytes(bytes: __m128i) -> F {
    // SAFETY: the caller's.
    unsafe {
        let (low, high) = (_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes)));
        F(_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high))
    }
}

/// Lane j of result i is lane i of row j.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn transpose_8(mut v: [__m256; 8]) -> [__m256; 8] {
    // First within halves of a register, four rows at a time; then whole halves change places.
    for g in [0, 4] {
        // SAFETY: the caller's.
        (v[g], v[g + 1], v[g + 2], v[g + 3]) = unsafe {
            let (a, b) = (_mm256_unpacklo_ps(v[g], v[g + 1]), _mm256_unpackhi_ps(v[g], v[g + 1]));
            let (c, d) = (_mm256_unpacklo_ps(v[g + 2], v[g + 3]), _mm256_unpackhi_ps(v[g + 2], v[g + 3]));
            let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
            let (c, d) = (_mm256_castps_pd(c), _mm256_castps_pd(d));
            (
                _mm256_castpd_ps(_mm256_unpacklo_pd(a, c)),
                _mm256_castpd_ps(_mm256_unpackhi_pd(a, c)),
                _mm256_castpd_ps(_mm256_unpacklo_pd(b, d)),
                _mm256_castpd_ps(_mm256_unpackhi_pd(b, d)),
            )
        };
    }
    for i in 0..4 {
        // SAFETY: the caller's.
        (v[i], v[i + 4]) = unsafe {
            (_mm256_permute2f128_ps::<0x20>(v[i], v[i + 4]), _mm256_permute2f128_ps::<0x31>(v[i], v[i + 4]))
        };
    }
    v
}

/// Joins lane i with lane i+4, then i+2, then i+1.
macro_rules! tree_of_8 {
    ($name:ident, f32, $join:ident) => {
        /// # Safety
        /// The machine has AVX2.
        #[inline(always)]
        pub(super) unsafe fn $name(v: __m256) -> f32 {
            // SAFETY: the caller's.
            unsafe {
                let v = $join(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
                let v = $join(v, _mm_movehl_ps(v, v));
                _mm_cvtss_f32($join(v, _mm_movehdup_ps(v)))
            }
        }
    };
    ($name:ident, i32, $join:ident) => {
        /// # Safety
        /// The machine has AVX2.
        #[inline(always)]
        pub(super) unsafe fn $name(v: __m256i) -> i32 {
            // SAFETY: the caller's.
            unsafe {
                let v = $join(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
                let v = $join(v, _mm_shuffle_epi32::<0b01_00_11_10>(v));
                _mm_cvtsi128_si32($join(v, _mm_shuffle_epi32::<0b10_11_00_01>(v)))
            }
        }
    };
}

tree_of_8!(sum_of_8, f32, _mm_add_ps);
tree_of_8!(max_of_8, f32, _mm_max_ps);
tree_of_8!(sum_of_8_i32, i32, _mm_add_epi32);
tree_of_8!(max_of_8_i32, i32, _mm_max_epi32);
