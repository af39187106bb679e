//! Reading what the device made.

use super::device::Gpu;
use crate::{Error, Result};

/// Waits for everything submitted and hands the first `bytes` of a mappable buffer to `take`.
pub fn read<T>(gpu: &Gpu, buffer: &wgpu::Buffer, bytes: u64, take: impl FnOnce(&[u8]) -> T) -> Result<T> {
    let slice = buffer.slice(..bytes);
    let (sender, receiver) = std::sync::mpsc::channel();
    slice.map_async(wgpu::MapMode::Read, move |result| drop(sender.send(result)));
    gpu.wait()?;
    let failed = |what: String| Error::Device(format!("{}: reading results failed: {what}", gpu.info.name));
    match receiver.try_recv() {
        Ok(Ok(())) => {}
        Ok(Err(e)) => return Err(failed(e.to_string())),
        Err(e) => return Err(failed(e.to_string())),
    }
    let taken = {
        let view = slice.get_mapped_range().map_err(|e| failed(e.to_string()))?;
        take(&view)
    };
    buffer.unmap();
    Ok(taken)
}
