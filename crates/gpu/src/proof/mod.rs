//! What a device proves before it is used: that the plain kernels are right on it, to rounding, and that a row has the
//! same bits in every form. Drivers differ in what they make of a shader, and none of that can be seen from the text.
//! The outcome is kept with that of the trial, so this is done once for a device, its driver and a version.

pub mod attention;
mod products;
pub mod stored;
pub mod unscaled;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Mutex,
};

use serde::{Deserialize, Serialize};

use self::attention::Case;
use super::{
    cache::DiskCache,
    device::{Found, Gpu},
    formats::BLOCK,
    harness::{Random, bind, numbers, run, storage},
    params::NormParams,
    pipelines::{Kernel, Pipelines},
    stored::Stored,
    variants::{Arith, Variants},
};
use crate::{Error, Result, kv_type::KvType};

/// Half a unit in the last place of 1.
pub const U: f64 = 1.0 / (1u64 << 24) as f64;

/// How a device did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// What its plain kernels get wrong.
    pub fault: Option<String>,
    /// Subnormal halves are zero to it, unless they are read by whole numbers.
    pub flushes_halves: bool,
    /// Norms that leave their scale to products give other bits where the products make them.
    pub norms_apart: bool,
}

impl Proof {
    /// Why the device is not used, if it is not.
    pub fn refusal(&self, found: &Found) -> Option<String> {
        let name = &found.info.name;
        let fault = self.fault.as_ref()?;
        Some(format!("{name}: its plain kernels are wrong ({fault}): another `device`, or `device` cpu"))
    }
}

/// How much is proven.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    All,
    /// A processor that plays a GPU compiles slowly, and is one that the tests run on.
    Least,
}

/// What the outcome for the plain kernels is kept as.
const PROOF: &str = "proof";

/// Room enough for all that is made.
pub const PROOF_BYTES: u64 = 64 << 20;

/// What this process knows, by shelf and name: not everybody keeps things.
static KNOWN: Mutex<Option<HashMap<(PathBuf, String), Proof>>> = Mutex::new(None);

/// Where nothing is kept, the shelf has a name all the same.
fn shelf_of(info: &wgpu::AdapterInfo, directory: Option<&Path>) -> DiskCache {
    DiskCache::new(directory.unwrap_or(Path::new("")), info)
}

fn recall(info: &wgpu::AdapterInfo, directory: Option<&Path>, name: &str) -> Option<Proof> {
    let shelf = shelf_of(info, directory);
    let known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    let remembered = known.as_ref().and_then(|known| known.get(&(shelf.id(), name.into()))).cloned();
    remembered.or_else(|| directory.and_then(|_| shelf.value(name)))
}

/// For this process.
fn remember(shelf: &DiskCache, name: &str, proof: &Proof) {
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    known.get_or_insert_default().insert((shelf.id(), name.into()), proof.clone());
}

/// How a device did earlier.
pub fn known(info: &wgpu::AdapterInfo, directory: Option<&Path>) -> Option<Proof> {
    recall(info, directory, PROOF)
}

/// How a device did earlier, or does now.
pub fn of(found: &Found, directory: Option<&Path>) -> Result<Proof> {
    known(&found.info, directory).map_or_else(|| again(found, directory), Ok)
}

/// How a device does now, which is kept; that it did not come to an end, when that happens again.
pub fn again(found: &Found, directory: Option<&Path>) -> Result<Proof> {
    now(found, directory, PROOF, || prove(found))
}

/// What a variant's kernels got wrong earlier, or by `find` now.
pub fn fault_of(
    found: &Found,
    directory: Option<&Path>,
    variants: Variants,
    find: impl FnOnce() -> Result<Option<String>>,
) -> Result<Option<String>> {
    let name = format!("{PROOF}-{variants}");
    let proof = match recall(&found.info, directory, &name) {
        Some(proof) => proof,
        None => now(found, directory, &name, || Ok(Proof { fault: find()?, ..Proof::default() }))?,
    };
    Ok(proof.fault)
}

fn now(
    found: &Found,
    directory: Option<&Path>,
    name: &str,
    prove: impl FnOnce() -> Result<Proof>,
) -> Result<Proof> {
    let shelf = shelf_of(&found.info, directory);
    let failed = format!("{name}-failed");
    let (proof, is_sure) = match prove() {
        Ok(proof) => (proof, true),
        // It refuses a kernel or is lost on the way, every time; or others had taken it or its memory, this time.
        Err(Error::Device(fault)) => {
            let again = directory.is_some() && shelf.value(&failed) == Some(true);
            (Proof { fault: Some(fault), ..Proof::default() }, again)
        }
        Err(e) => return Err(e),
    };
    remember(&shelf, name, &proof);
    if directory.is_some() {
        // Lost it costs time and nothing else.
        let _ = if is_sure { shelf.keep_value(name, &proof) } else { shelf.keep_value(&failed, &true) };
        if is_sure {
            shelf.forget(&failed);
        }
    }
    Ok(proof)
}

fn prove(found: &Found) -> Result<Proof> {
    let mut gpu = Gpu::open(found, PROOF_BYTES, false)?;
    let mut pipelines = Pipelines::with(Variants::PLAIN);
    let extent = if found.is_hardware() { Extent::All } else { Extent::Least };
    let mut fault = plain_fault(&gpu, &mut pipelines, extent)?;
    if fault.is_none() {
        fault = attention_fault(&gpu, &mut pipelines, extent)?;
        if fault.is_some() {
            gpu.flushes_halves = true;
            fault = attention_fault(&gpu, &mut Pipelines::with(Variants::PLAIN), extent)?;
        }
    }
    let norms_apart = fault.is_none()
        && unscaled::fault(&gpu, &mut pipelines, Variants::PLAIN.arith, extent == Extent::All)?.is_some();
    Ok(Proof { fault, flushes_halves: gpu.flushes_halves, norms_apart })
}

/// The first thing that is wrong with the plain kernels but attention.
fn plain_fault(gpu: &Gpu, pipelines: &mut Pipelines, extent: Extent) -> Result<Option<String>> {
    let norm = norm_fault(gpu, pipelines)?;
    if norm.is_some() {
        return Ok(norm);
    }
    let product = products::fault(gpu, pipelines, extent)?;
    if product.is_some() {
        return Ok(product);
    }
    stored::fault(gpu, pipelines, extent)
}

/// A NaN is more than anything.
pub fn is_more(off: f64, limit: f64) -> bool {
    off.is_nan() || off > limit
}

pub fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Of rows for products that take them as they are, and for those of the plain kernels, which want sums too.
fn norm_fault(gpu: &Gpu, pipelines: &mut Pipelines) -> Result<Option<String>> {
    const DIM: usize = 4096;
    let mut random = Random::new(31);
    let (x, weight, eps) = (random.floats(DIM), random.floats(DIM), 1e-5f32);
    let params = NormParams { dim: DIM as u32, stride: DIM as u32 / 4, eps, ..NormParams::default() };
    let square: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / DIM as f64;
    let scale = 1.0 / (square + f64::from(eps)).sqrt();
    let (rows, h) = (storage(gpu, &[0; 16])?, numbers(gpu, &vec![0.0; DIM])?);
    let (weights, row) = (numbers(gpu, &weight)?, numbers(gpu, &x)?);
    let summed_len = 4 * Arith::Summed.block_quads() * DIM / BLOCK;
    let summed = numbers(gpu, &vec![0.0; summed_len])?;
    for kernel in [Kernel::Norm(Arith::Float), Kernel::Norm(Arith::Summed)] {
        let buffers = [&rows, &weights, &row, &h, &summed];
        let buffers = buffers.map(|b| &b.buffer);
        let buffers = &buffers[..kernel.bindings().0.len()];
        let bound = bind(gpu, pipelines, kernel, &params, buffers)?;
        let got = run(gpu, pipelines, &[(kernel, bound, [1, 1, 1])], &h.buffer, DIM)?;
        for ((&got, &x), &weight) in got.iter().zip(&x).zip(&weight) {
            let want = f64::from(x) * scale * f64::from(weight);
            // Half of the roundings of a sum over a thread's numbers and over the threads reach the root; WGSL divides
            // within 2.5 units.
            let limit = (DIM as f64 / 8.0 + 16.0) * U * want.abs() + 1e-30;
            if is_more((f64::from(got) - want).abs(), limit) {
                return Ok(Some(format!("norms: {got} for {want}")));
            }
        }
        if kernel == Kernel::Norm(Arith::Summed) {
            let summed = run(gpu, pipelines, &[], &summed.buffer, summed_len)?;
            return Ok(sums_fault(&got, &summed).map(|fault| format!("norms with sums: {fault}")));
        }
    }
    Ok(None)
}

/// What is wrong with blocks of numbers and the sums of their halves.
fn sums_fault(numbers: &[f32], summed: &[f32]) -> Option<String> {
    let blocks = numbers.as_chunks::<BLOCK>().0.iter().zip(summed.as_chunks::<{ BLOCK + 4 }>().0);
    for (numbers, summed) in blocks {
        let (copied, sums) = summed.split_at(BLOCK);
        if !same_bits(numbers, copied) {
            return Some("other numbers than those of the row".into());
        }
        let (first, second) = numbers.split_at(BLOCK / 2);
        for (&got, part) in sums.iter().zip([first, second, &numbers[..]]) {
            let want: f64 = part.iter().map(|&x| f64::from(x)).sum();
            let size: f64 = part.iter().map(|&x| f64::from(x).abs()).sum();
            // A tree of 4 levels for each half, and both.
            if is_more((f64::from(got) - want).abs(), 6.0 * U * size) {
                return Some(format!("{got} for {want}"));
            }
        }
    }
    None
}

/// A long context and a short one in each form; some of the values are subnormal halves.
fn attention_fault(gpu: &Gpu, pipelines: &mut Pipelines, extent: Extent) -> Result<Option<String>> {
    const LENS: [usize; 2] = [300, 17];
    let stored = Stored { keys: KvType::F16, values: KvType::F16 };
    let case = Case::new(4, 1, 64, stored, LENS.len()).with_small_values();
    let whole = case.run(gpu, pipelines, &LENS, (false, false))?;
    if let Some(fault) = case.fault(&whole, &LENS) {
        return Ok(Some(format!("attention: {fault}")));
    }
    let forms = [(true, false), (false, true), (true, true)];
    for &(split, shared) in if extent == Extent::All { &forms[..] } else { &forms[..1] } {
        let other = case.run(gpu, pipelines, &LENS, (split, shared))?;
        if !same_bits(&whole, &other) {
            let form = [split.then_some("split"), shared.then_some("shared")];
            let form = form.into_iter().flatten().collect::<Vec<_>>().join(" and ");
            return Ok(Some(format!("attention: other bits where it is {form}")));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        formats::Format,
        pipelines::Mode,
        tests::{adapter, gpu},
    };

    fn found_fault(gpu: &Gpu, edit: Option<fn(Kernel, String) -> String>) -> Option<String> {
        let mut pipelines = Pipelines::edited(Variants::PLAIN, edit);
        let plain = plain_fault(gpu, &mut pipelines, Extent::All).unwrap();
        plain.or_else(|| attention_fault(gpu, &mut pipelines, Extent::All).unwrap())
    }

    /// Text that must be there.
    fn changed(text: &str, from: &str, to: &str) -> String {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    }

    /// Somebody else may have had the device or all of its memory; what is wrong stays wrong.
    #[test]
    fn a_device_that_fails_once_is_tried_again_by_the_next_run() {
        let Some(found) = adapter("a_device_that_fails_once_is_tried_again_by_the_next_run") else { return };
        let directory = tempfile::tempdir().unwrap();
        let directory = Some(directory.path());
        let run = |outcome: Result<Proof>| now(&found, directory, "a proof", || outcome).unwrap();
        let kept = || shelf_of(&found.info, directory).value::<Proof>("a proof");
        let busy = || Err(Error::Device("it is busy".into()));
        assert_eq!(run(busy()).fault.as_deref(), Some("it is busy"));
        assert_eq!(kept(), None);
        // It ended well in between.
        assert_eq!((run(Ok(Proof::default())).fault, kept()), (None, Some(Proof::default())));
        run(busy());
        assert_eq!(kept(), Some(Proof::default()));
        run(busy());
        assert_eq!(kept().unwrap().fault.as_deref(), Some("it is busy"));
        let wrong = Proof { fault: Some("seven times eight is 54".into()), ..Proof::default() };
        assert_eq!(run(Ok(wrong.clone())), wrong);
        assert_eq!(kept(), Some(wrong));
    }

    /// Kernels with a mistake each, of the kinds that compilers and drivers make.
    #[test]
    fn what_is_broken_is_found() {
        let Some(gpu) = gpu("what_is_broken_is_found") else { return };
        assert_eq!(found_fault(&gpu, None), None);
        type Break = fn(Kernel, String) -> String;
        let broken: [(&str, Break); 10] = [
            ("norms", |kernel, text| match kernel {
                Kernel::Norm(_) => changed(&text, "f32(p.dim)", "f32(p.dim - 1u)"),
                _ => text,
            }),
            ("norms with sums", |kernel, text| match kernel {
                Kernel::Norm(Arith::Summed) => changed(&text, "first + second, left", "first + first, left"),
                _ => text,
            }),
            ("batch of 3", |kernel, text| match kernel {
                Kernel::MatmulRows { columns: 3, .. } => {
                    changed(&text, "out = sum;", "out = sum * 1.0000001;")
                }
                _ => text,
            }),
            ("Q6_K", |kernel, text| match kernel {
                Kernel::MatmulTile { format: Format::Q6_K, .. } => {
                    changed(&text, "out = sum;", "out = select(sum, 0.0, row == 0u);")
                }
                _ => text,
            }),
            ("share a tile", |kernel, text| match kernel {
                Kernel::MatmulJoin { .. } => changed(&text, "lane < LANES", "lane < LANES - 1u"),
                _ => text,
            }),
            ("gate", |kernel, text| match kernel {
                Kernel::MatmulTile { mode: Mode::Gate(_), .. } => changed(
                    &text,
                    "return activated(ACTIVATION, both.x",
                    "return activated(ACTIVATION, -both.x",
                ),
                _ => text,
            }),
            ("coarse", |kernel, text| match kernel {
                Kernel::MatmulTile { coarse: true, .. } => changed(&text, "out = sum;", "out = sum * 1.01;"),
                _ => text,
            }),
            ("stored as it is multiplied", |kernel, text| match kernel {
                Kernel::StoreRows { .. } => changed(&text, "x.y * turn.x)", "x.y * turn.x + 1e-7)"),
                _ => text,
            }),
            ("split", |kernel, text| match kernel {
                Kernel::AttendJoin(_) => changed(&text, "all.v * joined.keep", "all.v"),
                _ => text,
            }),
            ("attention", flushing),
        ];
        for (what, edit) in broken {
            let fault = found_fault(&gpu, Some(edit)).unwrap_or_else(|| panic!("{what} is broken"));
            println!("{fault}");
            assert!(fault.contains(what), "{what}: {fault}");
        }
    }

    /// Then norms are dispatches of their own.
    #[test]
    fn norms_that_products_get_wrong_are_found() {
        let Some(mut gpu) = gpu("norms_that_products_get_wrong_are_found") else { return };
        gpu.tuning.norms_in_products = 8;
        type Break = fn(Kernel, String) -> String;
        let broken: [(&str, Break); 4] = [
            ("in a product", |kernel, text| match kernel {
                Kernel::AddRows { .. } => changed(&text, "x * norm_weight", "1.0000001 * x * norm_weight"),
                _ => text,
            }),
            ("in a product", |kernel, text| match kernel {
                Kernel::AddRows { .. } => changed(&text, "select(0.0, p.eps, in_row == 0u)", "p.eps"),
                _ => text,
            }),
            ("of many rows", |kernel, text| match kernel {
                Kernel::MatmulTile { scales: true, .. } => {
                    changed(&text, "kept(sums * scale)", "kept(sums * (scale * 1.0000001))")
                }
                _ => text,
            }),
            ("for", |_, text| text.replace("return inverseSqrt(", "return 1.01 * inverseSqrt(")),
        ];
        for (what, edit) in broken {
            let mut pipelines = Pipelines::edited(Variants::PLAIN, Some(edit));
            let fault = unscaled::fault(&gpu, &mut pipelines, Arith::Summed, false).unwrap();
            let fault = fault.unwrap_or_else(|| panic!("{what}: not found"));
            println!("{fault}");
            assert!(fault.contains(what), "{what}: {fault}");
        }
    }

    /// As on a device that takes subnormal halves for zero.
    fn flushing(_: Kernel, text: String) -> String {
        let flushed =
            "let x = unpack2x16float(word); return select(x, vec2<f32>(0.0), abs(x) < vec2<f32>(6.1e-5));";
        text.replace("return unpack2x16float(word);", flushed)
    }

    /// Where the device does not see them, they are read by whole numbers.
    #[test]
    fn subnormal_halves_are_read_on_any_device() {
        let Some(mut gpu) = gpu("subnormal_halves_are_read_on_any_device") else { return };
        for (flushes_halves, is_found) in [(false, true), (true, false)] {
            gpu.flushes_halves = flushes_halves;
            let mut pipelines = Pipelines::edited(Variants::PLAIN, Some(flushing));
            let fault = attention_fault(&gpu, &mut pipelines, Extent::Least).unwrap();
            assert_eq!(fault.is_some(), is_found, "{fault:?}");
        }
    }

    /// In this process and from run to run.
    #[test]
    fn an_outcome_is_kept() {
        let Some(found) = adapter("an_outcome_is_kept") else { return };
        let directory = tempfile::tempdir().unwrap();
        let directory = Some(directory.path());
        let started = std::time::Instant::now();
        let proof = of(&found, directory).unwrap();
        println!("{proof:?} in {:?}", started.elapsed());
        assert_eq!(proof.fault, None);
        let shelf = shelf_of(&found.info, directory);
        assert_eq!(shelf.value(PROOF), Some(proof));
        let faulty = Proof { fault: Some("seven times eight is 54".into()), ..Proof::default() };
        shelf.keep_value(PROOF, &faulty).unwrap();
        KNOWN.lock().unwrap().as_mut().unwrap().remove(&(shelf.id(), PROOF.into()));
        assert_eq!(of(&found, directory).unwrap(), faulty);
        let message = faulty.refusal(&found).unwrap();
        assert!(message.contains("54") && message.lines().count() == 1, "{message}");
    }
}
