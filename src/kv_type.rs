//! In what form keys and values are kept.

use std::{fmt, str::FromStr};

use crate::{Error, Result};

/// How keys or values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Floats of 32 bits.
    F32,
    /// Floats of 16 bits.
    F16,
    /// Blocks of 32: an f16 scale and 32 bytes.
    Q8_0,
}

pub const Q8_BLOCK: usize = 32;
pub const Q8_BLOCK_BYTES: usize = 34;

impl KvType {
    /// All of them.
    pub const ALL: [KvType; 3] = [KvType::F32, KvType::F16, KvType::Q8_0];

    /// Bytes of one head's row.
    pub fn row_bytes(self, head_dim: usize) -> usize {
        match self {
            KvType::F32 => 4 * head_dim,
            KvType::F16 => 2 * head_dim,
            KvType::Q8_0 => head_dim / Q8_BLOCK * Q8_BLOCK_BYTES,
        }
    }

    /// Whether heads of such a length can be stored so.
    pub fn check(self, head_dim: usize) -> Result<()> {
        if self != KvType::Q8_0 || head_dim.is_multiple_of(Q8_BLOCK) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "-ctk/-ctv q8_0 needs heads of a multiple of {Q8_BLOCK}, this model's have {head_dim}: use f16"
        )))
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s.to_ascii_lowercase().as_str() {
            "f32" => Ok(KvType::F32),
            "f16" => Ok(KvType::F16),
            "q8_0" => Ok(KvType::Q8_0),
            _ => Err("supported types are f16, f32, q8_0".into()),
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::Q8_0 => "q8_0",
        })
    }
}
