//! What is made of the table of types: the enum, the list of blocks, and the choice of a block by its type.

use std::fmt;

use super::types;

macro_rules! define {
    (() $($T:ident = $id:literal, $len:literal, $bytes:literal $(, $file:ident::$Block:ident $(: $Quantize:ident)?)?;)*) => {
        /// Every tensor type that llama.cpp's files carry; [`GgmlType::readable`] says which can be used.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[allow(missing_docs, non_camel_case_types)]
        pub enum GgmlType { $($T = $id,)* }

        impl GgmlType {
            /// All types, by number.
            pub const ALL: &'static [GgmlType] = &[$(GgmlType::$T,)*];

            /// The type with this number in files.
            pub fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(GgmlType::$T),)* _ => None }
            }

            /// The name as llama.cpp prints it, in capitals: `Q4_K`, `IQ4_NL`, `F16`.
            pub const fn name(self) -> &'static str {
                match self { $(GgmlType::$T => stringify!($T),)* }
            }

            /// Weights in one block; the row length must be a multiple of it.
            pub const fn block_len(self) -> usize {
                match self { $(GgmlType::$T => $len,)* }
            }

            /// Bytes of one block.
            pub const fn block_bytes(self) -> usize {
                match self { $(GgmlType::$T => $bytes,)* }
            }
        }

        /// The blocks of all formats.
        pub mod blocks {
            $($(pub use crate::quant::$file::$Block;)?)*
        }

        // Ties each block to the type that the table gives it, and to its size.
        const _: () = {
            use crate::quant::Block;
            $($(
                assert!(<blocks::$Block as Block>::TYPE as u32 == GgmlType::$T as u32);
                assert!(size_of::<blocks::$Block>() == GgmlType::$T.block_bytes());
                assert!(align_of::<blocks::$Block>() == 1);
            )?)*
        };
    };
}

/// `for_block!(ty, B => value, else other)`: `value` with `B` the block of type `ty`, or `other` if it is none.
macro_rules! for_block {
    ($ty:expr, $B:ident => $value:expr, else $other:expr) => {
        $crate::quant::types! { choose (($ty) $B ($value) ($other)) }
    };
}

/// [`for_block!`] for the formats that can be written.
macro_rules! for_written_block {
    ($ty:expr, $B:ident => $value:expr, else $other:expr) => {
        $crate::quant::types! { choose_written (($ty) $B ($value) ($other)) }
    };
}

macro_rules! choose {
    (
        (($ty:expr) $B:ident ($value:expr) ($other:expr))
        $($T:ident = $id:literal, $len:literal, $bytes:literal $(, $file:ident::$Block:ident $(: $Quantize:ident)?)?;)*
    ) => {
        match $ty {
            $($($crate::quant::GgmlType::$T => {
                #[allow(dead_code, reason = "a value may be the same for all")]
                type $B = $crate::quant::$file::$Block;
                $value
            })?)*
            _ => $other,
        }
    };
}

macro_rules! choose_written {
    (
        (($ty:expr) $B:ident ($value:expr) ($other:expr))
        $($T:ident = $id:literal, $len:literal, $bytes:literal $(, $file:ident::$Block:ident $(: $Quantize:ident)?)?;)*
    ) => {
        match $ty {
            $($($($crate::quant::GgmlType::$T => {
                #[allow(unused_imports, reason = "a value may be the same for all")]
                use $crate::quant::$Quantize as _;
                #[allow(dead_code, reason = "as above")]
                type $B = $crate::quant::$file::$Block;
                $value
            })?)?)*
            _ => $other,
        }
    };
}
pub(crate) use {choose, choose_written, define, for_block, for_written_block};

types! { define () }

impl GgmlType {
    /// Bytes of a row of `len` weights, or None if `len` is not whole blocks or the product overflows.
    pub fn row_bytes(self, len: usize) -> Option<usize> {
        if !len.is_multiple_of(self.block_len()) {
            return None;
        }
        (len / self.block_len()).checked_mul(self.block_bytes())
    }

    /// True if this build can turn it into numbers.
    pub fn readable(self) -> bool {
        self.is_float() || for_block!(self, B => true, else false)
    }

    /// True if [`quantize`](super::quantize) can write it.
    pub fn writable(self) -> bool {
        self.is_float() || for_written_block!(self, B => true, else false)
    }

    /// True for the floats that weights may be.
    fn is_float(self) -> bool {
        matches!(self, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16)
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
