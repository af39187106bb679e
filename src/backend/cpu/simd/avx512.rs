//! AVX-512 with VNNI: sixteen lanes in one register.

use std::arch::x86_64::*;

use super::{Kernel, LANES, Simd};

/// Made only where [`runs_here`] holds.
#[derive(Clone, Copy)]
pub struct Avx512(());

type V = __m512;

pub fn runs_here() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
        && super::avx2::runs_here()
}

pub fn dispatch<K: Kernel>(kernel: K) -> K::Out {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn enter<K: Kernel>(kernel: K) -> K::Out {
        kernel.run(Avx512(()))
    }
    assert!(runs_here(), "no AVX-512 with VNNI here");
    // SAFETY: just checked.
    unsafe { enter(kernel) }
}

macro_rules! lanewise {
    ($($name:ident($($arg:ident),*) = $intrinsic:ident;)*) => { $(
        #[inline(always)]
        fn $name(self, $($arg: V),*) -> V {
            unsafe { $intrinsic($($arg),*) }
        }
    )* };
}

// SAFETY of all blocks: an `Avx512` exists only where the features do; slices are bounds-checked first.
impl Simd for Avx512 {
    type V = V;

    lanewise! {
        add(a, b) = _mm512_add_ps;
        sub(a, b) = _mm512_sub_ps;
        mul(a, b) = _mm512_mul_ps;
        div(a, b) = _mm512_div_ps;
        fma(a, b, c) = _mm512_fmadd_ps;
        max(a, b) = _mm512_max_ps;
        min(a, b) = _mm512_min_ps;
    }

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> V {
        let x = x[..LANES].as_ptr();
        unsafe { _mm512_loadu_ps(x) }
    }

    #[inline(always)]
    fn store(self, v: V, out: &mut [f32]) {
        let out = out[..LANES].as_mut_ptr();
        unsafe { _mm512_storeu_ps(out, v) }
    }

    #[inline(always)]
    fn load_f16(self, bytes: &[u8]) -> V {
        let x = bytes[..2 * LANES].as_ptr().cast();
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x)) }
    }

    #[inline(always)]
    fn load_bf16(self, bytes: &[u8]) -> V {
        let x = bytes[..2 * LANES].as_ptr().cast();
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(x)))) }
    }

    #[inline(always)]
    fn store_f16(self, v: V, out: &mut [u8]) {
        let out = out[..2 * LANES].as_mut_ptr().cast();
        unsafe { _mm256_storeu_si256(out, _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    fn load_i8(self, bytes: &[u8]) -> V {
        let x = bytes[..LANES].as_ptr().cast();
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x))) }
    }

    #[inline(always)]
    fn round(self, v: V) -> V {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v) }
    }

    #[inline(always)]
    fn reduce_add(self, v: V) -> f32 {
        super::avx2::sum8(unsafe { _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)) })
    }

    #[inline(always)]
    fn pow2(self, n: V) -> V {
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }
}
