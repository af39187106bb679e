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

impl Simd for Scalar {
    type F = F;
    type I = I;
    const REGISTERS: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> F {
        *x
    }
    #[inline(always)]
    fn store(self, v: F, to: &mut [f32; LANES]) {
        *to = v;
    }
    #[inline(always)]
    fn splat_f16(self, x: F16) -> F {
        [x.to_f32(); LANES]
    }
    #[inline(always)]
    fn load_f16(self, x: &[F16; LANES]) -> F {
        x.map(F16::to_f32)
    }
    #[inline(always)]
    fn store_f16(self, v: F, to: &mut [F16; LANES]) {
        *to = v.map(|x| F16(half::f16::from_f32_const(x).to_le_bytes()));
    }
    #[inline(always)]
    fn load_bf16(self, x: &[[u8; 2]; LANES]) -> F {
        x.map(|b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16))
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> F {
        x.map(f32::from)
    }
    #[inline(always)]
    fn load_nibbles(self, x: &[u8; LANES], high: usize, levels: &[i8; 16]) -> F {
        x.map(|byte| f32::from(levels[usize::from(byte >> (4 * high) & 15)]))
    }
    #[inline(always)]
    fn add_where(self, v: F, lanes: u16, x: f32) -> F {
        from_fn(|i| if lanes >> i & 1 == 1 { v[i] + x } else { v[i] })
    }
    #[inline(always)]
    fn transpose(self, rows: [F; LANES]) -> [F; LANES] {
        from_fn(|i| from_fn(|j| rows[j][i]))
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn sqrt(self, a: F) -> F {
        a.map(f32::sqrt)
    }
    #[inline(always)]
    fn abs(self, a: F) -> F {
        a.map(f32::abs)
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        from_fn(|i| fused(a[i], b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn round_ties_even(self, a: F) -> F {
        a.map(f32::round_ties_even)
    }
    #[inline(always)]
    fn if_more(self, a: F, b: F, x: F, y: F) -> F {
        from_fn(|i| if a[i] > b[i] { x[i] } else { y[i] })
    }
    #[inline(always)]
    fn to_i32(self, a: F) -> I {
        const LIMIT: f32 = 2_147_483_648.0;
        a.map(|x| if (-LIMIT..LIMIT).contains(&x) { x.round_ties_even() as i32 } else { i32::MIN })
    }
    #[inline(always)]
    fn from_i32(self, a: I) -> F {
        a.map(|x| x as f32)
    }
    #[inline(always)]
    fn to_bits(self, a: F) -> I {
        a.map(|x| x.to_bits() as i32)
    }
    #[inline(always)]
    fn from_bits(self, a: I) -> F {
        a.map(|x| f32::from_bits(x as u32))
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> I {
        [x; LANES]
    }
    #[inline(always)]
    fn add_i32(self, a: I, b: I) -> I {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn sub_i32(self, a: I, b: I) -> I {
        from_fn(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    fn max_i32(self, a: I, b: I) -> I {
        from_fn(|i| a[i].max(b[i]))
    }
    #[inline(always)]
    fn shl_i32(self, a: I, n: u32) -> I {
        a.map(|x| x << n)
    }
    #[inline(always)]
    fn shr_i32(self, a: I, n: u32) -> I {
        a.map(|x| x >> n)
    }
    #[inline(always)]
    fn store_i8(self, v: I, to: &mut [i8; LANES]) {
        *to = v.map(|x| x.clamp(-128, 127) as i8);
    }
    #[inline(always)]
    fn reduce_add(self, a: F) -> f32 {
        tree(a, |a, b| a + b)
    }
    #[inline(always)]
    fn reduce_max(self, a: F) -> f32 {
        tree(a, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn reduce_add_i32(self, a: I) -> i32 {
        tree(a, i32::wrapping_add)
    }
    #[inline(always)]
    fn reduce_max_i32(self, a: I) -> i32 {
        tree(a, i32::max)
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
