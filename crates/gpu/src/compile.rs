//! From a kernel's text to a pipeline.

use super::device::Gpu;
use crate::Result;

/// A text, and what is needed to compile it.
pub struct Source<'a> {
    pub name: &'a str,
    pub text: String,
    /// Of its override constants.
    pub constants: &'a [(&'static str, f64)],
    pub layout: &'a wgpu::PipelineLayout,
    /// After the parameters at binding 0, a letter for each storage buffer: read or written.
    #[cfg_attr(not(windows), allow(dead_code, reason = "for Windows' compiler"))]
    pub storage: &'a str,
}

impl Gpu {
    /// What is wrong with the text becomes an error.
    pub fn pipeline(&self, source: Source) -> Result<wgpu::ComputePipeline> {
        let Source { name, constants, layout, .. } = source;
        self.checked(name, || {
            #[cfg(windows)]
            if let Some(module) = self.by_fxc(&source) {
                return self.pipeline_of(name, &module, &[], layout);
            }
            self.pipeline_of(name, &self.shader(name, source.text), constants, layout)
        })
    }

    fn pipeline_of(
        &self,
        name: &str,
        module: &wgpu::ShaderModule,
        constants: &[(&str, f64)],
        layout: &wgpu::PipelineLayout,
    ) -> wgpu::ComputePipeline {
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(name),
            layout: Some(layout),
            module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants,
                // The kernels write what they read.
                zero_initialize_workgroup_memory: false,
            },
            cache: self.kernels.as_ref().map(|kept| &kept.cache),
        })
    }

    /// A module that is compiled already. What is refused here wgpu compiles again, and says why it is.
    #[cfg(windows)]
    fn by_fxc(&self, source: &Source) -> Option<wgpu::ShaderModule> {
        let code = self.fxc.as_ref()?.code(&source.text, source.constants, source.storage).ok()?;
        let entry = wgpu::PassthroughShaderEntryPoint { name: "main".into(), workgroup_size: (0, 0, 0) };
        // SAFETY: the code is of the text that wgpu would have made, with the registers that it gives the buffers.
        Some(unsafe {
            self.device.create_shader_module_passthrough(wgpu::ShaderModuleDescriptorPassthrough {
                label: Some(source.name),
                entry_points: vec![entry].into(),
                dxil: Some(code.into()),
                ..Default::default()
            })
        })
    }
}
