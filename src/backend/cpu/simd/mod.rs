//! Instruction sets. A kernel is written once over [`Simd`], sixteen f32 lanes of plain IEEE arithmetic, and
//! compiled for each set; so all of them give the same bits, and the scalar one is the oracle.

mod scalar;
#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;

use std::{fmt, str::FromStr};

pub use scalar::Scalar;

pub const LANES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    Scalar,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
}

impl Isa {
    pub const ALL: [Isa; 3] = [Isa::Scalar, Isa::Avx2, Isa::Avx512];

    /// What this machine can run, best last.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.runs_here()).collect()
    }

    pub fn detect() -> Isa {
        Isa::available().pop().unwrap_or(Isa::Scalar)
    }

    fn runs_here(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::runs_here(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::runs_here(),
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// Runs a kernel compiled for this set. Panics if the machine lacks it.
    pub fn dispatch<K: Kernel>(self, kernel: K) -> K::Out {
        match self {
            Isa::Scalar => kernel.run(Scalar),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::dispatch(kernel),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::dispatch(kernel),
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("not available on this architecture"),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        })
    }
}

impl FromStr for Isa {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Isa::ALL.into_iter().find(|isa| isa.to_string() == s).ok_or("known sets are scalar, avx2, avx512".into())
    }
}

/// Code that is compiled once per instruction set; `run` must be `#[inline(always)]`.
pub trait Kernel {
    type Out;
    fn run<S: Simd>(self, s: S) -> Self::Out;
}

/// Sixteen f32 lanes. Values of it exist only where the machine has the instructions.
pub trait Simd: Copy {
    type V: Copy;

    fn splat(self, x: f32) -> Self::V;
    /// The first sixteen of a slice; panics if it is shorter.
    fn load(self, x: &[f32]) -> Self::V;
    fn store(self, v: Self::V, out: &mut [f32]);
    /// Sixteen little-endian halves.
    fn load_f16(self, bytes: &[u8]) -> Self::V;
    /// Sixteen little-endian bfloat16s.
    fn load_bf16(self, bytes: &[u8]) -> Self::V;
    /// Rounded to nearest even, as everywhere.
    fn store_f16(self, v: Self::V, out: &mut [u8]);
    /// Sixteen signed bytes.
    fn load_i8(self, bytes: &[u8]) -> Self::V;

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a` where it is greater, else `b`.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    fn round(self, v: Self::V) -> Self::V;
    /// 2 to the power of whole numbers from -126 to 127.
    fn pow2(self, n: Self::V) -> Self::V;

    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }

    /// Sixteen little-endian floats at any address.
    #[inline(always)]
    fn load_f32_bytes(self, bytes: &[u8]) -> Self::V {
        let mut x = [0.0; LANES];
        for (x, bytes) in x.iter_mut().zip(bytes[..4 * LANES].chunks_exact(4)) {
            *x = f32::from_le_bytes(bytes.try_into().expect("four bytes"));
        }
        self.load(&x)
    }

    /// Fewer than sixteen, the rest filled with `rest`.
    #[inline(always)]
    fn load_part(self, x: &[f32], rest: f32) -> Self::V {
        let mut full = [rest; LANES];
        full[..x.len()].copy_from_slice(x);
        self.load(&full)
    }

    #[inline(always)]
    fn store_part(self, v: Self::V, out: &mut [f32]) {
        let mut full = [0.0; LANES];
        self.store(v, &mut full);
        out.copy_from_slice(&full[..out.len()]);
    }

    /// Halving tree: lane i with lane i + 8, then 4, 2, 1.
    #[inline(always)]
    fn reduce_add(self, v: Self::V) -> f32 {
        let mut x = [0.0f32; LANES];
        self.store(v, &mut x);
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                x[i] += x[i + half];
            }
        }
        x[0]
    }

    #[inline(always)]
    fn reduce_max(self, v: Self::V) -> f32 {
        let mut x = [0.0f32; LANES];
        self.store(v, &mut x);
        x.into_iter().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a })
    }

    /// e to the power of `x`, within 2 ulp; 0 below -87.3 and finite above 88.
    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        // x = n·ln 2 + r with |r| ≤ ln 2 / 2; ln 2 in two parts, the first exact in few bits.
        let x = self.max(self.min(x, self.splat(88.0)), self.splat(-87.5));
        let n = self.round(self.mul(x, self.splat(std::f32::consts::LOG2_E)));
        let r = self.fma(n, self.splat(-0.693_359_4), x);
        let r = self.fma(n, self.splat(2.121_944_4e-4), r);
        let mut p = self.splat(1.0 / 5040.0);
        for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            p = self.fma(p, r, self.splat(c));
        }
        // -87.5 is n = -126: the smallest normal numbers stand for everything below, nearly nothing.
        self.mul(p, self.pow2(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Exp<'a>(&'a mut [f32]);

    impl Kernel for Exp<'_> {
        type Out = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            for x in self.0.chunks_exact_mut(LANES) {
                s.store(s.exp(s.load(x)), x);
            }
        }
    }

    #[test]
    fn exp_is_close_everywhere_and_the_same_on_all_sets() {
        let inputs: Vec<f32> = (0..32_000).map(|i| -100.0 + i as f32 * 0.006).collect();
        let mut scalar = inputs.clone();
        Exp(&mut scalar).run(Scalar);
        for (&x, &y) in inputs.iter().zip(&scalar) {
            let exact = f64::from(x.clamp(-87.5, 88.0)).exp();
            assert!((f64::from(y) / exact - 1.0).abs() < 2.5e-7, "exp({x}) = {y}, not {exact}");
        }
        for isa in Isa::available() {
            let mut out = inputs.clone();
            isa.dispatch(Exp(&mut out));
            assert!(out.iter().zip(&scalar).all(|(a, b)| a.to_bits() == b.to_bits()), "{isa}");
        }
    }
}
