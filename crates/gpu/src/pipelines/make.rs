//! Makes a pipeline of a kernel: its text, specialised by override constants.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    super::{compile::Source, device::Gpu, params::SLOT_BYTES, variants::Variants},
    Bindings, Kernel,
};
use crate::Result;

pub struct Maker {
    /// Made when first asked for.
    layouts: Mutex<HashMap<Bindings, Arc<Layout>>>,
    variants: Variants,
    /// What a test makes of the kernels' texts.
    #[cfg(test)]
    edit: Option<fn(Kernel, String) -> String>,
}

impl Maker {
    pub fn variants(&self) -> Variants {
        self.variants
    }

    pub fn new(variants: Variants) -> Self {
        Maker {
            layouts: Mutex::default(),
            variants,
            #[cfg(test)]
            edit: None,
        }
    }

    #[cfg(test)]
    pub fn editing(mut self, edit: Option<fn(Kernel, String) -> String>) -> Self {
        self.edit = edit;
        self
    }

    pub fn layout(&self, gpu: &Gpu, bindings: Bindings) -> Arc<Layout> {
        let mut known = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(bindings).or_insert_with(|| Arc::new(Layout::new(&gpu.device, bindings))).clone()
    }

    pub fn make(&self, gpu: &Gpu, kernel: Kernel) -> Result<wgpu::ComputePipeline> {
        let described = kernel.description();
        let text = described.text(self.variants, gpu.square);
        #[cfg(test)]
        let text = match self.edit {
            Some(edit) => edit(kernel, text),
            None => text,
        };
        gpu.pipeline(Source {
            name: &described.name,
            text,
            constants: &described.constants(&gpu.tuning, gpu.flushes_halves),
            layout: &self.layout(gpu, described.bindings).pipeline,
            storage: described.bindings.0,
        })
    }
}

/// What kernels with the same bindings have in common.
pub struct Layout {
    bind_group: wgpu::BindGroupLayout,
    pub pipeline: wgpu::PipelineLayout,
}

impl Layout {
    pub fn new(device: &wgpu::Device, bindings: Bindings) -> Self {
        let entry = |binding, ty, has_dynamic_offset| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
            count: None,
        };
        let mut entries = vec![entry(0, wgpu::BufferBindingType::Uniform, true)];
        entries.extend((1..).zip(bindings.0.bytes()).map(|(binding, letter)| {
            entry(binding, wgpu::BufferBindingType::Storage { read_only: letter == b'r' }, false)
        }));
        let bind_group = device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&bind_group)],
            immediate_size: 0,
        });
        Layout { bind_group, pipeline }
    }

    /// `storage` in the order of the bindings; parameters lie in slots of `params`.
    pub fn bind(
        &self,
        device: &wgpu::Device,
        params: &wgpu::Buffer,
        storage: &[wgpu::BufferBinding],
    ) -> wgpu::BindGroup {
        let params =
            wgpu::BufferBinding { buffer: params, offset: 0, size: wgpu::BufferSize::new(SLOT_BYTES) };
        let all = std::iter::once(&params).chain(storage);
        let entries: Vec<_> = (0..)
            .zip(all)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(buffer.clone()),
            })
            .collect();
        device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.bind_group,
            entries: &entries,
        })
    }
}
