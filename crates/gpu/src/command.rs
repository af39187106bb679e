//! What a pass does on the device, as a list of commands: `ops/` makes it, and recording only walks it.

use super::pipelines::Kernel;

/// What a dispatch binds.
#[derive(Clone)]
pub struct Binding {
    pub group: wgpu::BindGroup,
    /// Offset of the parameters' slot.
    pub params: u32,
}

/// What a dispatch takes, with those that follow it and say nothing of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Multiplications.
    pub work: u64,
    /// Bytes of weights, keys and values, or logits that are read.
    pub bytes: u64,
    /// How many of them are of matrices.
    pub of_matrices: u64,
}

impl Load {
    /// Of a product, which reads so many bytes of a matrix.
    pub fn of_product(work: u64, bytes: u64) -> Self {
        Load { work, bytes, of_matrices: bytes }
    }
}

/// A kernel over a grid of workgroups.
pub struct Dispatch {
    pub kernel: Kernel,
    pub binding: Binding,
    pub groups: [u32; 3],
    pub load: Option<Load>,
}

/// Bytes from one buffer to another.
pub struct BufferCopy {
    pub from: wgpu::Buffer,
    pub from_offset: u64,
    pub to: wgpu::Buffer,
    pub to_offset: u64,
    pub bytes: u64,
}

impl BufferCopy {
    /// From an offset in one buffer to an offset in another.
    pub fn new(
        (from, from_offset): (&wgpu::Buffer, u64),
        (to, to_offset): (&wgpu::Buffer, u64),
        bytes: u64,
    ) -> Self {
        BufferCopy { from: from.clone(), from_offset, to: to.clone(), to_offset, bytes }
    }

    /// The first bytes of a buffer to where another begins.
    pub fn begin(from: &wgpu::Buffer, to: &wgpu::Buffer, bytes: u64) -> Self {
        Self::new((from, 0), (to, 0), bytes)
    }
}

pub enum Command {
    Dispatch(Dispatch),
    Copy(BufferCopy),
}

impl Command {
    /// The kernel that it needs.
    pub fn kernel(&self) -> Option<Kernel> {
        match self {
            Command::Dispatch(dispatch) => Some(dispatch.kernel),
            Command::Copy(_) => None,
        }
    }
}
