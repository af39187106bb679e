//! What is kept of a device from run to run, in a directory of the caller's choice: its compiled kernels, and how the
//! trial of variants ended. Losing any of it costs time and nothing else, so reading never fails: what is absent,
//! damaged or of another driver or version is not known.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, Result, files::write_whole, hash::fnv1a};

/// More than a driver has for the kernels of all formats.
const MOST_BYTES: u64 = 64 << 20;

/// Where things about one adapter, driver and version of this program lie.
#[derive(Clone, Debug)]
pub struct DiskCache {
    directory: PathBuf,
    name: String,
}

impl DiskCache {
    pub fn new(directory: &Path, info: &wgpu::AdapterInfo) -> Self {
        let wgpu::AdapterInfo { name, vendor, device, driver, driver_info, backend, .. } = info;
        let version = env!("CARGO_PKG_VERSION");
        let whole = format!("{name}\n{vendor}\n{device}\n{driver}\n{driver_info}\n{backend}\n{version}");
        DiskCache { directory: directory.into(), name: format!("{:016x}", fnv1a(whole.bytes())) }
    }

    /// What tells it from all others.
    pub fn id(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    #[cfg(test)]
    pub fn at(directory: &Path, name: &str) -> Self {
        DiskCache { directory: directory.into(), name: name.into() }
    }

    fn path(&self, what: &str) -> PathBuf {
        self.directory.join(format!("{}.{what}", self.name))
    }

    /// Bytes as they were kept, if they are whole.
    pub fn bytes(&self, what: &str) -> Option<Vec<u8>> {
        let path = self.path(what);
        if fs::metadata(&path).ok()?.len() > MOST_BYTES {
            return None;
        }
        let file = fs::read(path).ok()?;
        let (sum, bytes) = file.split_first_chunk::<8>()?;
        (u64::from_le_bytes(*sum) == fnv1a(bytes.iter().copied())).then(|| bytes.to_vec())
    }

    pub fn keep_bytes(&self, what: &str, bytes: &[u8]) -> Result<()> {
        fs::create_dir_all(&self.directory).map_err(|e| Error::io(&self.directory, e))?;
        let sum = fnv1a(bytes.iter().copied()).to_le_bytes();
        write_whole(&self.path(what), [&sum, bytes].concat())
    }

    pub fn forget(&self, what: &str) {
        let _ = fs::remove_file(self.path(what));
    }

    pub fn value<T: DeserializeOwned>(&self, what: &str) -> Option<T> {
        serde_json::from_slice(&self.bytes(what)?).ok()
    }

    pub fn keep_value<T: Serialize>(&self, what: &str, value: &T) -> Result<()> {
        let bytes = serde_json::to_vec(value).expect("plain data");
        self.keep_bytes(what, &bytes)
    }
}

/// The driver's own cache of compiled kernels, and where it is kept.
pub struct KernelCache {
    pub cache: wgpu::PipelineCache,
    shelf: DiskCache,
    /// Of what was read.
    before: Option<u64>,
}

const KERNELS: &str = "kernels";

impl KernelCache {
    /// `None` where the driver has no such cache.
    pub fn open(device: &wgpu::Device, shelf: &DiskCache) -> Option<Self> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let data = shelf.bytes(KERNELS);
        // SAFETY: the bytes are what `get_data` gave for this adapter and driver, by their checksum.
        let cache = unsafe {
            device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
                label: None,
                data: data.as_deref(),
                fallback: true,
            })
        };
        Some(KernelCache { cache, shelf: shelf.clone(), before: data.map(fnv1a) })
    }

    /// Keeps what has been added.
    pub fn keep(&self) -> Result<()> {
        match self.cache.get_data() {
            Some(data) if Some(fnv1a(data.iter().copied())) != self.before => {
                self.shelf.keep_bytes(KERNELS, &data)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = DiskCache { directory: directory.path().join("not/yet"), name: "x".into() };
        assert_eq!(shelf.bytes("a"), None);
        shelf.keep_value("a", &vec![1u32, 2]).unwrap();
        assert_eq!(shelf.value("a"), Some(vec![1u32, 2]));
        let good = fs::read(shelf.path("a")).unwrap();
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for bytes in [&[][..], &good[..7], &good[..good.len() - 1], &flipped] {
            fs::write(shelf.path("a"), bytes).unwrap();
            assert_eq!(shelf.bytes("a"), None);
        }
        shelf.keep_bytes("a", b"other").unwrap();
        assert_eq!((shelf.bytes("a"), shelf.value::<Vec<u32>>("a")), (Some(b"other".to_vec()), None));
        assert_eq!(fs::read_dir(directory.path().join("not/yet")).unwrap().count(), 1);
    }
}
