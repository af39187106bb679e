//! `spec-run devices`: which adapters there are, and what of them would be used.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::{common, device_args, failure};
use crate::{
    Result,
    backend::Speeds,
    gpu::{Found, TrialOutcome, adapters, tried, try_now},
};

#[derive(Args, Debug)]
pub struct DevicesArgs {
    /// Try now which kernels are right and fastest on each GPU, as a first run does
    #[arg(long = "try")]
    try_now: bool,
    /// Where the outcome is kept; none keeps nothing [default: the user's cache directory]
    #[arg(long, value_name = "DIR")]
    gpu_cache: Option<PathBuf>,
    /// One JSON object on stdout instead of text
    #[arg(long)]
    json: bool,
}

pub fn run(args: DevicesArgs) -> Result<()> {
    let all = adapters();
    let cache = device_args::gpu_cache(args.gpu_cache.as_deref());
    let known = all.iter().map(|found| known(found, &args, cache.as_deref())).collect::<Result<Vec<_>>>()?;
    let is_refused = |i: usize| known[i].0.as_ref().is_some_and(TrialOutcome::is_refused);
    let usable: Vec<usize> =
        (0..all.len()).filter(|&i| all[i].is_hardware() && all[i].check().is_ok()).collect();
    let default = usable.iter().copied().find(|&i| !is_refused(i));
    if args.json {
        let list = all.iter().zip(&known).enumerate();
        let list: Vec<Value> =
            list.map(|(i, (found, known))| to_json(found, Some(i) == default, known)).collect();
        let default = default.map_or("cpu".to_string(), |i| all[i].info.name.clone());
        return common::print_json(&json!({"devices": list, "default": default}));
    }
    let mut text = String::new();
    for (i, found) in all.iter().enumerate() {
        let used = match found.check() {
            Err(e) => format!("cannot be used: {}", failure::message(&e)),
            Ok(()) if Some(i) == default => "used by default".into(),
            Ok(()) if is_refused(i) => {
                let instead = default.map_or("the CPU".into(), |i| all[i].describe());
                format!("not used, since its kernels are wrong: {instead} is used instead")
            }
            Ok(()) if !found.is_hardware() => "software: used only if named with --device".into(),
            Ok(()) => match all[..i].iter().find(|other| other.is_the_gpu_of(found)) {
                Some(other) => {
                    format!("the GPU of {} through another driver: used if named with --device", other.number)
                }
                None => "used if named with --device".into(),
            },
        };
        text += &describe(i, found, &used);
        text += &describe_known(&known[i]);
    }
    #[cfg(windows)]
    if let Some(why) = crate::gpu::why_no_dx12() {
        text += &format!("dx12: {why}\n");
    }
    text += &format!("cpu: the processor{}\n", if default.is_none() { ", used by default" } else { "" });
    common::print(text)
}

/// How the adapter's variants of kernels did, and how fast it is, if that is known.
type Known = (Option<TrialOutcome>, Option<Speeds>);

fn known(found: &Found, args: &DevicesArgs, cache: Option<&Path>) -> Result<Known> {
    if args.try_now && found.check().is_ok() {
        let (outcome, speeds) = try_now(cache, found)?;
        return Ok((Some(outcome), speeds));
    }
    Ok(cache.map_or((None, None), |directory| tried(directory, found)))
}

fn describe_known((outcome, speeds): &Known) -> String {
    let mut text = String::new();
    if let Some(Speeds { read, round_trip }) = speeds {
        let (gb, us) = (read / 1e9, 1e6 * round_trip);
        text += &format!("   reads its memory at {gb:.1} GB/s; a result takes {us:.0} us there and back\n");
    }
    match outcome {
        None => {
            text += "   kernels: not tried yet; the first run tries them, or `spec-run devices --try`\n";
        }
        Some(outcome) => {
            match outcome.is_refused() {
                true => text += "   kernels: none is right\n",
                false => text += &format!("   kernels: {}\n", outcome.chosen()),
            }
            outcome.scores.iter().for_each(|score| text += &format!("      {}\n", score.describe()));
            if outcome.scores.iter().any(|score| score.fault.is_some()) {
                text += "      `spec-run devices --try` tries again\n";
            }
        }
    }
    text
}

fn describe(number: usize, found: &Found, used: &str) -> String {
    let limits = &found.limits;
    let mib = |bytes: u64| bytes >> 20;
    let free = |bytes: u64| format!(" ({} MiB of it free)", mib(bytes));
    let memory = found.memory.map_or("memory unknown".into(), |memory| {
        format!("memory {} MiB{}", mib(memory.bytes), memory.free.map_or(String::new(), free))
    });
    format!(
        "{number}: {}\n   {used}\n   {:?}, {memory}, bindings of {} MiB, workgroups of {} threads and {} KiB, subgroups of {} to {}\n   optional features: {}\n",
        found.describe(),
        found.info.device_type,
        mib(limits.max_storage_buffer_binding_size),
        limits.max_compute_invocations_per_workgroup,
        limits.max_compute_workgroup_storage_size >> 10,
        found.info.subgroup_min_size,
        found.info.subgroup_max_size,
        features(found)
            .iter()
            .map(|(name, has)| format!("{name} {}", if *has { "yes" } else { "no" }))
            .collect::<Vec<_>>()
            .join(", "),
    )
}

/// What faster kernels may ask for; none of them is needed.
fn features(found: &Found) -> [(&'static str, bool); 3] {
    use wgpu::Features as F;
    let has = |feature| found.features.contains(feature);
    [
        ("timestamps", has(F::TIMESTAMP_QUERY)),
        ("pipeline cache", has(F::PIPELINE_CACHE)),
        ("cooperative matrices", found.squares().is_some()),
    ]
}

fn to_json(found: &Found, is_default: bool, (outcome, speeds): &Known) -> Value {
    let limits = &found.limits;
    json!({
        "name": found.info.name,
        "backend": found.info.backend.to_string(),
        "driver": found.info.driver,
        "driver_info": found.info.driver_info,
        "type": format!("{:?}", found.info.device_type),
        "hardware": found.is_hardware(),
        "default": is_default,
        "problem": found.check().err().map(|e| failure::message(&e)),
        "memory_bytes": found.memory.map(|memory| memory.bytes),
        "memory_free_bytes": found.memory.and_then(|memory| memory.free),
        "max_binding_bytes": limits.max_storage_buffer_binding_size,
        "max_buffer_bytes": limits.max_buffer_size,
        "max_workgroup_threads": limits.max_compute_invocations_per_workgroup,
        "max_workgroup_bytes": limits.max_compute_workgroup_storage_size,
        "subgroup_sizes": [found.info.subgroup_min_size, found.info.subgroup_max_size],
        "read_bytes_s": speeds.map(|s| s.read),
        "round_trip_s": speeds.map(|s| s.round_trip),
        "kernels": outcome.as_ref().map(|o| json!({"used": (!o.is_refused()).then(|| o.chosen().to_string()), "tried": o.scores})),
        "features": features(found).into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    })
}
