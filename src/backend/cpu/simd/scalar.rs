//! The oracle: sixteen lanes in an array.

use std::array::from_fn;

use half::f16;

use super::{LANES, Simd};

#[derive(Clone, Copy)]
pub struct Scalar;

type V = [f32; LANES];

impl Simd for Scalar {
    type V = V;

    fn splat(self, x: f32) -> V {
        [x; LANES]
    }

    fn load(self, x: &[f32]) -> V {
        x[..LANES].try_into().expect("sixteen")
    }

    fn store(self, v: V, out: &mut [f32]) {
        out[..LANES].copy_from_slice(&v);
    }

    fn load_f16(self, bytes: &[u8]) -> V {
        from_fn(|i| f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32())
    }

    fn load_bf16(self, bytes: &[u8]) -> V {
        from_fn(|i| f32::from_bits(u32::from(u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])) << 16))
    }

    fn store_f16(self, v: V, out: &mut [u8]) {
        for (x, out) in v.into_iter().zip(out[..2 * LANES].chunks_exact_mut(2)) {
            out.copy_from_slice(&f16::from_f32(x).to_le_bytes());
        }
    }

    fn load_i8(self, bytes: &[u8]) -> V {
        from_fn(|i| f32::from(bytes[i] as i8))
    }

    fn add(self, a: V, b: V) -> V {
        from_fn(|i| a[i] + b[i])
    }

    fn sub(self, a: V, b: V) -> V {
        from_fn(|i| a[i] - b[i])
    }

    fn mul(self, a: V, b: V) -> V {
        from_fn(|i| a[i] * b[i])
    }

    fn div(self, a: V, b: V) -> V {
        from_fn(|i| a[i] / b[i])
    }

    fn fma(self, a: V, b: V, c: V) -> V {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    fn max(self, a: V, b: V) -> V {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    fn min(self, a: V, b: V) -> V {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    fn round(self, v: V) -> V {
        v.map(f32::round_ties_even)
    }

    fn pow2(self, n: V) -> V {
        n.map(|n| f32::from_bits(((n as i32 + 127) << 23) as u32))
    }
}
