//! How a GPU is to be used.

use std::path::PathBuf;

use crate::{Tuning, Variants, kv::KvLayout, kv_type::KvType, plan::UnitSet};

#[derive(Clone, Debug)]
pub struct GpuConfig {
    pub layout: KvLayout,
    pub max_rows: usize,
    pub key_type: KvType,
    pub value_type: KvType,
    pub held: UnitSet,
    /// Of those, the units whose low planes lie in RAM.
    pub by_planes: UnitSet,
    /// Bytes of device memory that may be taken.
    pub budget: u64,
    /// Time every kernel; slower.
    pub profile: bool,
    /// `None` takes what suits the device.
    pub tuning: Option<Tuning>,
    /// Which the device offers.
    pub variants: Variants,
    /// Where compiled kernels are kept.
    pub cache: Option<PathBuf>,
}
