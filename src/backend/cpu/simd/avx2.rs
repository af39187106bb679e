//! AVX2 with FMA and F16C: sixteen lanes in two registers.

use std::arch::x86_64::*;

use super::{Kernel, LANES, Simd};

/// Made only where [`runs_here`] holds.
#[derive(Clone, Copy)]
pub struct Avx2(());

#[derive(Clone, Copy)]
pub struct V(__m256, __m256);

pub fn runs_here() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

pub fn dispatch<K: Kernel>(kernel: K) -> K::Out {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn enter<K: Kernel>(kernel: K) -> K::Out {
        kernel.run(Avx2(()))
    }
    assert!(runs_here(), "no AVX2 here");
    // SAFETY: just checked.
    unsafe { enter(kernel) }
}

macro_rules! lanewise {
    ($($name:ident($($arg:ident),*) = $intrinsic:ident;)*) => { $(
        #[inline(always)]
        fn $name(self, $($arg: V),*) -> V {
            unsafe { V($intrinsic($($arg.0),*), $intrinsic($($arg.1),*)) }
        }
    )* };
}

// SAFETY of all blocks: an `Avx2` exists only where the features do; slices are bounds-checked first.
impl Simd for Avx2 {
    type V = V;

    lanewise! {
        add(a, b) = _mm256_add_ps;
        sub(a, b) = _mm256_sub_ps;
        mul(a, b) = _mm256_mul_ps;
        div(a, b) = _mm256_div_ps;
        fma(a, b, c) = _mm256_fmadd_ps;
        max(a, b) = _mm256_max_ps;
        min(a, b) = _mm256_min_ps;
    }

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        unsafe { V(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> V {
        let x = x[..LANES].as_ptr();
        unsafe { V(_mm256_loadu_ps(x), _mm256_loadu_ps(x.add(8))) }
    }

    #[inline(always)]
    fn store(self, v: V, out: &mut [f32]) {
        let out = out[..LANES].as_mut_ptr();
        unsafe {
            _mm256_storeu_ps(out, v.0);
            _mm256_storeu_ps(out.add(8), v.1);
        }
    }

    #[inline(always)]
    fn load_f16(self, bytes: &[u8]) -> V {
        let x = bytes[..2 * LANES].as_ptr().cast();
        unsafe { V(_mm256_cvtph_ps(_mm_loadu_si128(x)), _mm256_cvtph_ps(_mm_loadu_si128(x.add(1)))) }
    }

    #[inline(always)]
    fn load_bf16(self, bytes: &[u8]) -> V {
        let x = bytes[..2 * LANES].as_ptr().cast();
        let half = |x| unsafe {
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(x))))
        };
        V(half(x), half(x.wrapping_add(1)))
    }

    #[inline(always)]
    fn store_f16(self, v: V, out: &mut [u8]) {
        let out = out[..2 * LANES].as_mut_ptr().cast();
        unsafe {
            _mm_storeu_si128(out, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.0));
            _mm_storeu_si128(out.add(1), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.1));
        }
    }

    #[inline(always)]
    fn load_i8(self, bytes: &[u8]) -> V {
        let x = bytes[..LANES].as_ptr();
        unsafe {
            let low = _mm256_cvtepi8_epi32(_mm_loadl_epi64(x.cast()));
            let high = _mm256_cvtepi8_epi32(_mm_loadl_epi64(x.add(8).cast()));
            V(_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high))
        }
    }

    #[inline(always)]
    fn round(self, v: V) -> V {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        unsafe { V(_mm256_round_ps::<NEAREST>(v.0), _mm256_round_ps::<NEAREST>(v.1)) }
    }

    #[inline(always)]
    fn reduce_add(self, v: V) -> f32 {
        sum8(unsafe { _mm256_add_ps(v.0, v.1) })
    }

    #[inline(always)]
    fn pow2(self, n: V) -> V {
        let half = |n| unsafe {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        };
        V(half(n.0), half(n.1))
    }
}

/// The last three levels of the halving tree.
#[inline(always)]
pub(super) fn sum8(v: __m256) -> f32 {
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
}
