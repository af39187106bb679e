//! Products for the CPU with matrices that lie in RAM: their packed bytes cross as they are, load by load, and are
//! multiplied here by the contract of the CPU's products. So a row has the CPU's bits, wherever its products are made.
//!
//! While the device multiplies one load, the host fills the memory for the next.

mod check;
mod form;
mod loads;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    ops::Range,
    sync::Arc,
};

use form::Form;
use loads::{Groups, Load, MOST_PIECES, Piece, Task, loads};
use rayon::prelude::*;
use wgpu::BufferUsages as Usage;

use super::{
    compile::Source,
    device::Gpu,
    params::{PackedParams, Params},
    pipelines::{Bindings, Layout},
    readback, upload,
};
use crate::{
    Model, Result,
    backend::cpu::{
        Bundle, Multiplier,
        matmul::{ActGroup, GROUP, Packed, QuantRows, Weight},
    },
    plan::UnitSet,
};

/// The most that a load takes: of matrices, and of their products.
const LOAD_BYTES: usize = 16 << 20;
const LOAD_PRODUCTS: usize = 8 << 20;

/// A tile of the kernel.
const TILE: [u32; 2] = [64, 32];

/// Scales of activations between which nothing that a product goes through is too small or too large for a device that
/// takes the smallest numbers for zero; and zero.
const SCALES: Range<f32> = f32::from_bits((127 - 40) << 23)..f32::from_bits((127 + 60) << 23);

/// The buffers of a load on its way.
struct Staging {
    params: Params,
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
        // The first of what is multiplied in one go, and how many there are.
        let matrices = ops.flat_map(|op| {
            let operands = model.plan.operands(&op);
            let experts = operands.experts().map(|experts| (experts.first, experts.choice.of));
            operands.matrices().map(|(id, _)| (id, 1)).chain(experts)
        });
        let (mut widest, mut largest, mut row) = (0, 0, 0);
        for (id, count) in matrices {
            let weight = model.weight(id);
            if Packed::knows(weight.ty()) {
                widest = widest.max(weight.cols);
                largest = largest.max(weight.bytes * count as u64);
                row = row.max(weight.row_bytes());
            }
        }
        (widest > 0).then(|| Sizes {
            acts: (max_rows * widest / GROUP * size_of::<ActGroup>()) as u64,
            // At least a group of rows; and what is filled up to whole groups.
            weights: (largest.min(LOAD_BYTES as u64) as usize + 32 * row) as u64,
            products: (4 * max_rows * 64).max(LOAD_PRODUCTS) as u64,
        })
    }

    fn bytes(self) -> u64 {
        // Products are there twice: where they are made, and where the host reads them. Parameters are 256 bytes apart at most.
        self.acts + 2 * (self.weights + 2 * self.products + 256 * MOST_PIECES as u64)
    }
}

/// Bytes of the GPU's memory that products for the CPU take, if units of a model lie in RAM.
pub fn offload_bytes(model: &Model, in_ram: &UnitSet, max_rows: usize) -> u64 {
    Sizes::of(model, in_ram, max_rows).map_or(0, Sizes::bytes)
}

/// Weights and rows are read, products written.
const STORAGE: Bindings = Bindings("rrw");

/// Multiplies for the CPU.
pub struct Offloader {
    gpu: Arc<Gpu>,
    sizes: Sizes,
    acts: wgpu::Buffer,
    stagings: [Staging; 2],
    layout: Layout,
    kernels: HashMap<Form, wgpu::ComputePipeline>,
    /// Whether the device's `fma` rounds once.
    fused: bool,
}

/// A load whose products are on their way to the host.
struct Pending<'l> {
    load: &'l Load,
    sent: wgpu::SubmissionIndex,
    coming: readback::Coming,
}

impl Offloader {
    /// For matrices of these units; `None` where there are none for it.
    pub fn new(gpu: Arc<Gpu>, model: &Model, in_ram: &UnitSet, max_rows: usize) -> Result<Option<Self>> {
        Sizes::of(model, in_ram, max_rows).map(|sizes| Self::of(gpu, sizes)).transpose()
    }

    fn of(gpu: Arc<Gpu>, sizes: Sizes) -> Result<Self> {
        let layout = Layout::new(&gpu.device, STORAGE);
        let acts = gpu.buffer("rows for RAM's matrices", sizes.acts, Usage::STORAGE | Usage::COPY_DST)?;
        let staging = || -> Result<Staging> {
            let params = Params::new(&gpu, MOST_PIECES)?;
            let weights = gpu.buffer("a load of RAM", sizes.weights, Usage::STORAGE | Usage::COPY_DST)?;
            let products = gpu.buffer("its products", sizes.products, Usage::STORAGE | Usage::COPY_SRC)?;
            let readable = gpu.buffer("read products", sizes.products, Usage::MAP_READ | Usage::COPY_DST)?;
            let storage = [&weights, &acts, &products].map(|buffer| buffer.as_entire_buffer_binding());
            let bound = layout.bind(&gpu.device, params.buffer(), &storage);
            Ok(Staging { params, weights, products, readable, bound })
        };
        let stagings = [staging()?, staging()?];
        Ok(Offloader { gpu, sizes, acts, stagings, layout, kernels: HashMap::new(), fused: true })
    }

    /// With an `fma` made of operations that round once each.
    pub fn without_fma(self) -> Self {
        Offloader { fused: false, kernels: HashMap::new(), ..self }
    }

    fn make_kernel(&mut self, form: Form) -> Result<()> {
        let Offloader { gpu, layout, kernels, fused, .. } = self;
        let Entry::Vacant(place) = kernels.entry(form) else { return Ok(()) };
        place.insert(gpu.pipeline(Source {
            name: &form.name(),
            text: form.text(),
            constants: &[("FUSED", f64::from(u8::from(*fused)))],
            layout: &layout.pipeline,
            storage: STORAGE.0,
        })?);
        Ok(())
    }

    fn send<'b>(
        &self,
        buffer: &wgpu::Buffer,
        at: usize,
        bytes: usize,
        pieces: impl Iterator<Item = &'b [u8]>,
    ) -> Result<()> {
        let Some(size) = wgpu::BufferSize::new(bytes as u64) else { return Ok(()) };
        match self.gpu.queue.write_buffer_with(buffer, at as u64, size) {
            Some(mut view) => upload::copy(view.slice(..), pieces),
            // The device is in trouble and says so when it is asked.
            None => return self.gpu.check(),
        }
        Ok(())
    }

    /// Has the rows of some bundles sent, from `at` on.
    fn send_rows(&self, at: usize, bundles: &[Bundle]) -> Result<()> {
        let parts = bundles.iter().flat_map(|bundle| {
            let groups = width_of(bundle) / GROUP;
            bundle.parts.iter().map(move |&(row, column)| &bundle.x.row(row)[column / GROUP..][..groups])
        });
        let bytes = bundles.iter().map(|bundle| row_bytes(width_of(bundle)) * bundle.parts.len()).sum();
        self.send(&self.acts, at, bytes, parts.map(bytemuck::cast_slice))
    }

    /// Has a load sent and multiplied.
    fn begin<'l>(
        &mut self,
        staging: usize,
        load: &'l Load,
        begins: &[usize],
        bundles: &[Bundle],
    ) -> Result<Pending<'l>> {
        if let Some(&at) = begins.get(load.tasks.start).filter(|_| !load.tasks.is_empty()) {
            self.send_rows(at, &bundles[load.tasks.clone()])?;
        }
        let planes = |piece: &Piece| packed_of(piece, bundles).planes_of(piece.groups.clone());
        self.send(&self.stagings[staging].weights, 0, load.weights, load.pieces.iter().flat_map(planes))?;
        let Staging { params, products, readable, bound, .. } = &mut self.stagings[staging];
        params.clear();
        let params_of = |piece: &Piece| {
            let packed = packed_of(piece, bundles);
            let [high, low] = packed.group_bytes();
            let low_at = piece.weights_at + piece.groups.len() * high;
            params.add(&PackedParams {
                rows: rows_of(piece, packed).len() as u32,
                blocks: (packed.cols() / packed.ty().block_len()) as u32,
                columns: bundles[piece.task].parts.len() as u32,
                high_words: (high / 4) as u32,
                low_words: (low / 4) as u32,
                high_at: (piece.weights_at / 4) as u32,
                low_at: (low_at / 4) as u32,
                x_at: (begins[piece.task] / 4) as u32,
                y_at: (piece.products_at / 4) as u32,
                zero: 0,
            })
        };
        let offsets: Vec<u32> = load.pieces.iter().map(params_of).collect();
        params.flush(&self.gpu);
        let mut encoder =
            self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            for (piece, offset) in load.pieces.iter().zip(offsets) {
                let packed = packed_of(piece, bundles);
                let columns = bundles[piece.task].parts.len();
                pass.set_pipeline(&self.kernels[&form_of(packed)]);
                pass.set_bind_group(0, &*bound, &[offset]);
                pass.dispatch_workgroups(
                    (rows_of(piece, packed).len() as u32).div_ceil(TILE[0]),
                    (columns as u32).div_ceil(TILE[1]),
                    1,
                );
            }
        }
        encoder.copy_buffer_to_buffer(products, 0, readable, 0, load.products as u64);
        let sent = self.gpu.submit(Some(encoder.finish()));
        let coming = readback::ask(readable, load.products as u64);
        Ok(Pending { load, sent, coming })
    }

    /// Puts products where they belong.
    fn take(&self, pending: Pending, bundles: &mut [Bundle]) -> Result<()> {
        let Pending { load, sent, coming } = pending;
        self.gpu.wait_for(sent)?;
        coming.take(&self.gpu, |products| {
            let products: &[f32] = bytemuck::cast_slice(products);
            for piece in &load.pieces {
                let rows = rows_of(piece, packed_of(piece, bundles));
                let (weight, out) = &mut bundles[piece.task].with[piece.matrix];
                let factor = weight.factor();
                let of_parts = products[piece.products_at / 4..].par_chunks_exact(rows.len());
                let at_once = (LEAST_TAKEN / rows.len()).max(1);
                out.par_iter_mut().zip(of_parts).with_min_len(at_once).for_each(|(out, products)| {
                    let to = out[rows.clone()].iter_mut();
                    to.zip(products).for_each(|(to, x)| *to = x * factor);
                });
            }
        })
    }
}

/// Products that a thread takes at least.
const LEAST_TAKEN: usize = 16 << 10;

fn form_of(packed: &Packed) -> Form {
    Form::of(packed).expect("asked for before")
}

fn packed<'a>(weight: &Weight<'a>) -> &'a Packed {
    weight.as_packed().expect("only packed matrices are known")
}

fn packed_of<'a>(piece: &Piece, bundles: &[Bundle<'a>]) -> &'a Packed {
    packed(&bundles[piece.task].with[piece.matrix].0)
}

/// The matrix' rows that a piece has.
fn rows_of(piece: &Piece, packed: &Packed) -> Range<usize> {
    piece.groups.start * packed.lanes()..packed.rows().min(piece.groups.end * packed.lanes())
}

fn width_of(bundle: &Bundle) -> usize {
    bundle.with.first().map_or(0, |(weight, _)| weight.cols())
}

/// Of a row that is rounded to int8.
fn row_bytes(width: usize) -> usize {
    width / GROUP * size_of::<ActGroup>()
}

/// Whether all numbers are of sizes that a device keeps.
fn are_plain(x: &QuantRows) -> bool {
    let is_plain = |group: &ActGroup| group.d == 0.0 || SCALES.contains(&group.d);
    x.all_groups().par_chunks(4096).all(|groups| groups.iter().all(is_plain))
}

impl Multiplier for Offloader {
    fn knows(&self, packed: &Packed) -> bool {
        Form::of(packed).is_some_and(|form| form.keeps_scales(packed))
    }

    fn multiply(&mut self, bundles: &mut [Bundle]) -> Result<bool> {
        self.gpu.check()?;
        let has_others = |pair: &&[Bundle]| !std::ptr::eq(pair[0].x, pair[1].x);
        let others = bundles.windows(2).filter(has_others).map(|pair| pair[1].x);
        if !bundles.first().map(|first| first.x).into_iter().chain(others).all(are_plain) {
            return Ok(false);
        }
        for (weight, _) in bundles.iter().flat_map(|bundle| &bundle.with) {
            self.make_kernel(form_of(packed(weight)))?;
        }
        let groups = |weight: &Weight| {
            let packed = packed(weight);
            Groups {
                count: packed.rows().div_ceil(packed.lanes()),
                bytes: packed.group_bytes().iter().sum(),
                lanes: packed.lanes(),
            }
        };
        let task = |bundle: &Bundle| Task {
            columns: bundle.parts.len(),
            width: width_of(bundle),
            matrices: bundle.with.iter().map(|(weight, _)| groups(weight)).collect(),
        };
        let (begins, loads) = loads(&bundles.iter().map(task).collect::<Vec<_>>(), self.sizes);
        let mut pending = VecDeque::new();
        for (i, load) in loads.iter().enumerate() {
            if pending.len() == self.stagings.len()
                && let Some(oldest) = pending.pop_front()
            {
                self.take(oldest, bundles)?;
            }
            pending.push_back(self.begin(i % self.stagings.len(), load, &begins, bundles)?);
        }
        pending.into_iter().try_for_each(|pending| self.take(pending, bundles))?;
        Ok(true)
    }
}
