//! Reading what the device made.

use std::sync::mpsc::{Receiver, channel};

use super::device::Gpu;
use crate::{Error, Result};

/// The first bytes of a mappable buffer, on their way to the host.
pub struct Coming {
    buffer: wgpu::Buffer,
    bytes: u64,
    mapped: Receiver<Result<(), wgpu::BufferAsyncError>>,
}

/// Asks for what will be there when everything submitted has run.
pub fn ask(buffer: &wgpu::Buffer, bytes: u64) -> Coming {
    let (sender, mapped) = channel();
    buffer.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| drop(sender.send(result)));
    Coming { buffer: buffer.clone(), bytes, mapped }
}

impl Coming {
    /// Hands them to `take`, after the device was waited for.
    pub fn take<T>(self, gpu: &Gpu, take: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let failed =
            |what: String| Error::Device(format!("{}: reading results failed: {what}", gpu.info.name));
        self.mapped.try_recv().map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
        let taken = {
            let view =
                self.buffer.slice(..self.bytes).get_mapped_range().map_err(|e| failed(e.to_string()))?;
            take(&view)
        };
        self.buffer.unmap();
        Ok(taken)
    }
}

/// Waits for everything submitted and hands the first `bytes` of a mappable buffer to `take`.
pub fn read<T>(gpu: &Gpu, buffer: &wgpu::Buffer, bytes: u64, take: impl FnOnce(&[u8]) -> T) -> Result<T> {
    let coming = ask(buffer, bytes);
    gpu.wait()?;
    coming.take(gpu, take)
}
