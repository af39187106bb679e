//! What a file is quantized to, under llama.cpp's names and numbers.

use std::{fmt, str::FromStr};

use crate::{Error, quant::GgmlType};

macro_rules! file_types {
    ($($variant:ident = $id:literal, $base:ident;)*) => {
        /// A name that says for every tensor which type it gets. The letter at the end is the size of a mix: S, M or L.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types)]
        #[repr(u32)]
        pub enum FileType { $($variant = $id,)* }

        impl FileType {
            pub const ALL: &'static [FileType] = &[$(FileType::$variant,)*];

            pub fn name(self) -> &'static str {
                match self { $(FileType::$variant => stringify!($variant),)* }
            }

            /// The type of what no rule is about.
            pub fn base(self) -> GgmlType {
                match self { $(FileType::$variant => GgmlType::$base,)* }
            }
        }
    };
}

file_types! {
    F32 = 0, F32;
    F16 = 1, F16;
    BF16 = 32, BF16;
    Q8_0 = 7, Q8_0;
    Q6_K = 18, Q6_K;
    Q5_K_M = 17, Q5_K;
    Q5_K_S = 16, Q5_K;
    Q5_1 = 9, Q5_1;
    Q5_0 = 8, Q5_0;
    Q4_K_M = 15, Q4_K;
    Q4_K_S = 14, Q4_K;
    Q4_1 = 3, Q4_1;
    Q4_0 = 2, Q4_0;
    IQ4_NL = 25, IQ4_NL;
    IQ4_XS = 30, IQ4_XS;
    MXFP4_MOE = 38, MXFP4;
    Q3_K_L = 13, Q3_K;
    Q3_K_M = 12, Q3_K;
    Q3_K_S = 11, Q3_K;
    Q2_K = 10, Q2_K;
    Q2_K_S = 21, Q2_K;
}

impl FileType {
    /// `general.file_type`.
    pub fn id(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FileType {
    type Err = Error;

    /// A name in letters of any size, or a number; Q3_K, Q4_K and Q5_K are the mixes of medium size.
    fn from_str(name: &str) -> Result<Self, Error> {
        let upper = name.to_ascii_uppercase();
        let whole = match upper.as_str() {
            "Q3_K" | "Q4_K" | "Q5_K" => format!("{upper}_M"),
            "MXFP4" => "MXFP4_MOE".into(),
            _ => upper,
        };
        let named =
            |ty: &&FileType| ty.name() == whole || whole.parse().is_ok_and(|number: u32| ty.id() == number);
        Self::ALL.iter().find(named).copied().ok_or_else(|| {
            let known = Self::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ");
            Error::Usage(format!("'{name}' is no type of file that is written here: there is {known}"))
        })
    }
}
