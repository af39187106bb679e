//! A real file with bytes changed or cut off, some thousands of times, and files made to cost memory: opening
//! never panics, and allocates no more than a small multiple of the file's size.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    fs::{self, OpenOptions},
    io::{Seek, SeekFrom, Write},
    path::Path,
};

use spec_run::{Error, Gguf, rng::Rng};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories13m-q8_0.gguf");

/// Counts per thread, so that tests can run side by side.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    LIVE.set(LIVE.get() + bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

// SAFETY: the system's allocator does the work. `realloc` and `alloc_zeroed` keep their default forms, which
// call these two, so a growing buffer counts with its old and its new size, as it does in the worst case.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The result and the most bytes that were allocated at once on the way to it.
fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = work();
    (result, (PEAK.get() - before) as usize)
}

/// The same numbers in every run.
struct Random(Rng);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Reads what a user of the file reads. The first and last byte of a tensor stand for the rest.
fn touch(gguf: &Gguf) -> u64 {
    let mut sum = gguf.metadata().iter().map(|(key, value)| (key.len() + value.kind().len()) as u64).sum();
    for t in gguf.tensors() {
        let bytes = gguf.bytes(t);
        assert_eq!(bytes.len() as u64, t.bytes);
        assert!(std::ptr::eq(gguf.tensor(&t.name).expect("it is in the list"), t));
        sum += u64::from(bytes[0]) + u64::from(bytes[bytes.len() - 1]) + t.elements();
    }
    sum
}

/// Opens and reads; true if the file was taken. Everything else must be an error of one line, within memory.
fn opens(path: &Path, file_len: usize, what: &dyn Fn() -> String) -> bool {
    let (result, peak) = measured(|| Gguf::open(path));
    let limit = 4 * file_len + (1 << 20);
    assert!(peak <= limit, "{peak} bytes allocated, {limit} is the limit: {}", what());
    match result {
        Ok(gguf) => {
            touch(&gguf);
            true
        }
        Err(error) => {
            assert!(matches!(error, Error::Gguf { .. }), "{error:?}: {}", what());
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            false
        }
    }
}

#[test]
fn changed_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("changed.gguf");
    let original = fs::read(MODEL).unwrap();
    fs::write(&path, &original).unwrap();
    let head = Gguf::open(&path).unwrap().tensors().iter().map(|t| t.offset).min().unwrap() as usize;
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut put = |at: usize, bytes: &[u8]| {
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(bytes).unwrap();
    };

    let mut random = Random(Rng::new(20_260_101));
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..10_000 {
        let mut changes = Vec::new();
        for _ in 0..1 + random.below(3) {
            let at = random.below(head);
            let patch: Vec<u8> = match random.below(4) {
                0 => vec![original[at] ^ (1 << random.below(8))],
                1 => vec![random.next() as u8],
                // Lengths and counts are 8 bytes long: numbers that just fit, do not, or overflow.
                2 => (random.next() >> random.below(64)).to_le_bytes().to_vec(),
                _ => [0, 1 << 63, u64::MAX, original.len() as u64][random.below(4)].to_le_bytes().to_vec(),
            };
            put(at, &patch);
            changes.push((at, patch));
        }
        match opens(&path, original.len(), &|| format!("{changes:?}")) {
            true => taken += 1,
            false => refused += 1,
        }
        for (at, patch) in changes {
            put(at, &original[at..at + patch.len()]);
        }
    }
    assert!(opens(&path, original.len(), &|| "restored".into()));
    // Most of the head is text and numbers that may be anything; both outcomes must have been tried.
    assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused");
}

#[test]
fn cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.gguf");
    let original = fs::read(MODEL).unwrap();
    fs::write(&path, &original).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let head = gguf.tensors().iter().map(|t| t.offset).min().unwrap() as usize;
    let end = gguf.tensors().iter().map(|t| t.offset + t.bytes).max().unwrap() as usize;
    drop(gguf);

    let mut random = Random(Rng::new(7));
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut lengths: Vec<usize> = (0..1500).map(|_| random.below(head)).collect();
    lengths.extend((0..500).map(|_| random.below(end)));
    lengths.push(end - 1);
    // Only ever shorter, so that the file never has to be written again.
    lengths.sort_unstable();
    for &len in lengths.iter().rev() {
        file.set_len(len as u64).unwrap();
        assert!(!opens(&path, len, &|| format!("cut to {len} bytes")), "opened when cut to {len} bytes");
    }
}

fn head(tensors: u64, keys: u64) -> Vec<u8> {
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend(tensors.to_le_bytes());
    file.extend(keys.to_le_bytes());
    file
}

fn put_str(file: &mut Vec<u8>, s: &str) {
    file.extend((s.len() as u64).to_le_bytes());
    file.extend(s.as_bytes());
}

/// Opens a sound file that was made to cost as much memory as it can.
fn costs(file: Vec<u8>, times: usize) {
    let len = file.len();
    let (gguf, peak) = measured(|| Gguf::from_bytes("costly", file));
    touch(&gguf.unwrap());
    assert!(peak <= times * len, "{peak} bytes allocated for a file of {len}");
}

#[test]
fn a_hundred_thousand_tiny_keys() {
    let mut file = head(0, 100_000);
    for i in 0..100_000 {
        put_str(&mut file, &format!("{i:x}"));
        file.extend([0, 0, 0, 0, 1]);
    }
    costs(file, 12);
}

#[test]
fn a_hundred_thousand_tiny_tensors() {
    let mut file = head(100_000, 1);
    put_str(&mut file, "general.alignment");
    file.extend([4, 0, 0, 0, 1, 0, 0, 0]);
    for i in 0..100_000u64 {
        put_str(&mut file, &format!("{i:x}"));
        file.extend(1u32.to_le_bytes());
        file.extend(1u64.to_le_bytes());
        file.extend(24u32.to_le_bytes());
        file.extend(i.to_le_bytes());
    }
    file.resize(file.len() + 100_000, 0);
    costs(file, 12);
}

#[test]
fn a_million_empty_strings() {
    let mut file = head(0, 1);
    put_str(&mut file, "s");
    file.extend([9, 0, 0, 0, 8, 0, 0, 0]);
    file.extend(1_000_000u64.to_le_bytes());
    file.resize(file.len() + 8_000_000, 0);
    costs(file, 1);
}

#[test]
fn a_byte_array_costs_a_byte_an_element() {
    let mut file = head(0, 1);
    put_str(&mut file, "s");
    file.extend([9, 0, 0, 0, 0, 0, 0, 0]);
    file.extend(8_000_000u64.to_le_bytes());
    file.resize(file.len() + 8_000_000, 7);
    let len = file.len();
    let (gguf, peak) = measured(|| Gguf::from_bytes("bytes", file));
    assert!(gguf.is_ok() && peak <= len + 4096 * 128, "{peak} bytes allocated for a file of {len}");
}
