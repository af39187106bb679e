//! Vector instruction sets: which ones this machine has, and one portable way to write a loop for all of them.
//!
//! A loop is written once, as a [`Kernel`] that is generic over [`Simd`], and [`Isa::dispatch`] compiles it once
//! per tier. Every lane operation is the plain IEEE one and every reduction has a fixed tree, so all tiers
//! give the same bits (a NaN stays a NaN; its payload is not promised).
//!
//! Two rules keep it fast: `Kernel::run` and every generic helper below it are `#[inline(always)]`, and no
//! closure crosses a function that is not (a function of its own is compiled for the baseline machine). Where
//! a kernel is long, it is cut at `Tier::call`: the compiler takes far more than twice the time for a function
//! of twice the length.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod scalar;
#[cfg(test)]
mod tests;
mod tier;

use std::{fmt, str::FromStr, sync::OnceLock};

#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
pub(crate) use tier::instructions;
pub(crate) use tier::{Tier, Work, on_vectors};

use crate::{Error, quant::F16};

/// A tier of instructions, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// No intrinsics: the twin that the others are tested against.
    Scalar,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// The same with dot products of bytes, of AVX-VNNI or AVX-512.
    AvxVnni,
    /// AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
    /// NEON with dot products of bytes.
    Neon,
    /// The same with products of small matrices of bytes.
    I8mm,
}

impl Isa {
    /// All there are, of every architecture; the better ones of each come later.
    const ALL: [Isa; 6] = [Isa::Scalar, Isa::Avx2, Isa::AvxVnni, Isa::Avx512, Isa::Neon, Isa::I8mm];

    /// The best tier of this machine.
    pub fn detect() -> Isa {
        Self::ALL.into_iter().rfind(|isa| isa.is_available()).expect("every machine has the scalar one")
    }

    /// All tiers of this machine, the best one last.
    pub fn available() -> Vec<Isa> {
        Self::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        static FOUND: OnceLock<[bool; Isa::ALL.len()]> = OnceLock::new();
        FOUND.get_or_init(|| Self::ALL.map(Self::probe))[self as usize]
    }

    /// Whether the processor is one of Intel's, which fetch memory in a way of their own.
    pub fn is_of_intel() -> bool {
        #[cfg(target_arch = "x86_64")]
        return avx2::is_of_intel();
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    fn probe(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::Avx2::is_available(),
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => avx2::Avx2::has_dot_products(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::Avx512::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::AvxVnni | Isa::Avx512 => false,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::Neon::is_available(),
            #[cfg(target_arch = "aarch64")]
            Isa::I8mm => neon::Neon::has_matrix_products(),
            #[cfg(not(target_arch = "aarch64"))]
            Isa::Neon | Isa::I8mm => false,
        }
    }

    /// Its name in small letters.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avxvnni",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
            Isa::I8mm => "i8mm",
        }
    }

    /// Rows of packed weights that stand side by side: the 32-bit lanes of the tier's vectors, or of two of them.
    pub fn lanes(self) -> usize {
        match self {
            Isa::Avx2 | Isa::AvxVnni | Isa::Neon | Isa::I8mm => 8,
            Isa::Scalar | Isa::Avx512 => 16,
        }
    }

    /// Runs `kernel` compiled for this tier. Panics if the machine lacks it.
    #[inline]
    pub fn dispatch<K: Kernel>(self, kernel: K) -> K::Out {
        on_vectors!(self, tier => tier.call(kernel), else scalar::Scalar.call(kernel))
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Isa {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|isa| isa.name() == name).ok_or_else(|| {
            Error::Usage(format!(
                "no instruction set is called '{name}': use scalar, avx2, avxvnni, avx512, neon or i8mm"
            ))
        })
    }
}

/// `kernel.on(isa)` is `isa.dispatch(kernel)`, but is compiled in this package, and not in the caller's.
macro_rules! compiled_here {
    ($($Kernel:ident),*) => {$(
        impl $Kernel<'_> {
            pub fn on(self, isa: $crate::simd::Isa) {
                isa.dispatch(self);
            }
        }
    )*};
}
pub(crate) use compiled_here;

/// Code that is compiled once per tier; mark `run` `#[inline(always)]`.
pub trait Kernel {
    type Out;

    fn run<S: Simd>(self, s: S) -> Self::Out;
}

impl<S: Simd, K: Kernel> Work<S> for K {
    type Out = K::Out;

    #[inline(always)]
    fn run(self, s: S) -> K::Out {
        Kernel::run(self, s)
    }
}

/// Lanes of a vector. Slices split into whole vectors by `as_chunks::<LANES>()`.
pub const LANES: usize = 16;

/// The operations of one tier on vectors of 16 lanes.
#[allow(clippy::wrong_self_convention, reason = "`self` is the instruction set, not the operand")]
pub trait Simd: Tier {
    /// 16 f32.
    type F: Copy;
    /// 16 i32.
    type I: Copy;
    /// How many vectors the register file holds.
    const REGISTERS: usize;

    /// Asks for the cache line of an address that is needed soon. Any address will do.
    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        let _ = address;
    }

    fn splat(self, x: f32) -> Self::F;
    fn load(self, x: &[f32; LANES]) -> Self::F;
    fn store(self, v: Self::F, to: &mut [f32; LANES]);
    fn splat_f16(self, x: F16) -> Self::F;
    fn load_f16(self, x: &[F16; LANES]) -> Self::F;
    /// Rounds to nearest, ties to even.
    fn store_f16(self, v: Self::F, to: &mut [F16; LANES]);
    /// Little-endian bfloat16 values.
    fn load_bf16(self, x: &[[u8; 2]; LANES]) -> Self::F;
    fn load_i8(self, x: &[i8; LANES]) -> Self::F;
    /// What the low nibbles of the bytes stand for, or the high ones if `high` is 1.
    fn load_nibbles(self, x: &[u8; LANES], high: usize, levels: &[i8; 16]) -> Self::F;
    /// Adds a number in the lanes whose bit is set.
    fn add_where(self, v: Self::F, lanes: u16, x: f32) -> Self::F;

    /// Lane j of result i is lane i of row j.
    fn transpose(self, rows: [Self::F; LANES]) -> [Self::F; LANES];

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    fn sqrt(self, a: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    /// `a·b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a > b ? a : b`: `b` if they are equal or one is a NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`: `b` if they are equal or one is a NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn round_ties_even(self, a: Self::F) -> Self::F;
    /// `a > b ? x : y`: `y` if they are equal or one is a NaN.
    fn if_more(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;

    /// Rounds ties to even; a NaN or a value out of range gives `i32::MIN`.
    fn to_i32(self, a: Self::F) -> Self::I;
    fn from_i32(self, a: Self::I) -> Self::F;
    fn to_bits(self, a: Self::F) -> Self::I;
    fn from_bits(self, a: Self::I) -> Self::F;

    fn splat_i32(self, x: i32) -> Self::I;
    /// Wraps around, as do the other integer operations.
    fn add_i32(self, a: Self::I, b: Self::I) -> Self::I;
    fn sub_i32(self, a: Self::I, b: Self::I) -> Self::I;
    fn max_i32(self, a: Self::I, b: Self::I) -> Self::I;
    /// `n` is a constant below 32.
    fn shl_i32(self, a: Self::I, n: u32) -> Self::I;
    /// With sign; `n` is a constant below 32.
    fn shr_i32(self, a: Self::I, n: u32) -> Self::I;
    /// Saturates.
    fn store_i8(self, v: Self::I, to: &mut [i8; LANES]);

    /// Lane i + lane i+8, then i+4, i+2, i+1.
    fn reduce_add(self, a: Self::F) -> f32;
    /// By the tree of [`Simd::reduce_add`], each step by [`Simd::max`].
    fn reduce_max(self, a: Self::F) -> f32;
    fn reduce_add_i32(self, a: Self::I) -> i32;
    fn reduce_max_i32(self, a: Self::I) -> i32;

    /// Up to 16 values, the lanes behind them zero.
    #[inline(always)]
    fn load_partial(self, x: &[f32]) -> Self::F {
        self.load(&padded(x, 0.0))
    }

    /// Up to 16 values, the lanes behind them zero.
    #[inline(always)]
    fn load_f16_partial(self, x: &[F16]) -> Self::F {
        self.load_f16(&padded(x, F16([0; 2])))
    }

    /// Up to 16 values, the lanes behind them zero.
    #[inline(always)]
    fn load_bf16_partial(self, x: &[[u8; 2]]) -> Self::F {
        self.load_bf16(&padded(x, [0; 2]))
    }

    /// The first `to.len()` lanes, at most 16.
    #[inline(always)]
    fn store_partial(self, v: Self::F, to: &mut [f32]) {
        to.copy_from_slice(&self.to_array(v)[..to.len()]);
    }

    /// The first `to.len()` lanes, at most 16.
    #[inline(always)]
    fn store_f16_partial(self, v: Self::F, to: &mut [F16]) {
        let mut all = [F16([0; 2]); LANES];
        self.store_f16(v, &mut all);
        to.copy_from_slice(&all[..to.len()]);
    }

    #[inline(always)]
    fn to_array(self, v: Self::F) -> [f32; LANES] {
        let mut all = [0.0; LANES];
        self.store(v, &mut all);
        all
    }

    /// `e^x` within 1 ulp; 0 below -104, infinity above 88.73, subnormals between.
    #[inline(always)]
    fn exp(self, x: Self::F) -> Self::F {
        // e^x = 2^n · e^r with |r| <= ln(2)/2. The operand order keeps a NaN.
        let x = self.min(self.splat(89.0), self.max(self.splat(-104.0), x));
        let n = self.round_ties_even(self.mul(x, self.splat(std::f32::consts::LOG2_E)));
        let r = self.fma(n, self.splat(-std::f32::consts::LN_2), x);
        let r = self.fma(n, self.splat(LN_2_ROUNDED_UP_BY), r);
        let mut tail = self.splat(EXP_COEFFICIENTS[4]);
        for c in EXP_COEFFICIENTS[..4].iter().rev() {
            tail = self.fma(tail, r, self.splat(*c));
        }
        let e_r = self.add(self.splat(1.0), self.fma(tail, self.mul(r, r), r));
        // In two steps, because 2^n alone is no f32 at either end.
        let n = self.to_i32(n);
        let half = self.shr_i32(n, 1);
        let rest = self.sub_i32(n, half);
        self.mul(self.mul(e_r, pow2(self, half)), pow2(self, rest))
    }
}

/// `f32(ln 2) - ln 2`.
const LN_2_ROUNDED_UP_BY: f32 = 1.904_654_2e-9;

/// `(e^r - 1 - r) / r²` on |r| <= ln(2)/2: minimax for the relative error of e^r (3.1e-9), rounded one by one.
const EXP_COEFFICIENTS: [f32; 5] =
    [0.499_999_94, 0.166_665_23, 0.041_668_292, 0.008_368_533, 0.001_381_830_5];

/// `2^n` for -126 <= n <= 127.
#[inline(always)]
fn pow2<S: Simd>(s: S, n: S::I) -> S::F {
    s.from_bits(s.shl_i32(s.add_i32(n, s.splat_i32(127)), 23))
}

#[inline(always)]
fn padded<T: Copy>(x: &[T], zero: T) -> [T; LANES] {
    let mut all = [zero; LANES];
    all[..x.len()].copy_from_slice(x);
    all
}
