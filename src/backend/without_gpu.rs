//! In the place of `gpu` in a build without the feature: there is no device, and whoever asks for one is told why.

// The same names as in `gpu`, whoever uses them.
#![allow(dead_code)]

use std::{convert::Infallible, path::Path, str::FromStr, sync::Arc};

use crate::{
    Error, Model, Result,
    backend::{
        Backend, Crossing, GpuConfig, Output, Rows, Speeds,
        cpu::{Multiplier, matmul::Planes, simd::Isa},
    },
    kv::{CellMove, KvLayout},
    kv_type::KvType,
    plan::{Op, Step, Unit, UnitSet, WeightId},
};

/// What whoever wants a GPU is told.
pub fn left_out() -> Error {
    Error::Device("this build is without GPUs: it needs the feature \"gpu\"".into())
}

/// An adapter; none is ever found.
pub struct Found {
    pub number: usize,
    pub info: Info,
    pub memory: Option<DeviceMemory>,
    never: Infallible,
}

#[derive(Clone, Copy)]
pub struct DeviceMemory(Infallible);

impl DeviceMemory {
    pub fn share(self) -> u64 {
        match self.0 {}
    }
}

pub struct Info {
    pub name: String,
}

impl Found {
    pub fn is_hardware(&self) -> bool {
        match self.never {}
    }

    pub fn describe(&self) -> String {
        match self.never {}
    }

    pub fn shares_memory(&self) -> bool {
        match self.never {}
    }

    pub fn check(&self) -> Result<()> {
        match self.never {}
    }
}

pub fn check(_: &Model) -> Result<()> {
    Err(left_out())
}

pub fn may_have_hardware() -> bool {
    false
}

pub fn adapters() -> Vec<Found> {
    Vec::new()
}

pub fn hardware() -> Result<Vec<Found>> {
    Ok(Vec::new())
}

pub enum AdapterChoice {
    Any,
    Named(String),
}

pub fn choose(_: &AdapterChoice) -> Result<Found> {
    Err(left_out())
}

pub fn choose_all(_: &[usize]) -> Result<Vec<Found>> {
    Err(left_out())
}

#[derive(Clone, Copy, Debug)]
pub struct Tuning;

#[derive(Clone, Copy, Debug, Default)]
pub struct Variants;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    #[default]
    Tried,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "auto" { Ok(Wanted::Tried) } else { Err(left_out().to_string()) }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Chosen {
    pub variants: Variants,
    pub speeds: Option<Speeds>,
    pub refusal: Option<String>,
}

pub fn choose_variants(_: Wanted, found: &Found, _: Option<&Path>, _: u64, _: &dyn Fn()) -> Result<Chosen> {
    match found.never {}
}

pub fn speeds(_: Option<&Path>, found: &Found) -> Result<Option<Speeds>> {
    match found.never {}
}

pub fn op_bytes(_: &Model, _: &Op) -> u64 {
    0
}

pub fn saved_by_planes(_: &Model, _: WeightId) -> u64 {
    0
}

pub fn high_plane_bytes(_: &Model, _: WeightId) -> u64 {
    0
}

pub fn lows_bytes(_: &Model, _: &UnitSet, _max_rows: usize) -> u64 {
    0
}

pub fn bytes_read(_: &Model, _: WeightId, _coarse: bool) -> u64 {
    0
}

pub fn overhead_bytes(_: &Model, _: Unit, _: &KvLayout, _: (KvType, KvType)) -> u64 {
    0
}

pub fn scratch_bytes(_: &Model, _max_rows: usize, _: &KvLayout) -> u64 {
    0
}

pub fn lent_bytes(_: &Model, _in_ram: &UnitSet, _max_rows: usize) -> u64 {
    0
}

pub fn converted(_: &Model, _: &UnitSet) -> Vec<String> {
    Vec::new()
}

pub struct GpuBackend(Infallible);

impl GpuBackend {
    pub fn new(
        _: Arc<Model>,
        found: &Found,
        _: &GpuConfig,
        _progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Self> {
        match found.never {}
    }

    pub fn lender(
        &self,
        _in_ram: &UnitSet,
        _planes_apart: &UnitSet,
        _: Option<Planes>,
        _: Option<Isa>,
    ) -> Result<Option<Box<dyn Multiplier>>> {
        match self.0 {}
    }
}

impl Backend for GpuBackend {
    fn describe(&self) -> String {
        match self.0 {}
    }

    fn identity(&self) -> String {
        match self.0 {}
    }

    fn threads(&self) -> usize {
        match self.0 {}
    }

    fn max_rows(&self) -> usize {
        match self.0 {}
    }

    fn run_segment(&mut self, _: &[Step], _: &Rows, _: Crossing, _: Output) -> Result<()> {
        match self.0 {}
    }

    fn weight_bytes(&self, _: WeightId, _coarse: bool) -> u64 {
        match self.0 {}
    }

    fn shift_keys(&mut self, _: &[Vec<CellMove>], _delta: i64) -> Result<()> {
        match self.0 {}
    }
}
