//! 8 rows at a time, in two registers of 4; byte products by the dot products of signed bytes, and of many columns by products of
//! small matrices.
#![allow(clippy::needless_range_loop)] // Indices keep several arrays in step.
#![allow(unused_unsafe, reason = "most of these instructions are the architecture's baseline")]

use std::arch::{aarch64::*, asm};

mod i8mm;

use super::{dot::Dot, kinds::Kind, lanes::Lanes};
use crate::{
    matmul::pairs,
    simd::{
        instructions,
        neon::{Neon, multiply_add, transpose_4, widen},
    },
};

/// Rows 0..4, and rows 4..8.
#[derive(Clone, Copy)]
pub struct V(uint32x4_t, uint32x4_t);

#[derive(Clone, Copy)]
pub struct F(float32x4_t, float32x4_t);

/// Methods that apply an instruction to both halves.
macro_rules! halves {
    ($(fn $name:ident($($v:ident: $T:ty),*) -> $Out:ident = $instruction:ident;)+) => {
        instructions! {
            $(fn $name($($v: $T),*) -> $Out { $Out($instruction($($v.0),*), $instruction($($v.1),*)) })+
        }
    };
}

impl Lanes for Neon {
    const ROWS: usize = 8;
    const SIGNED_BYTES: bool = true;
    const COLUMNS: usize = 4;
    type V = V;
    type F = F;

    #[inline(always)]
    fn few_columns(self) -> usize {
        if self.multiplies_matrices() { pairs::LEAST - 1 } else { 2 * Self::COLUMNS }
    }

    #[inline(always)]
    unsafe fn dot_panel<K: Kind>(self, products: &Dot<K>) -> bool {
        let by_matrices = self.multiplies_matrices() && products.columns.len() >= pairs::LEAST;
        if by_matrices {
            // SAFETY: the caller's, and `self` says that the machine has the instruction.
            unsafe { i8mm::dot(self, products) };
        }
        by_matrices
    }

    #[inline(always)]
    unsafe fn dot<const N: usize, const C: usize>(
        self,
        w: &[V; N],
        x: [*const i8; C],
        mut acc: [V; C],
        largest: u8,
        signed: bool,
    ) -> [V; C] {
        const { assert!(N.is_multiple_of(4)) };
        debug_assert!(signed || largest < 128, "these bytes are signed");
        for four in (0..N).step_by(4) {
            // SAFETY: the memory is the caller's promise.
            let x = x.map(|x| unsafe { vld1q_s8(x.add(4 * four)) });
            for c in 0..C {
                acc[c] = self.add_products::<0>(acc[c], w[four], x[c]);
            }
            for c in 0..C {
                acc[c] = self.add_products::<1>(acc[c], w[four + 1], x[c]);
            }
            for c in 0..C {
                acc[c] = self.add_products::<2>(acc[c], w[four + 2], x[c]);
            }
            for c in 0..C {
                acc[c] = self.add_products::<3>(acc[c], w[four + 3], x[c]);
            }
        }
        acc
    }

    halves! {
        fn and(a: V, b: V) -> V = vandq_u32;
        fn or(a: V, b: V) -> V = vorrq_u32;
        fn xor(a: V, b: V) -> V = veorq_u32;
        fn look_up(table: V, at: V) -> V = look_up_bytes;
        fn min_bytes(a: V, b: V) -> V = smaller_bytes;
        fn add(a: V, b: V) -> V = vaddq_u32;
        fn sub(a: V, b: V) -> V = vsubq_u32;
        fn mul(a: V, b: V) -> V = vmulq_u32;
        fn mul_pairs(a: V, b: V) -> V = products_of_pairs;
        fn half_to_f32(v: V) -> F = low_half;
        fn to_f32(v: V) -> F = to_floats;
        fn as_f32(v: V) -> F = vreinterpretq_f32_u32;
        fn mul_f32(a: F, b: F) -> F = vmulq_f32;
        fn neg_f32(a: F) -> F = vnegq_f32;
        fn fma_f32(a: F, b: F, c: F) -> F = multiply_add;
    }

    instructions! {
        fn prefetch(p: *const u8) {
            asm!("prfm pldl2keep, [{}]", in(reg) p, options(readonly, nostack, preserves_flags));
        }
        fn splat(x: u32) -> V {
            let v = vdupq_n_u32(x);
            V(v, v)
        }
        fn splat_f32(x: f32) -> F {
            let v = vdupq_n_f32(x);
            F(v, v)
        }
        fn table(bytes: &[u8; 16]) -> V {
            let v = vreinterpretq_u32_u8(vld1q_u8(bytes.as_ptr()));
            V(v, v)
        }
        fn spread_byte(v: V, i: usize) -> V {
            let first = [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12];
            let at = vreinterpretq_u32_u8(vaddq_u8(vld1q_u8(first.as_ptr()), vdupq_n_u8(i as u8)));
            V(look_up_bytes(v.0, at), look_up_bytes(v.1, at))
        }
        fn shl(v: V, n: u32) -> V {
            // A constant count becomes an immediate.
            let n = vdupq_n_s32(n as i32);
            V(vshlq_u32(v.0, n), vshlq_u32(v.1, n))
        }
        fn shr(v: V, n: u32) -> V {
            let n = vdupq_n_s32(-(n as i32));
            V(vshlq_u32(v.0, n), vshlq_u32(v.1, n))
        }
        fn sar(v: V, n: u32) -> V {
            let n = vdupq_n_s32(-(n as i32));
            let shift = |v| vreinterpretq_u32_s32(vshlq_s32(vreinterpretq_s32_u32(v), n));
            V(shift(v.0), shift(v.1))
        }
    }

    instructions! {
        unsafe fn rows_16_bytes(p: *const u8, stride: usize) -> [V; 4] {
            let row = |i: usize| vreinterpretq_f32_u8(vld1q_u8(p.add(i * stride)));
            let low = transpose_4([row(0), row(1), row(2), row(3)]).map(|v| vreinterpretq_u32_f32(v));
            let high = transpose_4([row(4), row(5), row(6), row(7)]).map(|v| vreinterpretq_u32_f32(v));
            [V(low[0], high[0]), V(low[1], high[1]), V(low[2], high[2]), V(low[3], high[3])]
        }
        unsafe fn gather(table: *const u32, at: V) -> V {
            let mut words = [0; 8];
            vst1q_u32(words.as_mut_ptr(), at.0);
            vst1q_u32(words.as_mut_ptr().add(4), at.1);
            let words = words.map(|at| table.add(at as usize).read());
            V(vld1q_u32(words.as_ptr()), vld1q_u32(words.as_ptr().add(4)))
        }
        unsafe fn load(p: *const u8) -> V {
            V(vreinterpretq_u32_u8(vld1q_u8(p)), vreinterpretq_u32_u8(vld1q_u8(p.add(16))))
        }
        unsafe fn store(p: *mut u8, v: V) {
            vst1q_u8(p, vreinterpretq_u8_u32(v.0));
            vst1q_u8(p.add(16), vreinterpretq_u8_u32(v.1));
        }
        unsafe fn load_f32(p: *const f32) -> F { F(vld1q_f32(p), vld1q_f32(p.add(4))) }
        unsafe fn store_f32(p: *mut f32, v: F) {
            vst1q_f32(p, v.0);
            vst1q_f32(p.add(4), v.1);
        }
        unsafe fn load_halves(p: *const u8) -> F {
            let v = vreinterpretq_u16_u8(vld1q_u8(p));
            F(widen(vget_low_u16(v)), widen(vget_high_u16(v)))
        }
        unsafe fn load_bytes(p: *const u8) -> V {
            let v = vmovl_u8(vld1_u8(p));
            V(vmovl_u16(vget_low_u16(v)), vmovl_u16(vget_high_u16(v)))
        }
    }
}

/// Adds the products of every row's four bytes with bytes `4·$i..4·$i+4` of `x`. The compiler's name for the instruction
/// is not stable.
macro_rules! dot_4 {
    ($i:literal, $acc:expr, $w:expr, $x:expr) => {
        asm!(
            concat!("sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[", $i, "]"),
            inout(vreg) $acc, in(vreg) $w, in(vreg) $x,
            options(pure, nomem, nostack, preserves_flags)
        )
    };
}

impl Neon {
    #[inline(always)]
    fn add_products<const I: usize>(self, mut acc: V, w: V, x: int8x16_t) -> V {
        // SAFETY: `self` proves that the machine has the instruction, which touches registers only.
        unsafe {
            match const { I } {
                0 => {
                    dot_4!(0, acc.0, w.0, x);
                    dot_4!(0, acc.1, w.1, x);
                }
                1 => {
                    dot_4!(1, acc.0, w.0, x);
                    dot_4!(1, acc.1, w.1, x);
                }
                2 => {
                    dot_4!(2, acc.0, w.0, x);
                    dot_4!(2, acc.1, w.1, x);
                }
                _ => {
                    dot_4!(3, acc.0, w.0, x);
                    dot_4!(3, acc.1, w.1, x);
                }
            }
        }
        acc
    }
}

// What follows needs no more than every machine of the architecture has.

#[inline(always)]
fn look_up_bytes(table: uint32x4_t, at: uint32x4_t) -> uint32x4_t {
    // SAFETY: the architecture has the instruction.
    unsafe { vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(table), vreinterpretq_u8_u32(at))) }
}

#[inline(always)]
fn smaller_bytes(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
    // SAFETY: the architecture has the instruction.
    unsafe { vreinterpretq_u32_u8(vminq_u8(vreinterpretq_u8_u32(a), vreinterpretq_u8_u32(b))) }
}

#[inline(always)]
fn products_of_pairs(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
    // SAFETY: the architecture has the instructions.
    unsafe {
        let (a, b) = (vreinterpretq_s16_u32(a), vreinterpretq_s16_u32(b));
        let (low, high) = (vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
        vreinterpretq_u32_s32(vpaddq_s32(low, high))
    }
}

#[inline(always)]
fn low_half(v: uint32x4_t) -> float32x4_t {
    // SAFETY: the architecture has the instruction.
    widen(unsafe { vmovn_u32(v) })
}

#[inline(always)]
fn to_floats(v: uint32x4_t) -> float32x4_t {
    // SAFETY: the architecture has the instruction.
    unsafe { vcvtq_f32_s32(vreinterpretq_s32_u32(v)) }
}
