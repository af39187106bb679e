//! Zeros from the operating system: what is never written to costs no memory.

use std::io;

use memmap2::MmapMut;

/// In large pages where the system has them.
pub fn zeros(bytes: usize) -> io::Result<MmapMut> {
    let memory = MmapMut::map_anon(bytes.max(1))?;
    // Where the system declines, small pages do.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    Ok(memory)
}
