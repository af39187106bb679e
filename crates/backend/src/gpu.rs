//! The interface of a package for GPUs, so that placement can be compiled without one.

use std::{fmt, path::Path, path::PathBuf, str::FromStr, sync::Arc};

use crate::{
    Backend, Model, Result, Speeds,
    cpu::{Multiplier, matmul::Planes, simd::Isa},
    kv::KvLayout,
    kv_type::KvType,
    plan::{Op, Unit, UnitSet, WeightId},
    planes::{HighBits, LowProduct, PlanesApart},
};

/// Which kernels of a GPU are used, where there is a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuVariant {
    /// Kernels that need no optional feature.
    #[default]
    Plain,
    /// Activations in whole numbers of 8 bits.
    Dot4,
    /// The same, with tiles by cooperative matrices. wgpu calls them an experiment, so they are used by name only.
    Coop,
    /// The fastest that is right on the device, found by a short trial.
    Tried,
}

impl fmt::Display for GpuVariant {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            GpuVariant::Plain => "plain",
            GpuVariant::Dot4 => "dot4",
            GpuVariant::Coop => "coop",
            GpuVariant::Tried => "auto",
        })
    }
}

impl FromStr for GpuVariant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(GpuVariant::Tried),
            "plain" => Ok(GpuVariant::Plain),
            "dot4" => Ok(GpuVariant::Dot4),
            "coop" => Ok(GpuVariant::Coop),
            _ if text.split(',').any(|name| ["f16", "subgroups"].contains(&name)) => {
                Err("f16 and subgroups are no longer there: auto, plain, dot4 or coop".into())
            }
            _ => Err("auto, plain, dot4 or coop".into()),
        }
    }
}

/// How wide kernels are, if not as wide as suits the device. The width fixes the order of sums, and so the bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuWidths {
    /// As on a card; else as on a processor that plays a GPU.
    pub of_card: bool,
    /// Up to so many rows the product before a deferred norm does the norm too. No bit depends on it.
    pub norms_in_products: Option<u32>,
}

impl GpuWidths {
    /// As on a card.
    pub const CARD: GpuWidths = GpuWidths { of_card: true, norms_in_products: None };
    /// As on a processor that plays a GPU.
    pub const PROCESSOR: GpuWidths = GpuWidths { of_card: false, norms_in_products: None };
}

/// How a GPU is to be used.
#[derive(Clone, Debug)]
pub struct GpuConfig {
    pub layout: KvLayout,
    pub max_rows: usize,
    pub key_type: KvType,
    pub value_type: KvType,
    pub held: UnitSet,
    /// The held units whose low planes lie in RAM.
    pub by_planes: PlanesApart,
    /// Bytes of device memory that may be taken.
    pub budget: u64,
    /// Time every kernel; slower.
    pub profile: bool,
    /// `None` takes what suits the device.
    pub widths: Option<GpuWidths>,
    /// Which the device offers; not [`GpuVariant::Tried`].
    pub variant: GpuVariant,
    /// Where compiled kernels are kept.
    pub cache: Option<PathBuf>,
}

/// The kernels to use on a device, and what is known of its speed.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    pub variant: GpuVariant,
    pub speeds: Option<Speeds>,
    /// Why the device is not to be used, if it is not.
    pub refusal: Option<String>,
}

/// A GPU that is there and can be used.
pub trait Gpu {
    /// In the list of all devices.
    fn number(&self) -> usize;
    fn name(&self) -> &str;
    /// Its name, and the driver.
    fn describe(&self) -> String;
    /// Whether it is hardware, not a processor that plays a GPU.
    fn is_hardware(&self) -> bool;
    /// Whether its memory is the processor's.
    fn shares_memory(&self) -> bool;
    /// Bytes of its memory that one program may take, where the driver tells.
    fn memory(&self) -> Option<u64>;
    /// What is known of its speed, by an earlier measurement kept in `cache` or by one now; `None` where there is no memory for
    /// one.
    fn speeds(&self, cache: Option<&Path>) -> Result<Option<Speeds>>;
    /// Chooses the kernels, and proves that they are right. Outcomes of earlier runs are kept in `cache`. If there are none,
    /// `trying` is called and everything is tried now, within `budget` bytes of the device's memory.
    fn choose_kernels(
        &self,
        wanted: GpuVariant,
        cache: Option<&Path>,
        budget: u64,
        trying: &dyn Fn(),
    ) -> Result<Chosen>;
    /// `progress` is told how many bytes of weights are on the device, and of how many.
    fn open(
        &self,
        model: Arc<Model>,
        config: &GpuConfig,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Box<dyn OpenedGpu>>;
}

/// A GPU of any kind.
pub type AnyGpu = Box<dyn Gpu>;

/// The backend of a GPU.
pub trait OpenedGpu: Backend {
    /// The products of which it has the high planes alone. A segment that makes one with all bits begins with it.
    fn low_products(&self) -> Vec<LowProduct>;
    /// Multiplies for the CPU with matrices of these units, which lie in RAM with all planes or with the low ones. `None` if
    /// its results have other bits than the CPU's.
    fn offloader(
        &self,
        in_ram: &UnitSet,
        planes_apart: &PlanesApart,
        planes: Option<Planes>,
        isa: Option<Isa>,
    ) -> Result<Option<Box<dyn Multiplier>>>;
}

/// The GPUs of a machine, and how many bytes a model's parts take on any of them.
pub trait Gpus: GpuSizes {
    /// Why no GPU can run a model, if none can.
    fn check(&self, model: &Model) -> Result<()>;
    /// Whether a hardware GPU could be there: quick, and without loading a driver.
    fn may_have_hardware(&self) -> bool;
    /// The hardware GPUs that can be used, the likeliest first. Where there are some and none can, why the first cannot.
    fn hardware(&self) -> Result<Vec<AnyGpu>>;
    /// The likeliest, or why there is none.
    fn first(&self) -> Result<AnyGpu>;
    /// By its number in the list, or a part of its name.
    fn named(&self, name: &str) -> Result<AnyGpu>;
    fn numbered(&self, numbers: &[usize]) -> Result<Vec<AnyGpu>>;
    /// The types among what a GPU is to hold that it holds in another form than the file, in words.
    fn converted(&self, model: &Model, held: &UnitSet) -> Vec<String>;
}

/// Bytes of a GPU's memory that parts of a model take, and that products read of it.
pub trait GpuSizes: Sync {
    /// Bytes that an operation's weights take.
    fn op_bytes(&self, model: &Model, op: &Op) -> u64;
    /// Bytes that a matrix takes less where only a high plane of so many bits is there.
    fn saved_by_planes(&self, model: &Model, id: WeightId, high: HighBits) -> u64;
    /// Bytes of the high plane alone. A product reads all of them.
    fn high_plane_bytes(&self, model: &Model, id: WeightId, high: HighBits) -> u64;
    /// Bytes that products whose low planes lie in RAM take besides: sums, and rows on their way to the CPU.
    fn lows_bytes(&self, model: &Model, held: &UnitSet, max_rows: usize) -> u64;
    /// Bytes that a pass reads of a matrix, in full or by its high bits.
    fn bytes_read(&self, model: &Model, id: WeightId, coarse: bool) -> u64;
    /// Bytes that a unit takes besides its weights: keys, values, states.
    fn overhead_bytes(&self, model: &Model, unit: Unit, layout: &KvLayout, types: (KvType, KvType)) -> u64;
    /// Bytes of buffers that passes share.
    fn scratch_bytes(&self, model: &Model, max_rows: usize, layout: &KvLayout) -> u64;
    /// Bytes of buffers for products with matrices that lie in RAM.
    fn offload_bytes(&self, model: &Model, in_ram: &UnitSet, max_rows: usize) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for text in ["plain", "dot4", "coop", "auto"] {
            assert_eq!(text.parse::<GpuVariant>().unwrap().to_string(), text);
        }
        for (text, what) in [("", "plain"), ("f16", "no longer"), ("dot4,subgroups", "no longer")] {
            let error = text.parse::<GpuVariant>().unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
