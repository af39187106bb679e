//! Memory for packed weights: matrices lie one behind the other in few large mappings. If each had its own, what it
//! has beyond whole large pages would lie in small ones, which reads more slowly.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use memmap2::MmapRaw;

use crate::{Error, Result, zeros::zeros};

/// Where a matrix may begin: at a page.
const ALIGN: usize = 4096;
const LARGE_PAGE: usize = 2 << 20;
/// The largest region that is asked for at once, unless one matrix is larger.
const REGION: usize = 1 << 30;

/// Gives out parts of regions. A region lives as long as one of its parts.
#[derive(Default)]
pub struct PackedMemory {
    /// Bytes that are still to be asked for.
    to_come: usize,
    region: Option<Region>,
}

struct Region {
    map: Arc<MmapRaw>,
    used: usize,
}

/// Zeros from the system that one matrix owns.
pub struct Part {
    /// Within `_map`, page-aligned; no other part has any of these bytes.
    first: *mut u8,
    bytes: usize,
    _map: Arc<MmapRaw>,
}

// SAFETY: a part is the only one that reads or writes its bytes, like a `Box<[u8]>`.
unsafe impl Send for Part {}
// SAFETY: through a shared part its bytes are only read.
unsafe impl Sync for Part {}

impl PackedMemory {
    /// For matrices that have so many bytes each.
    pub fn for_matrices(bytes: impl Iterator<Item = usize>) -> Self {
        PackedMemory { to_come: bytes.map(|bytes| bytes.next_multiple_of(ALIGN)).sum(), region: None }
    }

    /// Memory for one matrix.
    pub fn take(&mut self, bytes: usize) -> Result<Part> {
        let aligned = bytes.checked_next_multiple_of(ALIGN).ok_or_else(|| no_memory(bytes))?;
        if self.region.as_ref().is_none_or(|region| region.left() < aligned) {
            let wanted = if large_pages() { self.to_come.min(REGION) } else { 0 };
            // A system that counts what is asked for, and not what is used, may still have enough for this matrix.
            let region = Region::new(wanted.max(aligned)).or_else(|| Region::new(aligned));
            self.region = Some(region.ok_or_else(|| no_memory(bytes))?);
        }
        self.to_come = self.to_come.saturating_sub(aligned);
        let region = self.region.as_mut().expect("made above, where there was none");
        let start = region.used;
        region.used += aligned;
        // SAFETY: `start + aligned <= map.len()`, by `left`.
        let first = unsafe { region.map.as_mut_ptr().add(start) };
        Ok(Part { first, bytes, _map: region.map.clone() })
    }
}

impl Region {
    /// Room for so many bytes, from the start of a large page on.
    fn new(bytes: usize) -> Option<Self> {
        let slack = if large_pages() { LARGE_PAGE } else { 0 };
        let map = MmapRaw::from(zeros(bytes.checked_add(slack)?).ok()?);
        let used = if large_pages() { map.as_ptr().align_offset(LARGE_PAGE) } else { 0 };
        Some(Region { map: Arc::new(map), used })
    }

    fn left(&self) -> usize {
        self.map.len() - self.used
    }
}

/// Whether the system has large pages for those who ask, and takes memory only where it is written to.
fn large_pages() -> bool {
    cfg!(target_os = "linux")
}

fn no_memory(bytes: usize) -> Error {
    let gib = bytes as f64 / (1u64 << 30) as f64;
    Error::Memory(format!("no memory for {gib:.2} GiB of weights: use `planes: None` or a smaller model"))
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the map lives as long as the part, its bytes began as zeros, and nobody else writes these.
        unsafe { std::slice::from_raw_parts(self.first, self.bytes) }
    }
}

impl DerefMut for Part {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the part is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_in_one_region_and_share_no_byte() {
        let sizes = [3 * LARGE_PAGE + 7, 1, ALIGN, 12345];
        let mut memory = PackedMemory::for_matrices(sizes.into_iter());
        let mut parts: Vec<Part> = sizes.iter().map(|&bytes| memory.take(bytes).unwrap()).collect();
        for (i, part) in parts.iter_mut().enumerate() {
            assert!(part.iter().all(|&byte| byte == 0));
            part.fill(i as u8 + 1);
        }
        drop(memory);
        for (i, (part, bytes)) in std::iter::zip(&parts, sizes).enumerate() {
            assert_eq!((part.len(), part.first as usize % ALIGN), (bytes, 0));
            assert!(part.iter().all(|&byte| byte == i as u8 + 1), "another part wrote into part {i}");
        }
        if large_pages() {
            assert_eq!(parts[0].first as usize % LARGE_PAGE, 0);
            let next = |part: &Part| part.first as usize + part.bytes.next_multiple_of(ALIGN);
            assert!(parts.windows(2).all(|two| next(&two[0]) == two[1].first as usize));
        }
    }

    #[test]
    fn a_matrix_that_was_not_counted_gets_a_region_of_its_own() {
        let mut memory = PackedMemory::default();
        let [first, second] = [10, 2 * LARGE_PAGE].map(|bytes| memory.take(bytes).unwrap());
        assert_eq!((first.len(), second.len()), (10, 2 * LARGE_PAGE));
    }

    #[test]
    fn more_than_there_is_is_an_error_that_names_it() {
        for bytes in [1 << 62, usize::MAX] {
            let said = PackedMemory::default().take(bytes).err().unwrap().to_string();
            assert!(said.contains("GiB of weights"), "{said}");
        }
    }
}
