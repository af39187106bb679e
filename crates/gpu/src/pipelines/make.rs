//! Makes a pipeline of a kernel: its text, specialised by override constants.

use std::collections::HashMap;

use super::{
    super::{compile::Source, device::Gpu, variants::Variants},
    Family, Kernel,
};
use crate::Result;

pub struct Maker {
    layouts: HashMap<Family, (wgpu::BindGroupLayout, wgpu::PipelineLayout)>,
    variants: Variants,
    /// What a test makes of the kernels' texts.
    #[cfg(test)]
    edit: Option<fn(Kernel, String) -> String>,
}

impl Maker {
    pub fn variants(&self) -> Variants {
        self.variants
    }

    pub fn new(gpu: &Gpu, variants: Variants) -> Self {
        let fit = Family::ALL.iter().filter(|family| family.fits(&gpu.limits));
        let layouts = fit.map(|&family| (family, layout(&gpu.device, family)));
        Maker {
            layouts: layouts.collect(),
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

    pub fn bind_group_layout(&self, family: Family) -> &wgpu::BindGroupLayout {
        &self.layouts[&family].0
    }

    pub fn make(&self, gpu: &Gpu, kernel: Kernel) -> Result<wgpu::ComputePipeline> {
        let family = kernel.family();
        gpu.pipeline(Source {
            name: &kernel.name(),
            text: self.text(gpu, kernel),
            constants: &kernel.constants(&gpu.tuning, gpu.flushes_halves),
            layout: &self.layouts[&family].1,
            storage: family.storage(),
        })
    }

    fn text(&self, gpu: &Gpu, kernel: Kernel) -> String {
        let text = kernel.text(self.variants, gpu.square);
        #[cfg(test)]
        if let Some(edit) = self.edit {
            return edit(kernel, text);
        }
        text
    }
}

fn layout(device: &wgpu::Device, family: Family) -> (wgpu::BindGroupLayout, wgpu::PipelineLayout) {
    let entry = |binding, ty, has_dynamic_offset| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
        count: None,
    };
    let mut entries = vec![entry(0, wgpu::BufferBindingType::Uniform, true)];
    entries.extend((1..).zip(family.storage().bytes()).map(|(binding, letter)| {
        entry(binding, wgpu::BufferBindingType::Storage { read_only: letter == b'r' }, false)
    }));
    let bind_group =
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
    let pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&bind_group)],
        immediate_size: 0,
    });
    (bind_group, pipeline)
}
