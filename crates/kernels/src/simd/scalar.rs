//! The tier without intrinsics. On machines without a fused multiply-add it is slow, and still exact.

use std::array::from_fn;

use super::{LANES, Simd, Tier, Work};
use crate::quant::F16;

#[derive(Clone, Copy)]
pub struct Scalar;

type F = [f32; LANES];
type I = [i32; LANES];

#[inline(always)]
fn tree<T: Copy>(mut a: [T; LANES], join: impl Fn(T, T) -> T) -> T {
    for width in [8, 4, 2, 1] {
        for i in 0..width {
            a[i] = join(a[i], a[i + width]);
        }
    }
    a[0]
}

/// `a * b + c`, rounded once. Where the processor has no such instruction Rust asks the system's library, and MinGW's rounds
/// twice.
#[inline(always)]
pub fn fused(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
        a.mul_add(b, c)
    } else {
        fused_in_f64(a, b, c)
    }
}

/// The product is exact in 53 bits. The sum is rounded to odd: its last bit tells whether anything was lost, so that rounding it
/// to 24 bits is as if nothing had been.
#[inline(always)]
fn fused_in_f64(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // What the sum lost, exactly.
    let of_c = sum - product;
    let lost = (product - (sum - of_c)) + (c - of_c);
    if lost == 0.0 || !sum.is_finite() || sum.to_bits() & 1 == 1 {
        return sum as f32;
    }
    let away_from_zero = (lost > 0.0) == (sum > 0.0);
    f64::from_bits(if away_from_zero { sum.to_bits() + 1 } else { sum.to_bits() - 1 }) as f32
}

impl Tier for Scalar {
    #[inline(never)]
    fn call<W: Work<Self>>(self, work: W) -> W::Out {
        work.run(self)
    }
}

/// Methods as [`instructions!`](super::tier) makes them, of code that every machine has.
macro_rules! methods {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)? { $body:expr })+) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) $(-> $out)? {
            $body
        }
    )+};
}

/// Methods whose result has each lane by itself: in their code the arguments stand for one lane.
macro_rules! lane_by_lane {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty { $lane:expr })+) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) -> $out {
            from_fn(|i| {
                let ($($arg,)*) = ($($arg[i],)*);
                $lane
            })
        }
    )+};
}

impl Simd for Scalar {
    type F = F;
    type I = I;
    const REGISTERS: usize = 4;

    #[inline(always)]
    fn to_i32(self, a: F) -> I {
        const LIMIT: f32 = 2_147_483_648.0;
        a.map(|x| if (-LIMIT..LIMIT).contains(&x) { x.round_ties_even() as i32 } else { i32::MIN })
    }

    lane_by_lane! {
        fn load_f16(x: &[F16; LANES]) -> F { x.to_f32() }
        fn load_bf16(x: &[[u8; 2]; LANES]) -> F { f32::from_bits(u32::from(u16::from_le_bytes(x)) << 16) }
        fn load_i8(x: &[i8; LANES]) -> F { f32::from(x) }
        fn add(a: F, b: F) -> F { a + b }
        fn sub(a: F, b: F) -> F { a - b }
        fn mul(a: F, b: F) -> F { a * b }
        fn div(a: F, b: F) -> F { a / b }
        fn sqrt(a: F) -> F { a.sqrt() }
        fn abs(a: F) -> F { a.abs() }
        fn fma(a: F, b: F, c: F) -> F { fused(a, b, c) }
        fn max(a: F, b: F) -> F { if a > b { a } else { b } }
        fn min(a: F, b: F) -> F { if a < b { a } else { b } }
        fn round_ties_even(a: F) -> F { a.round_ties_even() }
        fn if_more(a: F, b: F, x: F, y: F) -> F { if a > b { x } else { y } }
        fn from_i32(a: I) -> F { a as f32 }
        fn to_bits(a: F) -> I { a.to_bits() as i32 }
        fn from_bits(a: I) -> F { f32::from_bits(a as u32) }
        fn add_i32(a: I, b: I) -> I { a.wrapping_add(b) }
        fn sub_i32(a: I, b: I) -> I { a.wrapping_sub(b) }
        fn max_i32(a: I, b: I) -> I { a.max(b) }
    }

    methods! {
        fn splat(x: f32) -> F { [x; LANES] }
        fn load(x: &[f32; LANES]) -> F { *x }
        fn store(v: F, to: &mut [f32; LANES]) { *to = v }
        fn splat_f16(x: F16) -> F { [x.to_f32(); LANES] }
        fn store_f16(v: F, to: &mut [F16; LANES]) { *to = v.map(|x| F16(half::f16::from_f32_const(x).to_le_bytes())) }
        fn load_nibbles(x: &[u8; LANES], high: usize, levels: &[i8; 16]) -> F {
            x.map(|byte| f32::from(levels[usize::from(byte >> (4 * high) & 15)]))
        }
        fn add_where(v: F, lanes: u16, x: f32) -> F { from_fn(|i| if lanes >> i & 1 == 1 { v[i] + x } else { v[i] }) }
        fn transpose(rows: [F; LANES]) -> [F; LANES] { from_fn(|i| from_fn(|j| rows[j][i])) }
        fn splat_i32(x: i32) -> I { [x; LANES] }
        fn shl_i32(a: I, n: u32) -> I { a.map(|x| x << n) }
        fn shr_i32(a: I, n: u32) -> I { a.map(|x| x >> n) }
        fn store_i8(v: I, to: &mut [i8; LANES]) { *to = v.map(|x| x.clamp(-128, 127) as i8) }
        fn reduce_add(a: F) -> f32 { tree(a, |a, b| a + b) }
        fn reduce_max(a: F) -> f32 { tree(a, |a, b| if a > b { a } else { b }) }
        fn reduce_add_i32(a: I) -> i32 { tree(a, i32::wrapping_add) }
        fn reduce_max_i32(a: I) -> i32 { tree(a, i32::max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside integers of 128 bits, which hold any such sum of small exponents exactly.
    #[test]
    fn a_product_and_a_sum_are_rounded_once() {
        // Of an exact number the nearest float, ties to even.
        let rounded = |exact: i128| {
            let size = exact.unsigned_abs();
            let drop = (128 - size.leading_zeros()).saturating_sub(24);
            let (kept, rest) = (size >> drop, size & ((1 << drop) - 1));
            let half = (1u128 << drop) >> 1;
            let up = drop > 0 && (rest > half || (rest == half && kept & 1 == 1));
            let magnitude = (kept + u128::from(up)) as f64 * 2f64.powi(drop as i32);
            (if exact < 0 { -magnitude } else { magnitude }) as f32
        };
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let mut twice_is_wrong = 0;
        for i in 0..1_000_000 {
            let [a, b, c] = [(); 3].map(|()| i128::from(random() as i64 >> 40));
            let shift = random() % 60;
            // Every other sum is all but a tie: a product one below or above a power of two, half a unit of the summand's last place.
            let near = 1 << 23;
            let (a, b, c) = match i % 2 {
                0 => (a, b, c << shift),
                _ if a > 0 => (near + 1, near - 1, (2 * c + 1) << 47),
                _ => (near + 1, 1 - near, (2 * c + 1) << 47),
            };
            let got = fused_in_f64(a as f32, b as f32, c as f32);
            assert_eq!(got, rounded(a * b + c), "{a} * {b} + {c}");
            twice_is_wrong += u32::from((a as f64 * b as f64 + c as f64) as f32 != got);
        }
        assert!(twice_is_wrong > 0, "rounding twice would have passed");
        assert!(fused(f32::INFINITY, 0.0, 1.0).is_nan() && fused(f32::MAX, 2.0, 0.0) == f32::INFINITY);
        // Below the smallest normal number.
        assert_eq!(fused_in_f64(f32::MIN_POSITIVE, 0.5, f32::from_bits(1)), f32::from_bits((1 << 22) + 1));
    }
}
