//! NEON with the dot products of bytes: a vector is four registers of 4 lanes. Newer processors have products of small
//! matrices of bytes besides.
#![allow(unused_unsafe, reason = "most of these instructions are the architecture's baseline")]

use std::{
    arch::{aarch64::*, asm, is_aarch64_feature_detected},
    array::from_fn,
};

use super::{
    LANES, Simd,
    tier::{instructions, tier},
};
use crate::quant::F16;

tier! {
    /// Proof that the machine has NEON and its dot products of bytes.
    Neon(bool): is_aarch64_feature_detected "neon", "dotprod"
}

impl Neon {
    /// Whether the machine has [`Neon`] and products of small matrices of bytes.
    pub fn has_matrix_products() -> bool {
        Self::is_available() && is_aarch64_feature_detected!("i8mm")
    }

    /// With the machine's products of small matrices of bytes, if it has them.
    pub fn with_matrix_products(self) -> Self {
        Neon(is_aarch64_feature_detected!("i8mm"))
    }

    /// Whether it uses them; then the machine has them.
    #[inline(always)]
    pub fn multiplies_matrices(self) -> bool {
        self.0
    }
}

/// Lanes 4·i.. are in register i.
#[derive(Clone, Copy)]
pub struct F([float32x4_t; 4]);

#[derive(Clone, Copy)]
pub struct I([int32x4_t; 4]);

/// Methods that apply an instruction to all four registers.
macro_rules! quarters {
    ($(fn $name:ident($($v:ident: $V:ty),*) -> $Out:ident = $instruction:ident;)+) => {
        instructions! {
            $(fn $name($($v: $V),*) -> $Out {
                $Out([
                    $instruction($($v.0[0]),*),
                    $instruction($($v.0[1]),*),
                    $instruction($($v.0[2]),*),
                    $instruction($($v.0[3]),*),
                ])
            })+
        }
    };
}

impl Simd for Neon {
    type F = F;
    type I = I;
    const REGISTERS: usize = 8;

    #[inline(always)]
    fn transpose(self, v: [F; LANES]) -> [F; LANES] {
        // Block by block of 4x4.
        let mut out = v;
        for r in 0..4 {
            for q in 0..4 {
                let block = transpose_4(from_fn(|j| v[4 * r + j].0[q]));
                for (i, column) in block.into_iter().enumerate() {
                    out[4 * q + i].0[r] = column;
                }
            }
        }
        out
    }

    quarters! {
        fn add(a: F, b: F) -> F = vaddq_f32;
        fn sub(a: F, b: F) -> F = vsubq_f32;
        fn mul(a: F, b: F) -> F = vmulq_f32;
        fn div(a: F, b: F) -> F = vdivq_f32;
        fn sqrt(a: F) -> F = vsqrtq_f32;
        fn abs(a: F) -> F = vabsq_f32;
        fn fma(a: F, b: F, c: F) -> F = multiply_add;
        fn max(a: F, b: F) -> F = larger;
        fn min(a: F, b: F) -> F = smaller;
        fn round_ties_even(a: F) -> F = vrndnq_f32;
        fn if_more(a: F, b: F, x: F, y: F) -> F = choose;
        fn to_i32(a: F) -> I = nearest;
        fn from_i32(a: I) -> F = vcvtq_f32_s32;
        fn to_bits(a: F) -> I = vreinterpretq_s32_f32;
        fn from_bits(a: I) -> F = vreinterpretq_f32_s32;
        fn add_i32(a: I, b: I) -> I = vaddq_s32;
        fn sub_i32(a: I, b: I) -> I = vsubq_s32;
        fn max_i32(a: I, b: I) -> I = vmaxq_s32;
    }

    instructions! {
        fn prefetch(address: *const u8) {
            asm!("prfm pldl1keep, [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
        }
        fn splat(x: f32) -> F { F([vdupq_n_f32(x); 4]) }
        fn load(x: &[f32; LANES]) -> F { F(from_fn(|i| vld1q_f32(x.as_ptr().add(4 * i)))) }
        fn store(v: F, to: &mut [f32; LANES]) {
            for (i, v) in v.0.into_iter().enumerate() {
                vst1q_f32(to.as_mut_ptr().add(4 * i), v);
            }
        }
        fn splat_f16(x: F16) -> F { F([widen(vdup_n_u16(x.bits())); 4]) }
        fn load_f16(x: &[F16; LANES]) -> F {
            let (low, high) = halves(x.as_ptr().cast());
            F([widen(vget_low_u16(low)), widen(vget_high_u16(low)), widen(vget_low_u16(high)), widen(vget_high_u16(high))])
        }
        fn store_f16(v: F, to: &mut [F16; LANES]) {
            let p = to.as_mut_ptr().cast::<u8>();
            for i in 0..2 {
                let halves = vcombine_u16(narrow(v.0[2 * i]), narrow(v.0[2 * i + 1]));
                vst1q_u8(p.add(16 * i), vreinterpretq_u8_u16(halves));
            }
        }
        fn load_bf16(x: &[[u8; 2]; LANES]) -> F {
            let (low, high) = halves(x.as_ptr().cast());
            F([vget_low_u16(low), vget_high_u16(low), vget_low_u16(high), vget_high_u16(high)]
                .map(|v| vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(v)))))
        }
        fn load_i8(x: &[i8; LANES]) -> F { of_bytes(vld1q_s8(x.as_ptr())) }
        fn load_nibbles(x: &[u8; LANES], high: usize, levels: &[i8; 16]) -> F {
            let both = vshlq_u8(vld1q_u8(x.as_ptr()), vdupq_n_s8(-4 * high as i8));
            of_bytes(vqtbl1q_s8(vld1q_s8(levels.as_ptr()), vandq_u8(both, vdupq_n_u8(15))))
        }
        fn add_where(v: F, lanes: u16, x: f32) -> F {
            const BITS: [u32; 4] = [1, 2, 4, 8];
            let (bits, x) = (vld1q_u32(BITS.as_ptr()), vdupq_n_f32(x));
            F(from_fn(|i| {
                let set = vtstq_u32(vdupq_n_u32(u32::from(lanes >> (4 * i))), bits);
                vbslq_f32(set, vaddq_f32(v.0[i], x), v.0[i])
            }))
        }
        fn splat_i32(x: i32) -> I { I([vdupq_n_s32(x); 4]) }
        fn shl_i32(a: I, n: u32) -> I {
            // A constant count becomes an immediate.
            I(a.0.map(|v| vshlq_s32(v, vdupq_n_s32(n as i32))))
        }
        fn shr_i32(a: I, n: u32) -> I { I(a.0.map(|v| vshlq_s32(v, vdupq_n_s32(-(n as i32))))) }
        fn store_i8(v: I, to: &mut [i8; LANES]) {
            let [a, b, c, d] = v.0.map(|v| vqmovn_s32(v));
            let bytes = vcombine_s8(vqmovn_s16(vcombine_s16(a, b)), vqmovn_s16(vcombine_s16(c, d)));
            vst1q_s8(to.as_mut_ptr(), bytes);
        }
        fn reduce_add(a: F) -> f32 {
            let four = vaddq_f32(vaddq_f32(a.0[0], a.0[2]), vaddq_f32(a.0[1], a.0[3]));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        }
        fn reduce_max(a: F) -> f32 {
            let four = larger(larger(a.0[0], a.0[2]), larger(a.0[1], a.0[3]));
            let two = larger(four, vextq_f32::<2>(four, four));
            vgetq_lane_f32::<0>(larger(two, vextq_f32::<1>(two, two)))
        }
        fn reduce_add_i32(a: I) -> i32 { vaddvq_s32(vaddq_s32(vaddq_s32(a.0[0], a.0[1]), vaddq_s32(a.0[2], a.0[3]))) }
        fn reduce_max_i32(a: I) -> i32 { vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.0[0], a.0[1]), vmaxq_s32(a.0[2], a.0[3]))) }
    }
}

// What follows needs no more than every machine of the architecture has.

/// Lane j of result i is lane i of row j.
#[inline(always)]
pub(crate) fn transpose_4([a, b, c, d]: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: the architecture has the instructions.
    unsafe {
        // Pairs of rows, and then pairs of pairs.
        let ab = [vtrn1q_f32(a, b), vtrn2q_f32(a, b)].map(|v| vreinterpretq_f64_f32(v));
        let cd = [vtrn1q_f32(c, d), vtrn2q_f32(c, d)].map(|v| vreinterpretq_f64_f32(v));
        [
            vtrn1q_f64(ab[0], cd[0]),
            vtrn1q_f64(ab[1], cd[1]),
            vtrn2q_f64(ab[0], cd[0]),
            vtrn2q_f64(ab[1], cd[1]),
        ]
        .map(|v| vreinterpretq_f32_f64(v))
    }
}

/// Sixteen signed bytes.
#[inline(always)]
fn of_bytes(bytes: int8x16_t) -> F {
    // SAFETY: the architecture has the instructions.
    unsafe {
        let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes)));
        F([vget_low_s16(low), vget_high_s16(low), vget_low_s16(high), vget_high_s16(high)]
            .map(|v| vcvtq_f32_s32(vmovl_s16(v))))
    }
}

/// `a·b + c`: the instruction has the sum first.
#[inline(always)]
pub(crate) fn multiply_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
    // SAFETY: the architecture has the instruction.
    unsafe { vfmaq_f32(c, a, b) }
}

/// `a > b ? a : b`; the instruction for the maximum would keep a NaN of either side.
#[inline(always)]
fn larger(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    // SAFETY: the architecture has the instructions.
    unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) }
}

/// `a > b ? x : y`.
#[inline(always)]
fn choose(a: float32x4_t, b: float32x4_t, x: float32x4_t, y: float32x4_t) -> float32x4_t {
    // SAFETY: the architecture has the instructions.
    unsafe { vbslq_f32(vcgtq_f32(a, b), x, y) }
}

/// `a < b ? a : b`.
#[inline(always)]
fn smaller(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    // SAFETY: the architecture has the instructions.
    unsafe { vbslq_f32(vcltq_f32(a, b), a, b) }
}

/// What is no `i32` becomes `i32::MIN`; the instruction has other values for it.
#[inline(always)]
fn nearest(a: float32x4_t) -> int32x4_t {
    // SAFETY: the architecture has the instructions.
    unsafe {
        let fits = vcltq_f32(vabsq_f32(a), vdupq_n_f32(2_147_483_648.0));
        vbslq_s32(fits, vcvtnq_s32_f32(a), vdupq_n_s32(i32::MIN))
    }
}

/// From halves, exactly. The compiler's name for the instruction asks for a type that is not stable.
#[inline(always)]
pub(crate) fn widen(halves: uint16x4_t) -> float32x4_t {
    let out;
    // SAFETY: the architecture has the instruction, which touches registers only.
    unsafe {
        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) out, in(vreg) halves, options(pure, nomem, nostack, preserves_flags));
    }
    out
}

/// To halves, rounded to nearest, ties to even.
#[inline(always)]
fn narrow(v: float32x4_t) -> uint16x4_t {
    let out;
    // SAFETY: the architecture has the instruction, which touches registers only.
    unsafe {
        asm!("fcvtn {0:v}.4h, {1:v}.4s", out(vreg) out, in(vreg) v, options(pure, nomem, nostack, preserves_flags));
    }
    out
}

/// 16 values of two bytes.
///
/// # Safety
/// They are readable; any alignment.
#[inline(always)]
unsafe fn halves(p: *const u8) -> (uint16x8_t, uint16x8_t) {
    // SAFETY: the caller's.
    unsafe { (vreinterpretq_u16_u8(vld1q_u8(p)), vreinterpretq_u16_u8(vld1q_u8(p.add(16)))) }
}
