//! Kernels for DX12 through the shader compiler that Windows brings along (FXC). It takes half a second for each, and neither
//! wgpu nor Windows keeps what it makes, so that is done here.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::cache::DiskCache;
use crate::{Result, hash::fnv1a};

const CODES: &str = "fxc";

/// What was compiled, by the texts' hashes and lengths, and where it is kept from run to run.
pub struct Codes {
    known: Mutex<HashMap<Key, Vec<u8>>>,
    grew: AtomicBool,
    shelf: DiskCache,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Key {
    hash: u64,
    bytes: u64,
}

/// What stands before a code in the file.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Entry {
    key: Key,
    bytes: u64,
}

impl Codes {
    pub fn open(shelf: &DiskCache) -> Self {
        let mut known = HashMap::new();
        let file = shelf.bytes(CODES).unwrap_or_default();
        let mut rest = &file[..];
        while let Some((head, behind)) = rest.split_at_checked(size_of::<Entry>()) {
            let Entry { key, bytes } = bytemuck::pod_read_unaligned(head);
            let Some((code, behind)) = behind.split_at_checked(bytes as usize) else { break };
            known.insert(key, code.to_vec());
            rest = behind;
        }
        Codes { known: Mutex::new(known), grew: AtomicBool::new(false), shelf: shelf.clone() }
    }

    /// The code of a text, made if it is not known. Several threads may make one at the same time; all get the same.
    pub fn of<E>(
        &self,
        text: &str,
        make: impl FnOnce() -> std::result::Result<Vec<u8>, E>,
    ) -> std::result::Result<Vec<u8>, E> {
        let key = Key { hash: fnv1a(text.bytes()), bytes: text.len() as u64 };
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = known().get(&key) {
            return Ok(code.clone());
        }
        let code = make()?;
        self.grew.store(true, Ordering::Relaxed);
        Ok(known().entry(key).or_insert(code).clone())
    }

    /// Keeps what has been added.
    pub fn keep(&self) -> Result<()> {
        if !self.grew.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = Vec::new();
        for (&key, code) in known.iter() {
            file.extend_from_slice(bytemuck::bytes_of(&Entry { key, bytes: code.len() as u64 }));
            file.extend_from_slice(code);
        }
        self.shelf.keep_bytes(CODES, &file)
    }
}

#[cfg(windows)]
pub use compiler::{Fxc, why_no_dx12};

#[cfg(windows)]
mod compiler {
    use std::ffi::c_void;

    use naga::back::hlsl::ShaderModel;
    use windows::{
        Win32::Graphics::Direct3D::{Fxc::D3DCOMPILE_ENABLE_STRICTNESS, ID3DBlob},
        core::HRESULT,
    };
    use windows_sys::{
        Win32::System::LibraryLoader::{GetProcAddress, LoadLibraryW},
        s, w,
    };

    use super::{
        super::{cache::DiskCache, pipelines::Final},
        Codes,
    };
    use crate::Result;

    /// `D3DCompile`.
    type Compile = unsafe extern "system" fn(
        text: *const c_void,
        bytes: usize,
        name: *const u8,
        defines: *const c_void,
        include: *const c_void,
        entry: *const u8,
        target: *const u8,
        flags: u32,
        effect_flags: u32,
        code: *mut Option<ID3DBlob>,
        said: *mut Option<ID3DBlob>,
    ) -> HRESULT;

    /// `None` where Windows does not have it.
    fn compiler() -> Option<Compile> {
        // SAFETY: the library does nothing of its own accord, and is never unloaded.
        let found = unsafe {
            let library = LoadLibraryW(w!("d3dcompiler_47.dll"));
            if library.is_null() { None } else { GetProcAddress(library, s!("D3DCompile")) }
        };
        // SAFETY: this is how the function is declared.
        found.map(|found| unsafe { std::mem::transmute::<_, Compile>(found) })
    }

    /// Why no adapter of DX12 is found, if that is why.
    pub fn why_no_dx12() -> Option<&'static str> {
        let said = "cannot be used: d3dcompiler_47.dll, the shader compiler of Windows, cannot be loaded";
        compiler().is_none().then_some(said)
    }

    pub struct Fxc {
        compile: Compile,
        codes: Codes,
    }

    impl Fxc {
        /// `None` where Windows does not have it.
        pub fn open(shelf: &DiskCache) -> Option<Self> {
            Some(Fxc { compile: compiler()?, codes: Codes::open(shelf) })
        }

        /// What a device takes for a kernel whose constants are these, as wgpu would have it made.
        pub fn code(
            &self,
            text: &str,
            constants: &[(&str, f64)],
            storage: &str,
        ) -> std::result::Result<Vec<u8>, String> {
            let constants = constants.iter().map(|&(name, x)| (name.to_string(), x));
            let text = Final::of_text(text, constants)?.hlsl(ShaderModel::V5_1, storage)?;
            self.codes.of(&text, || self.compiled(&text))
        }

        fn compiled(&self, text: &str) -> std::result::Result<Vec<u8>, String> {
            let (mut code, mut said) = (None, None);
            // SAFETY: the text has as many bytes, the names end with zero, and it writes two pointers.
            let result = unsafe {
                (self.compile)(
                    text.as_ptr().cast(),
                    text.len(),
                    std::ptr::null(),
                    std::ptr::null(),
                    std::ptr::null(),
                    c"main".as_ptr().cast(),
                    c"cs_5_1".as_ptr().cast(),
                    D3DCOMPILE_ENABLE_STRICTNESS,
                    0,
                    &mut code,
                    &mut said,
                )
            };
            // SAFETY: a blob has as many bytes as it says.
            let bytes = |blob: ID3DBlob| unsafe {
                std::slice::from_raw_parts(blob.GetBufferPointer().cast::<u8>(), blob.GetBufferSize())
                    .to_vec()
            };
            match code {
                Some(code) if result.is_ok() => Ok(bytes(code)),
                _ => Err(said.map_or(format!("{result:?}"), |said| {
                    String::from_utf8_lossy(&bytes(said)).into_owned()
                })),
            }
        }

        pub fn keep(&self) -> Result<()> {
            self.codes.keep()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compiled_is_not_compiled_again() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = DiskCache::at(directory.path(), "x");
        let codes = Codes::open(&shelf);
        let never = || -> std::result::Result<Vec<u8>, &str> { Err("compiled") };
        assert_eq!(codes.of("a", || Ok::<_, &str>(vec![1, 2, 3])), Ok(vec![1, 2, 3]));
        assert_eq!(codes.of("b", || Ok::<_, &str>(vec![])), Ok(vec![]));
        assert_eq!(codes.of("a", never), Ok(vec![1, 2, 3]));
        assert_eq!(codes.of("c", never), Err("compiled"));
        codes.keep().unwrap();
        let codes = Codes::open(&shelf);
        assert_eq!((codes.of("a", never), codes.of("b", never)), (Ok(vec![1, 2, 3]), Ok(vec![])));
        assert_eq!(codes.of("c", never), Err("compiled"));
    }
}
