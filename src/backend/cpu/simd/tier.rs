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

/// Declares the type of a tier that consists of `$feature`s.
#[allow(unused_macros, reason = "not every architecture has tiers")]
macro_rules! tier {
    ($(#[$about:meta])* $Tier:ident: $($feature:tt),+) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub struct $Tier(());

        impl $Tier {
            /// # Safety
            /// The machine has the instructions.
            #[inline(always)]
            pub unsafe fn assume() -> Self {
                $Tier(())
            }
        }

        impl $crate::backend::cpu::simd::Tier for $Tier {
            #[inline(always)]
            fn call<W: $crate::backend::cpu::simd::Work<Self>>(self, work: W) -> W::Out {
                $(#[target_feature(enable = $feature)])+
                #[inline(never)]
                fn run<W: $crate::backend::cpu::simd::Work<$Tier>>(tier: $Tier, work: W) -> W::Out {
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
