//! The one list of block formats. A format is a file here, a line there, and the traits that its group asks for.

/// Hands the list to another macro of this file, behind `$args`.
macro_rules! formats {
    ($then:ident $args:tt) => {
        $crate::quant::formats::$then! {
            $args
            // `Quantize` writes them; in the engine's `Packable` form they are faster.
            written_and_packed {
                Q4_0 q4_0::BlockQ4_0,
                Q4_1 q4_1::BlockQ4_1,
                Q5_0 q5_0::BlockQ5_0,
                Q5_1 q5_1::BlockQ5_1,
                Q8_0 q8_0::BlockQ8_0,
                Q4_K q4_k::BlockQ4K,
                Q5_K q5_k::BlockQ5K,
                Q6_K q6_k::BlockQ6K,
                MXFP4 mxfp4::BlockMxfp4,
                NVFP4 nvfp4::BlockNvfp4,
            }
            packed {
                IQ4_NL iq4_nl::BlockIq4Nl,
                Q2_K q2_k::BlockQ2K,
                Q3_K q3_k::BlockQ3K,
                IQ4_XS iq4_xs::BlockIq4Xs,
                IQ1_S iq1_s::BlockIq1S,
                IQ1_M iq1_m::BlockIq1M,
                IQ2_XXS iq2_xxs::BlockIq2Xxs,
                IQ2_XS iq2_xs::BlockIq2Xs,
                IQ2_S iq2_s::BlockIq2S,
                IQ3_XXS iq3_xxs::BlockIq3Xxs,
                IQ3_S iq3_s::BlockIq3S,
                TQ1_0 tq1_0::BlockTq1,
                TQ2_0 tq2_0::BlockTq2,
                Q1_0 q1_0::BlockQ1_0,
                Q2_0 q2_0::BlockQ2_0,
            }
            // `Codec` and `Format` suffice: how a new format begins. None is left so.
            as_they_lie {
            }
        }
    };
}

/// `for_block!(ty, B => value, else other)`: `value` with `B` the block of type `ty`, or `other` if it is none.
macro_rules! for_block {
    ($ty:expr, $B:ident => $value:expr, else $other:expr) => {
        $crate::quant::formats::formats! { choose_any (($ty) $B ($value) ($other)) }
    };
}

/// [`for_block!`] for the formats that can be written.
macro_rules! for_written_block {
    ($ty:expr, $B:ident => $value:expr, else $other:expr) => {
        $crate::quant::formats::formats! { choose_written (($ty) $B ($value) ($other)) }
    };
}

/// [`for_block!`] for the formats that can be packed.
macro_rules! for_packed_block {
    ($ty:expr, $B:ident => $value:expr, else $other:expr) => {
        $crate::quant::formats::formats! { choose_packed (($ty) $B ($value) ($other)) }
    };
}

macro_rules! choose_any {
    ($args:tt $($group:ident { $($row:tt)* })*) => { $crate::quant::formats::choose! { $args $($($row)*)* } };
}

macro_rules! choose_written {
    ($args:tt written_and_packed { $($row:tt)* } $($rest:tt)*) => { $crate::quant::formats::choose! { $args $($row)* } };
}

macro_rules! choose_packed {
    ($args:tt written_and_packed { $($row:tt)* } packed { $($more:tt)* } $($rest:tt)*) => {
        $crate::quant::formats::choose! { $args $($row)* $($more)* }
    };
}

macro_rules! choose {
    ((($ty:expr) $B:ident ($value:expr) ($other:expr)) $($T:ident $file:ident::$Block:ident,)*) => {
        match $ty {
            $($crate::quant::GgmlType::$T => {
                #[allow(dead_code, reason = "a value may be the same for all")]
                type $B = $crate::quant::$file::$Block;
                $value
            })*
            _ => $other,
        }
    };
}

macro_rules! name_all {
    (() $($group:ident { $($T:ident $file:ident::$Block:ident,)* })*) => {
        /// The blocks of all formats.
        pub mod blocks {
            $($(pub use crate::quant::$file::$Block;)*)*
        }

        // Ties each block to the type that the list gives it, and to its size.
        const _: () = {
            use crate::quant::{Block, GgmlType};
            $($(
                assert!(<blocks::$Block as Block>::TYPE as u32 == GgmlType::$T as u32);
                assert!(size_of::<blocks::$Block>() == GgmlType::$T.block_bytes());
                assert!(align_of::<blocks::$Block>() == 1);
            )*)*
        };
    };
}
pub(crate) use {
    choose, choose_any, choose_packed, choose_written, for_block, for_packed_block, for_written_block,
    formats, name_all,
};

formats! { name_all () }
