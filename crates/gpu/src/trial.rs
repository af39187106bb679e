//! A short trial of the variants that a device offers. One is used if its results are those of the plain kernels up to
//! rounding, if a row has the same bits in every regime, and if it is faster.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{
    cache::DiskCache,
    clock::{Clock, Work},
    device::{Found, Gpu},
    formats::{BLOCK, Format},
    harness::{Dispatch, How, Matrix, Random, Scratch, blocks, numbers, plain, scratch},
    pipelines::{Curve, Mode, Pipelines},
    proof::{self, PROOF_BYTES, Proof, is_more, same_bits},
    speeds,
    tuning::{FEW_ROWS, Tiles, Tuning},
    variants::{Arith, Variants},
};
use crate::{
    Error, Result,
    backend::{
        Speeds,
        gpu::{Chosen, GpuVariant},
    },
    quant::{GgmlType, dequantize},
    words::count,
};

/// A variant must be this much faster to be used, because it changes bits.
const WORTH: f64 = 1.05;
/// No regime may be slower than this.
const LEAST: f64 = 0.95;

/// Weights in a row of the matrices that are tried.
const K: usize = 4096;

/// How one variant did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    pub variant: String,
    /// Plain time over its time, for each thing that was timed.
    pub faster: Vec<(String, f64)>,
    /// What it got wrong.
    pub fault: Option<String>,
    pub used: bool,
}

/// How a trial ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialOutcome {
    pub scores: Vec<Score>,
}

const OUTCOME: &str = "trial of four";
/// What was being tried, in case it ends the program, and the trials in which the device failed.
const UNDER_WAY: &str = "trying";
/// So many trials of a variant that did not come to an end are the driver's fault. One may have been stopped by hand, or
/// others had taken the device or its memory.
const PATIENCE: usize = 2;

/// Enough memory for a trial alone.
pub const TRIAL_BYTES: u64 = 1 << 30;

/// From what was asked for to what is used, on a device that proves itself. What earlier runs found out is kept in
/// `directory`; where nothing is, `trying` is told and all is tried now, within `budget` bytes of the device's memory.
pub fn choose(
    wanted: GpuVariant,
    found: &Found,
    directory: Option<&Path>,
    budget: u64,
    trying: &dyn Fn(),
) -> Result<Chosen> {
    let shelf = directory.map(|directory| DiskCache::new(directory, &found.info));
    let proof = match proof::of(found, directory) {
        // Not enough memory for a proof. Its buffers are small, so opening the model will fail with an error soon.
        Err(Error::Memory(_)) => Proof::default(),
        proof => proof?,
    };
    let refusal = proof.refusal(found);
    if refusal.is_some() {
        return Ok(Chosen { refusal, ..Chosen::default() });
    }
    let speeds = shelf.as_ref().and_then(speeds::recall);
    if wanted != GpuVariant::Tried {
        let variants = Variants::of(wanted);
        variants.check(found)?;
        vouch(found, variants, directory)?;
        return Ok(Chosen { variant: variants.name(), speeds, refusal });
    }
    let known = shelf.as_ref().and_then(TrialOutcome::recall).map(|outcome| outcome.chosen());
    if let Some(variants) = known.filter(|variants| variants.check(found).is_ok()) {
        return Ok(Chosen { variant: variants.name(), speeds, refusal });
    }
    trying();
    match try_all(found, budget.min(TRIAL_BYTES), shelf.as_ref()) {
        Ok((outcome, speeds)) => Ok(Chosen { variant: outcome.chosen().name(), speeds, refusal }),
        // Not enough memory to try anything: the plain kernels are used.
        Err(Error::Memory(_)) => Ok(Chosen { speeds, ..Chosen::default() }),
        Err(e) => Err(e),
    }
}

/// What is known of a device from earlier runs, if that is kept in `directory`.
pub fn tried(directory: &Path, found: &Found) -> (Option<TrialOutcome>, Option<Speeds>) {
    let shelf = DiskCache::new(directory, &found.info);
    let refused = proof::known(&found.info, Some(directory)).and_then(TrialOutcome::refused);
    (refused.or_else(|| TrialOutcome::recall(&shelf)), speeds::recall(&shelf))
}

/// Tries the variants of a device now, measures it, and keeps the outcome.
pub fn try_now(directory: Option<&Path>, found: &Found) -> Result<(TrialOutcome, Option<Speeds>)> {
    let shelf = directory.map(|directory| DiskCache::new(directory, &found.info));
    shelf.iter().for_each(|shelf| shelf.forget(UNDER_WAY));
    if let Some(refused) = TrialOutcome::refused(proof::again(found, directory)?) {
        return Ok((refused, None));
    }
    try_all(found, TRIAL_BYTES, shelf.as_ref())
}

impl TrialOutcome {
    /// What was found out in an earlier run; nothing where that tried variants that there are no more.
    fn recall(shelf: &DiskCache) -> Option<Self> {
        let is_tried = |score: &Score| TRIED.iter().any(|v| v.to_string() == score.variant);
        shelf.value(OUTCOME).filter(|outcome: &Self| outcome.scores.iter().all(is_tried))
    }

    /// Nothing is tried where not even the plain kernels are right.
    fn refused(proof: Proof) -> Option<Self> {
        let fault = proof.fault?;
        Some(TrialOutcome { scores: vec![Score::wrong(Variants::PLAIN, fault)] })
    }

    /// Whether the device is not used.
    pub fn is_refused(&self) -> bool {
        self.scores.iter().any(|score| score.variant == Variants::PLAIN.to_string() && score.fault.is_some())
    }

    /// What is used of what was tried.
    fn decided(mut scores: Vec<Score>) -> Self {
        scores.iter_mut().for_each(|score| score.used = score.is_worth_it());
        // Of several ways to multiply the fastest.
        let best = scores.iter().filter(|s| s.used).max_by(|a, b| a.mean().total_cmp(&b.mean()));
        let best = best.map(|s| s.variant.clone());
        for score in &mut scores {
            score.used = best.as_ref() == Some(&score.variant);
        }
        TrialOutcome { scores }
    }

    pub fn chosen(&self) -> Variants {
        let used =
            |variant: &Variants| self.scores.iter().any(|s| s.used && s.variant == variant.to_string());
        TRIED.into_iter().find(used).unwrap_or_default()
    }
}

impl Score {
    fn of(variants: Variants) -> Self {
        Score { variant: variants.to_string(), faster: Vec::new(), fault: None, used: false }
    }

    fn wrong(variants: Variants, fault: String) -> Self {
        Score { fault: Some(fault), ..Score::of(variants) }
    }

    fn faster_by(&self, name: &str) -> Option<f64> {
        self.faster.iter().find(|(what, _)| what == name).map(|&(_, ratio)| ratio)
    }

    /// The geometric mean of the ratios.
    fn mean(&self) -> f64 {
        (self.faster.iter().map(|(_, r)| r.ln()).sum::<f64>() / self.faster.len().max(1) as f64).exp()
    }

    fn is_worth_it(&self) -> bool {
        self.fault.is_none() && self.mean() >= WORTH && self.faster.iter().all(|&(_, r)| r >= LEAST)
    }

    /// In words.
    pub fn describe(&self) -> String {
        let ratios: Vec<_> = self.faster.iter().map(|(what, r)| format!("{what} {r:.2}")).collect();
        let verdict = match (&self.fault, self.used) {
            (Some(fault), _) => format!("wrong ({fault}), not used"),
            (None, true) => "used".into(),
            (None, false) => "not used".into(),
        };
        match ratios.is_empty() {
            true => format!("{}: {verdict}", self.variant),
            false => format!("{}: times as fast as plain: {}; {verdict}", self.variant, ratios.join(", ")),
        }
    }
}

const TRIED: [Variants; 2] = [Variants::DOT4, Variants::COOP];

/// Tries what the device offers and measures it. What is kept costs only time when it is lost, so nothing is said
/// where it cannot be written.
fn try_all(found: &Found, budget: u64, shelf: Option<&DiskCache>) -> Result<(TrialOutcome, Option<Speeds>)> {
    let speeds = speeds::measure(found, budget, shelf)?;
    let mut scores: Vec<Score> = Vec::new();
    let mut is_sure = true;
    for variants in TRIED {
        // Cooperative matrices are for the tiles of dot4, so they are of no use without it.
        let dot4 = scores.iter().find(|score| score.variant == Variants::DOT4.to_string());
        let like = dot4.filter(|_| variants == Variants::COOP);
        if variants.check(found).is_ok() && like.is_none_or(|dot4| dot4.fault.is_none()) {
            // On a device of its own: a variant that breaks it, and the features it asks for, do not affect the others.
            let tried = guarded(shelf, variants, || {
                try_arith(&Gpu::open_for(found, budget, false, variants)?, variants, like)
            })?;
            is_sure &= tried.is_sure;
            scores.push(tried.score);
        }
    }
    Ok((concluded(shelf, scores, is_sure), speeds))
}

/// What is used for now, and by later runs where it is sure.
fn concluded(shelf: Option<&DiskCache>, scores: Vec<Score>, is_sure: bool) -> TrialOutcome {
    let outcome = TrialOutcome::decided(scores);
    if let Some(shelf) = shelf.filter(|_| is_sure) {
        let _ = shelf.keep_value(OUTCOME, &outcome);
        shelf.forget(UNDER_WAY);
    }
    outcome
}

/// How a trial of a variant ended.
struct Tried {
    score: Score,
    /// The outcome was caused by the variant, not by other work on the device.
    is_sure: bool,
}

/// Runs a trial that a bad driver may end together with the program, or by an error each time; then it is not tried for
/// ever. A first error of the device is for the next run to try again.
fn guarded(
    shelf: Option<&DiskCache>,
    variants: Variants,
    try_it: impl FnOnce() -> Result<Score>,
) -> Result<Tried> {
    let name = variants.to_string();
    let before: Vec<String> = shelf.and_then(|shelf| shelf.value(UNDER_WAY)).unwrap_or_default();
    let failures = before.iter().filter(|&other| *other == name).count();
    if failures >= PATIENCE {
        let fault = "earlier trials of it did not end";
        return Ok(Tried { score: Score::wrong(variants, fault.into()), is_sure: true });
    }
    let keep = |names: &[String]| shelf.map(|shelf| shelf.keep_value(UNDER_WAY, &names));
    let _ = keep(&[&before[..], &[name]].concat());
    let tried = try_it();
    if let Err(Error::Device(fault)) = tried {
        return Ok(Tried { score: Score::wrong(variants, fault), is_sure: failures + 1 >= PATIENCE });
    }
    let _ = keep(&before);
    Ok(Tried { score: tried?, is_sure: true })
}

/// Asked for by name, variants must prove themselves too.
fn vouch(found: &Found, variants: Variants, directory: Option<&Path>) -> Result<()> {
    if variants == Variants::PLAIN {
        return Ok(());
    }
    let fault = proof::fault_of(found, directory, variants, || {
        let gpu = Gpu::open_for(found, PROOF_BYTES, false, variants)?;
        let (mut plain, mut pipelines) = (Pipelines::with(Variants::PLAIN), Pipelines::with(variants));
        find_fault(&gpu, variants.arith, &mut plain, &mut pipelines)
    })?;
    match fault {
        None => Ok(()),
        Some(fault) => Err(Error::Device(format!(
            "{}: `gpu_variant` {variants}: its kernels are wrong here ({fault}); plain ones are right",
            found.info.name
        ))),
    }
}

/// Numbers of rows that are tried, and what the ratios are called. Tiles are for more rows than are multiplied in turns.
fn regimes(tuning: &Tuning) -> Vec<(usize, String)> {
    let many = 2 * tuning.rows_in_turns as usize;
    let numbers = [1, 4, 64].into_iter().chain((many > 64).then_some(many));
    numbers.map(|rows| (rows, count(rows, "row"))).collect()
}

fn how(columns: usize, arith: Arith) -> How<'static> {
    How { arith, ..plain(columns, columns > FEW_ROWS) }
}

/// `like`: the outcome of kernels that differ in tiles only.
fn try_arith(gpu: &Gpu, variants: Variants, like: Option<&Score>) -> Result<Score> {
    let (mut plain, mut pipelines) = (Pipelines::with(Variants::PLAIN), Pipelines::with(variants));
    if let Some(fault) = find_fault(gpu, variants.arith, &mut plain, &mut pipelines)? {
        return Ok(Score::wrong(variants, fault));
    }
    let mut score = Score::of(variants);
    let matrix = big_matrix(gpu, Format::Q4_0)?;
    let regimes = regimes(&gpu.tuning);
    let most = regimes.iter().map(|(columns, _)| *columns).max().unwrap_or(1);
    let x = Random::new(1).floats(most * K);
    let (x, y) = (matrix.input(gpu, &x, most)?, scratch(gpu, (4 * most * matrix.rows) as u64)?);
    let scratch_for = |arith| matrix.scratch_for(gpu, arith, most);
    let (ready_plain, ready) = (scratch_for(Variants::PLAIN.arith)?, scratch_for(variants.arith)?);
    let none = numbers(gpu, &[0.0])?;
    let clock = Clock::new(gpu)?;
    for (columns, name) in regimes {
        let in_turns = gpu.tuning.takes_turns(columns);
        let known = like.filter(|_| in_turns).and_then(|like| like.faster_by(&name));
        if let Some(ratio) = known {
            score.faster.push((name, ratio));
            continue;
        }
        let all = |pipelines: &Pipelines, arith, ready: &Scratch| -> Result<Vec<Dispatch>> {
            // As a pass would take them.
            let tiles = Tiles::of(matrix.format, arith, pipelines.variants().coop);
            let wide = !in_turns && tiles == Tiles::Wide && gpu.tuning.wide;
            let how = How { wide, tile: !in_turns, ..how(columns, arith) };
            let mut all = vec![matrix.prepare(gpu, pipelines, &x, ready, &how)?];
            all.extend(matrix.multiply(gpu, pipelines, ready, &y, &none, &how)?);
            Ok(all)
        };
        let base = all(&plain, Variants::PLAIN.arith, &ready_plain)?;
        let tried = all(&pipelines, variants.arith, &ready)?;
        let base = Work { pipelines: &mut plain, what: &base };
        let ratio = clock.ratio(base, Work { pipelines: &mut pipelines, what: &tried })?;
        score.faster.push((name, ratio));
    }
    Ok(score)
}

/// The first thing that a way of multiplying gets wrong.
fn find_fault(
    gpu: &Gpu,
    arith: Arith,
    plain: &mut Pipelines,
    pipelines: &mut Pipelines,
) -> Result<Option<String>> {
    for ty in [GgmlType::Q4_0, GgmlType::Q8_0, GgmlType::Q4_K, GgmlType::Q6_K] {
        let fault = compare_products(gpu, ty, arith, plain, pipelines)?;
        if fault.is_some() {
            return Ok(fault);
        }
    }
    proof::unscaled::fault(gpu, pipelines, arith, gpu.info.device_type != wgpu::DeviceType::Cpu)
}

/// One that no cache of the device holds, within what may be taken; what is in it does not matter. Processors that
/// play a GPU get a small one.
fn big_matrix(gpu: &Gpu, format: Format) -> Result<Matrix<'_>> {
    let most = if gpu.info.device_type == wgpu::DeviceType::Cpu { 1 << 20 } else { 128 << 20 };
    let most = most.min(gpu.left() / 4).min(gpu.binding_bytes());
    let rows = (most as usize / format.bytes(K / BLOCK)).clamp(64, 60_000) / 64 * 64;
    Matrix::empty(gpu, format, rows, K / BLOCK)
}

/// What differs more than rounding explains between a variant and the plain kernels, or between its own regimes.
fn compare_products(
    gpu: &Gpu,
    ty: GgmlType,
    arith: Arith,
    plain: &mut Pipelines,
    pipelines: &mut Pipelines,
) -> Result<Option<String>> {
    const ROWS: usize = 66;
    const COLUMNS: usize = 64;
    let mut random = Random::new(ty as u64);
    let bytes = blocks(&mut random, ty, ROWS * K / ty.block_len());
    let matrix = Matrix::new(gpu, ty, &bytes, ROWS, K)?;
    let x = random.floats(COLUMNS * K);
    let base = matrix.product(gpu, plain, &x, &how(COLUMNS, Variants::PLAIN.arith))?;
    let tried = matrix.product(gpu, pipelines, &x, &how(COLUMNS, arith))?;
    let mut w = vec![0.0; ROWS * K];
    dequantize(ty, &bytes, &mut w);
    // Activations are rounded to a step, which is a 254th of the largest of its block, here at most 1; sums err at
    // random, so six times what they err on the average is never seen.
    let step = 1.0 / 254.0;
    for (i, (a, b)) in base.iter().zip(&tried).enumerate() {
        let row = &w[i % ROWS * K..][..K];
        let size = row.iter().map(|&w| f64::from(w).powi(2)).sum::<f64>().sqrt();
        let off = f64::from((a - b).abs());
        if is_more(off, 6.0 * step * size) {
            return Ok(Some(format!("{ty}: {b} for {a}")));
        }
    }
    // Those of one format have all numbers of columns; the kernels of the others differ in what they load.
    let all: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
    let of_one = How { columns: 1, tile: false, ..how(COLUMNS, arith) };
    let mut kinds = vec![(of_one, if ty == GgmlType::Q4_0 { &all[..] } else { &[1, 4] })];
    kinds.extend(
        (ty == GgmlType::Q4_0).then_some((How { mode: Mode::Gate(Curve::Silu), ..of_one }, &[1][..])),
    );
    kinds.extend((ty == GgmlType::Q8_0).then_some((How { coarse: true, ..of_one }, &[1][..])));
    for (kind, few) in kinds {
        let many = How { columns: COLUMNS, tile: true, ..kind };
        let tiles = match (kind.mode, kind.coarse) {
            (Mode::Store, false) => tried.clone(),
            _ => matrix.product(gpu, pipelines, &x, &many)?,
        };
        for &columns in few {
            let some = matrix.product(gpu, pipelines, &x[..columns * K], &How { columns, ..kind })?;
            if !same_bits(&some, &tiles[..some.len()]) {
                return Ok(Some(format!("{ty}: other bits in a batch of {columns}")));
            }
        }
    }
    // Other ways to cut the same product.
    let shared = How { share: 2, ..how(COLUMNS, arith) };
    let wide = How { wide: true, ..how(COLUMNS, arith) };
    let turned = How { tile: false, ..how(COLUMNS, arith) };
    for (name, how) in [("shared tiles", shared), ("wide tiles", wide), ("rows in turns", turned)] {
        if how.wide && !(gpu.tuning.wide && matrix.format.description().fits_wide_tiles) {
            continue;
        }
        let other = matrix.product(gpu, pipelines, &x, &how)?;
        if !same_bits(&other, &tried) {
            return Ok(Some(format!("{ty}: other bits in {name}")));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(variant: &str, faster: &[f64], fault: Option<&str>) -> Score {
        let faster = faster.iter().map(|&r| ("it".to_string(), r)).collect();
        Score { variant: variant.into(), faster, fault: fault.map(Into::into), used: false }
    }

    fn chosen(scores: &[Score]) -> String {
        TrialOutcome::decided(scores.to_vec()).chosen().to_string()
    }

    #[test]
    fn what_is_right_and_faster_is_used() {
        let dot4 = |faster: &[f64]| score("dot4", faster, None);
        assert_eq!(chosen(&[]), "plain");
        assert_eq!(chosen(&[dot4(&[1.2, 1.1, 1.3])]), "dot4");
        // Not worth other bits; slower somewhere; wrong.
        assert_eq!(chosen(&[dot4(&[1.0, 1.1, 1.0])]), "plain");
        assert_eq!(chosen(&[dot4(&[0.9, 3.0, 3.0])]), "plain");
        assert_eq!(chosen(&[score("dot4", &[2.0, 2.0, 2.0], Some("other bits"))]), "plain");
        // The fastest of the ways to multiply.
        let coop = |tiles: f64| score("coop", &[1.2, 1.1, tiles], None);
        assert_eq!(chosen(&[dot4(&[1.2, 1.1, 1.3]), coop(2.0)]), "coop");
        assert_eq!(chosen(&[dot4(&[1.2, 1.1, 1.3]), coop(1.2)]), "dot4");
    }

    /// What ends the program twice is given up, and nothing else with it.
    #[test]
    fn a_trial_that_never_ends_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = DiskCache::at(directory.path(), "a device");
        let shelf = Some(&shelf);
        let crash = |variants| {
            let unwound = std::panic::catch_unwind(|| {
                guarded(shelf, variants, || panic!("as if the driver had ended the program"))
            });
            assert!(unwound.is_err(), "it was tried");
        };
        let fine = |variants| guarded(shelf, variants, || Ok(Score::of(variants))).unwrap().score.fault;
        crash(Variants::DOT4);
        assert_eq!((fine(Variants::COOP), fine(Variants::DOT4)), (None, None), "once may be by hand");
        crash(Variants::COOP);
        crash(Variants::DOT4);
        assert_eq!(fine(Variants::COOP), None);
        let given_up = fine(Variants::DOT4).expect("not tried a third time");
        assert!(given_up.contains("did not end"), "{given_up}");
    }

    /// Somebody else may have had the device or all of its memory; what fails each time is no variant to use.
    #[test]
    fn a_variant_that_a_device_fails_at_once_is_tried_again_by_the_next_run() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = DiskCache::at(directory.path(), "a device");
        let run = |outcome: Result<Score>| {
            let Tried { score, is_sure } = guarded(Some(&shelf), Variants::DOT4, || outcome).unwrap();
            let used = concluded(Some(&shelf), vec![score], is_sure).chosen().to_string();
            (used, TrialOutcome::recall(&shelf).map(|kept| kept.scores[0].fault.clone()))
        };
        let lost = || Err(Error::Device("it was lost".into()));
        let fast = || Ok(score("dot4", &[1.5], None));
        assert_eq!(run(lost()), ("plain".into(), None));
        assert_eq!(run(fast()), ("dot4".into(), Some(None)), "what was before is forgotten");
        shelf.forget(OUTCOME);
        assert_eq!(run(lost()), ("plain".into(), None));
        assert_eq!(run(lost()), ("plain".into(), Some(Some("it was lost".into()))));
        shelf.forget(OUTCOME);
        let wrong = Ok(score("dot4", &[], Some("other bits")));
        assert_eq!(run(wrong), ("plain".into(), Some(Some("other bits".into()))), "at once");
    }

    /// What an earlier version tried, and what there is no more, is tried again.
    #[test]
    fn an_outcome_with_variants_that_are_gone_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = DiskCache::at(directory.path(), "a device");
        let keep = |variants: &[&str]| {
            let scores = variants.iter().map(|variant| score(variant, &[1.5], None)).collect();
            shelf.keep_value(OUTCOME, &TrialOutcome::decided(scores)).unwrap();
            TrialOutcome::recall(&shelf).map(|outcome| outcome.chosen().to_string())
        };
        assert_eq!(keep(&["dot4"]).as_deref(), Some("dot4"));
        assert_eq!(keep(&["subgroups", "dot4", "f16"]), None);
    }
}
