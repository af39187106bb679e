//! A tier of instructions as a type, and functions that are compiled for it.

/// Instructions that not every machine has. A value proves that this one has them.
pub trait Tier: Copy + Send + Sync + 'static {
    /// Runs `work` in a function of its own, compiled for the tier.
    fn call<W: Work<Self>>(self, work: W) -> W::Out;
}

/// What is compiled for a tier. Mark `run` and all generic functions below it `#[inline(always)]`.
pub trait Work<T: Tier> {
    type Out;

    fn run(self, tier: T) -> Self::Out;
}

/// Declares the type of a tier: what it knows besides, the macro of `std::arch` that finds its features, and these.
#[allow(unused_macros, reason = "not every architecture has tiers")]
macro_rules! tier {
    ($(#[$about:meta])* $Tier:ident($Knows:ty): $is_detected:ident $($feature:tt),+) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub struct $Tier($Knows);

        impl $Tier {
            /// Whether the machine has the instructions.
            pub fn is_available() -> bool {
                $(std::arch::$is_detected!($feature))&&+
            }

            /// # Safety
            /// The machine has the instructions.
            #[inline(always)]
            pub unsafe fn assume() -> Self {
                $Tier(Default::default())
            }
        }

        impl $crate::simd::Tier for $Tier {
            #[inline(always)]
            fn call<W: $crate::simd::Work<Self>>(self, work: W) -> W::Out {
                $(#[target_feature(enable = $feature)])+
                #[inline(never)]
                fn run<W: $crate::simd::Work<$Tier>>(tier: $Tier, work: W) -> W::Out {
                    work.run(tier)
                }
                // SAFETY: the value proves that the machine has the instructions.
                unsafe { run(self, work) }
            }
        }
    };
}
#[allow(unused_imports, reason = "not every architecture has tiers")]
pub(super) use tier;

/// Methods of a tier that consist of its instructions: `self`, which proves that the machine has them, is left out.
#[allow(unused_macros, reason = "not every architecture has tiers")]
macro_rules! instructions {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)? { $($body:tt)* })+) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) $(-> $out)? {
            // SAFETY: `self` proves that the machine has the instructions. They touch memory only by references, all
            // of whose array may be read or written, or to ask for it, which never faults.
            unsafe { $($body)* }
        }
    )+};
    ($(unsafe fn $name:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)? { $($body:tt)* })+) => {$(
        #[inline(always)]
        unsafe fn $name(self, $($arg: $ty),*) $(-> $out)? {
            // SAFETY: `self` proves that the machine has the instructions, and the memory is the caller's promise.
            unsafe { $($body)* }
        }
    )+};
}
#[allow(unused_imports, reason = "not every architecture has tiers")]
pub(crate) use instructions;

/// `on_vectors!(isa, tier => value, else other)`: `value` with the tier that `isa` names, or `other` if that is the
/// one without vectors. Panics if the machine lacks it. Here the tiers with vectors are listed for all who choose among them.
macro_rules! on_vectors {
    ($isa:expr, $tier:ident => $value:expr, else $other:expr) => {{
        use $crate::simd::{self, Isa};
        let isa: Isa = $isa;
        assert!(isa.is_available(), "this machine has no {isa}");
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                // SAFETY: the assertion above has found the instructions.
                let $tier = unsafe { simd::avx2::Avx2::assume() };
                $value
            }
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => {
                // SAFETY: as above.
                let $tier = unsafe { simd::avx2::Avx2::assume() }.with_dot_products();
                $value
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                // SAFETY: as above.
                let $tier = unsafe { simd::avx512::Avx512::assume() }.with_byte_permutations();
                $value
            }
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => {
                // SAFETY: as above.
                let $tier = unsafe { simd::neon::Neon::assume() };
                $value
            }
            #[cfg(target_arch = "aarch64")]
            Isa::I8mm => {
                // SAFETY: as above.
                let $tier = unsafe { simd::neon::Neon::assume() }.with_matrix_products();
                $value
            }
            _ => $other,
        }
    }};
}
pub(crate) use on_vectors;
