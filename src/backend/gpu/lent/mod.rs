//! Products for the CPU with matrices that lie in RAM: their packed bytes cross as they are, piece by piece, and are
//! multiplied here by the contract of the CPU's products. So a row has the CPU's bits, wherever its products are made.
//!
//! While the device multiplies one piece, the host fills the memory for the next.

mod check;
mod form;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    ops::Range,
    sync::{Arc, mpsc::Receiver},
};

use form::Form;
use rayon::prelude::*;
use wgpu::BufferUsages as Usage;

use super::{device::Gpu, upload};
use crate::{
    Error, Model, Result,
    backend::cpu::{
        Multiplier,
        matmul::{ActGroup, GROUP, Packed, QuantRows},
    },
    plan::UnitSet,
};

/// The most that a piece takes: of a matrix, and of its products.
const PIECE_BYTES: usize = 16 << 20;
const PIECE_PRODUCTS: usize = 8 << 20;

/// Multiplications in a submission: see `MOST_WORK` of `record`.
const MOST_WORK: usize = 100_000_000_000;

/// A tile of the kernel.
const TILE: [u32; 2] = [64, 32];

/// Of a uniform with seven words.
const PARAMS_BYTES: u64 = 32;

/// Scales of activations between which nothing that a product goes through is too small or too large for a device that
/// takes the smallest numbers for zero; and zero.
const SCALES: Range<f32> = f32::from_bits((127 - 40) << 23)..f32::from_bits((127 + 60) << 23);

/// Room for a piece on its way.
struct Room {
    params: wgpu::Buffer,
    weights: wgpu::Buffer,
    products: wgpu::Buffer,
    readable: wgpu::Buffer,
    bound: wgpu::BindGroup,
}

/// How large all of it is.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    acts: u64,
    weights: u64,
    products: u64,
}

impl Sizes {
    /// For the matrices of these units; `None` where there are none for it.
    fn of(model: &Model, units: &UnitSet, max_rows: usize) -> Option<Self> {
        // The comparison at load has rows of its own.
        let max_rows = max_rows.max(check::COLUMNS);
        let ops = units.ops(&model.plan).into_iter().flatten();
        let matrices = ops.flat_map(|op| model.plan.operands(op).matrices().map(|(id, _)| model.weight(id)));
        let (mut widest, mut largest, mut row) = (0, 0, 0);
        for weight in matrices.filter(|weight| Packed::knows(weight.ty())) {
            widest = widest.max(weight.cols);
            largest = largest.max(weight.bytes);
            row = row.max(weight.row_bytes());
        }
        (widest > 0).then(|| Sizes {
            acts: (max_rows * widest / GROUP * size_of::<ActGroup>()) as u64,
            // At least a group of rows; and what is filled up to whole groups.
            weights: (largest.min(PIECE_BYTES as u64) as usize + 32 * row) as u64,
            products: (4 * max_rows * 64).max(PIECE_PRODUCTS) as u64,
        })
    }

    fn bytes(self) -> u64 {
        // Products are there twice: where they are made, and where the host reads them.
        self.acts + 2 * (self.weights + 2 * self.products + PARAMS_BYTES)
    }
}

/// Bytes of the GPU's memory that products for the CPU take, if units of a model lie in RAM.
pub fn lent_bytes(model: &Model, in_ram: &UnitSet, max_rows: usize) -> u64 {
    Sizes::of(model, in_ram, max_rows).map_or(0, Sizes::bytes)
}

/// Multiplies for the CPU.
pub struct Lender {
    gpu: Arc<Gpu>,
    sizes: Sizes,
    acts: wgpu::Buffer,
    rooms: [Room; 2],
    layout: wgpu::PipelineLayout,
    kernels: HashMap<Form, wgpu::ComputePipeline>,
    /// Whether the device's `fma` rounds once.
    fused: bool,
}

/// Products on their way to the host.
struct Pending {
    room: usize,
    rows: Range<usize>,
    sent: wgpu::SubmissionIndex,
    mapped: Receiver<Result<(), wgpu::BufferAsyncError>>,
}

impl Lender {
    /// For matrices of these units; `None` where there are none for it.
    pub fn new(gpu: Arc<Gpu>, model: &Model, in_ram: &UnitSet, max_rows: usize) -> Result<Option<Self>> {
        Sizes::of(model, in_ram, max_rows).map(|sizes| Self::of(gpu, sizes)).transpose()
    }

    fn of(gpu: Arc<Gpu>, sizes: Sizes) -> Result<Self> {
        let entry = |binding, ty| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let storage = |read_only| wgpu::BufferBindingType::Storage { read_only };
        let group = gpu.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &[
                entry(0, wgpu::BufferBindingType::Uniform),
                entry(1, storage(true)),
                entry(2, storage(true)),
                entry(3, storage(false)),
            ],
        });
        let layout = gpu.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&group)],
            immediate_size: 0,
        });
        let acts = gpu.buffer("rows for RAM's matrices", sizes.acts, Usage::STORAGE | Usage::COPY_DST)?;
        let room = || -> Result<Room> {
            let params = gpu.buffer("parameters", PARAMS_BYTES, Usage::UNIFORM | Usage::COPY_DST)?;
            let weights = gpu.buffer("a piece of RAM", sizes.weights, Usage::STORAGE | Usage::COPY_DST)?;
            let products = gpu.buffer("its products", sizes.products, Usage::STORAGE | Usage::COPY_SRC)?;
            let readable = gpu.buffer("read products", sizes.products, Usage::MAP_READ | Usage::COPY_DST)?;
            let buffers = [&params, &weights, &acts, &products];
            let entries = buffers.map(|buffer| buffer.as_entire_binding());
            let entries = std::iter::zip(0.., entries)
                .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource });
            let bound = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &group,
                entries: &entries.collect::<Vec<_>>(),
            });
            Ok(Room { params, weights, products, readable, bound })
        };
        let rooms = [room()?, room()?];
        Ok(Lender { gpu, sizes, acts, rooms, layout, kernels: HashMap::new(), fused: true })
    }

    /// With an `fma` made of operations that round once each.
    pub fn without_fma(self) -> Self {
        Lender { fused: false, kernels: HashMap::new(), ..self }
    }

    fn make_kernel(&mut self, form: Form) -> Result<()> {
        let Lender { gpu, layout, kernels, fused, .. } = self;
        let Entry::Vacant(place) = kernels.entry(form) else { return Ok(()) };
        let name = form.name();
        let made = gpu.checked(&name, || {
            let constants = [("FUSED", f64::from(u8::from(*fused)))];
            gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(&name),
                layout: Some(layout),
                module: &gpu.shader(&name, form.text()),
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &constants,
                    zero_initialize_workgroup_memory: false,
                },
                cache: gpu.kernels.as_ref().map(|kept| &kept.cache),
            })
        })?;
        place.insert(made);
        Ok(())
    }

    /// Groups of rows in a piece of a matrix.
    fn groups_at_once(&self, packed: &Packed, columns: usize) -> usize {
        let bytes: usize = packed.group_bytes().iter().sum();
        let by_weights = (self.sizes.weights as usize / bytes).min((PIECE_BYTES / bytes).max(1));
        let by_products = self.sizes.products as usize / (4 * columns * packed.lanes());
        let by_work = MOST_WORK / (packed.cols() * columns * packed.lanes());
        by_weights.min(by_products).min(by_work).max(1)
    }

    fn send(&self, buffer: &wgpu::Buffer, at: usize, bytes: &[u8]) -> Result<()> {
        let Some(size) = wgpu::BufferSize::new(bytes.len() as u64) else { return Ok(()) };
        match self.gpu.queue.write_buffer_with(buffer, at as u64, size) {
            Some(mut view) => upload::copy(view.slice(..), bytes),
            // The device is in trouble and says so when it is asked.
            None => return self.gpu.check(),
        }
        Ok(())
    }

    /// Has some groups of rows sent and multiplied.
    fn begin(
        &self,
        room: usize,
        (form, packed): (Form, &Packed),
        groups: Range<usize>,
        columns: usize,
    ) -> Result<Pending> {
        let Room { params, weights, products, readable, bound } = &self.rooms[room];
        let [high, low] = packed.planes_of(groups.clone());
        self.send(weights, 0, high)?;
        self.send(weights, high.len(), low)?;
        let rows = groups.start * packed.lanes()..packed.rows().min(groups.end * packed.lanes());
        let [high_words, low_words] = packed.group_bytes().map(|bytes| bytes as u32 / 4);
        let blocks = (packed.cols() / packed.ty().block_len()) as u32;
        let words =
            [rows.len() as u32, blocks, columns as u32, high_words, low_words, high.len() as u32 / 4, 0, 0];
        self.gpu.queue.write_buffer(params, 0, bytemuck::cast_slice(&words));
        let mut encoder =
            self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&self.kernels[&form]);
            pass.set_bind_group(0, bound, &[]);
            pass.dispatch_workgroups(
                (rows.len() as u32).div_ceil(TILE[0]),
                (columns as u32).div_ceil(TILE[1]),
                1,
            );
        }
        let bytes = 4 * (columns * rows.len()) as u64;
        encoder.copy_buffer_to_buffer(products, 0, readable, 0, bytes);
        let sent = self.gpu.queue.submit([encoder.finish()]);
        let (sender, mapped) = std::sync::mpsc::channel();
        readable.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| drop(sender.send(result)));
        Ok(Pending { room, rows, sent, mapped })
    }

    /// Puts products where they belong in rows of so many.
    fn take(&self, pending: Pending, width: usize, out: &mut [f32]) -> Result<()> {
        let Pending { room, rows, sent, mapped } = pending;
        self.gpu.wait_for(sent)?;
        let failed =
            |what: String| Error::Device(format!("{}: reading products failed: {what}", self.gpu.info.name));
        mapped.try_recv().map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
        let readable = &self.rooms[room].readable;
        {
            let bytes = 4 * (out.len() / width * rows.len()) as u64;
            let view = readable.slice(..bytes).get_mapped_range().map_err(|e| failed(e.to_string()))?;
            let products: &[f32] = bytemuck::cast_slice(&view);
            let of_columns = products.par_chunks_exact(rows.len());
            out.par_chunks_exact_mut(width)
                .zip(of_columns)
                .for_each(|(out, products)| out[rows.clone()].copy_from_slice(products));
        }
        readable.unmap();
        Ok(())
    }
}

impl Multiplier for Lender {
    fn knows(&self, packed: &Packed) -> bool {
        Form::of(packed).is_some()
    }

    fn multiply(&mut self, packed: &Packed, x: &QuantRows, out: &mut [f32]) -> Result<bool> {
        self.gpu.check()?;
        let groups = x.all_groups();
        let is_plain = |group: &ActGroup| group.d == 0.0 || SCALES.contains(&group.d);
        if !groups.par_chunks(4096).all(|groups| groups.iter().all(is_plain)) {
            return Ok(false);
        }
        let form = Form::of(packed).expect("asked for before");
        self.make_kernel(form)?;
        self.send(&self.acts, 0, bytemuck::cast_slice(groups))?;
        let (columns, width) = (x.rows(), packed.rows());
        let all = width.div_ceil(packed.lanes());
        let mut pending = VecDeque::new();
        for (i, first) in (0..all).step_by(self.groups_at_once(packed, columns)).enumerate() {
            let groups = first..all.min(first + self.groups_at_once(packed, columns));
            if pending.len() == self.rooms.len()
                && let Some(oldest) = pending.pop_front()
            {
                self.take(oldest, width, out)?;
            }
            pending.push_back(self.begin(i % self.rooms.len(), (form, packed), groups, columns)?);
        }
        pending.into_iter().try_for_each(|pending| self.take(pending, width, out))?;
        Ok(true)
    }
}
