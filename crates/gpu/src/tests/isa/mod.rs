//! What compilers of GPU drivers make of our kernels, without a GPU: registers, spills, instructions, and what stands in
//! the inner loops. Held against tables in the repository, so that a kernel that gets worse is seen. `.ci/isa` says
//! how it is run.

mod driver;
mod listing;
mod table;

use std::{collections::HashSet, path::PathBuf};

use rayon::prelude::*;

use driver::{Compiled, Driver};
use listing::{Loop, innermost_loops};
use table::{Figure, Figures, May, Table};

use super::super::{
    formats::Format,
    pipelines::{Final, Kernel, Mode},
    stored::Stored,
    tuning::Tuning,
    variants::{Square, Variants},
};
use crate::kv_type::KvType;

/// Weights that a thread of a row kernel multiplies in a turn of its loop: a block of each of its rows.
fn weights_a_turn(kernel: Kernel, tuning: &Tuning) -> Option<f64> {
    kernel.few_rows().map(|few| f64::from(32 * tuning.rows_each(few)))
}

/// A few of what differs by a constant only, or by a text that others have too.
fn is_judged(kernel: Kernel) -> bool {
    // The other types' kernels are made of the same texts.
    let is_judged_type = |ty| matches!(ty, KvType::F32 | KvType::F16 | KvType::Q8_0);
    let same = |stored: Stored| stored.keys == stored.values && is_judged_type(stored.keys);
    let stands_for_others = |format| matches!(format, Format::Q4_0 | Format::Q6_K | Format::F16);
    match kernel {
        Kernel::MatmulRows { format, mode, columns, coarse, scales: true, .. } => {
            mode == Mode::Store && matches!(columns, 1 | 4 | 8) && !coarse && stands_for_others(format)
        }
        Kernel::MatmulRows { mode, columns, coarse, .. } => {
            mode == Mode::Add && matches!(columns, 1 | 4 | 8) && (columns == 1 || !coarse)
        }
        Kernel::StoreRows { format, columns, coarse, .. } => {
            matches!(columns, 1 | 4 | 8) && !coarse && stands_for_others(format)
        }
        Kernel::GateRows { format, columns, coarse, scales, .. } => {
            matches!(columns, 1 | 4 | 8) && !coarse && (scales || stands_for_others(format))
        }
        Kernel::AddRows { columns, coarse, .. } => matches!(columns, 1 | 4 | 8) && !coarse,
        Kernel::MatmulTile { format, mode, coarse, scales, .. } => {
            mode == Mode::Store && !coarse && (!scales || stands_for_others(format))
        }
        Kernel::MatmulWide { mode, coarse, .. } => mode == Mode::Add && !coarse,
        Kernel::ExpertTile { format, mode, coarse, .. } | Kernel::ExpertRows { format, mode, coarse, .. } => {
            mode == Mode::Store && !coarse && stands_for_others(format)
        }
        Kernel::HeadRows { format, coarse, .. } | Kernel::HeadTile { format, coarse, .. } => {
            !coarse && stands_for_others(format)
        }
        Kernel::Attend { stored, .. } | Kernel::RopeStore(stored) => same(stored),
        Kernel::Shift { keys } => is_judged_type(keys),
        _ => true,
    }
}

/// Each kernel once.
fn every_kernel() -> Vec<Kernel> {
    let mut seen = HashSet::new();
    Kernel::all().into_iter().filter(|&kernel| seen.insert(kernel)).collect()
}

/// Such as `MatmulRows format Q4_0 mode Add lanes 32 columns 1 arith Int8`.
fn label(kernel: Kernel) -> String {
    let plain = format!("{kernel:?}").replace(['{', '}', '(', ')', ',', ':'], " ");
    let words: Vec<&str> = plain.split_whitespace().collect();
    let mut label: Vec<&str> = Vec::new();
    for word in words {
        match word {
            // What is not so is not said.
            "false" => drop(label.pop()),
            "true" => {}
            _ => label.push(word),
        }
    }
    label.join(" ")
}

fn rise(name: &'static str, value: f64, share: f64, count: f64) -> Figure {
    Figure { name, value, may: May::Rise(share, count) }
}

/// Sums of what the driver counted under these names.
fn counted(compiled: &Compiled, names: &[&str]) -> f64 {
    let of = |name: &&str| {
        let found = compiled.statistics.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.unwrap_or_else(|| panic!("no {name} among {:?}", compiled.statistics)).1
    };
    names.iter().map(of).sum::<u64>() as f64
}

fn of_amd(kernel: Kernel, tuning: &Tuning, compiled: &Compiled) -> Figures {
    let loops = innermost_loops(&compiled.listing);
    let longest = loops.first().copied().unwrap_or_default();
    let others = loops.iter().skip(1).fold(Loop::default(), |all, one| Loop {
        all: all.all + one.all,
        waits: all.waits + one.waits,
        ..all
    });
    let per_weight = weights_a_turn(kernel, tuning).map_or(0.0, |weights| longest.vector as f64 / weights);
    vec![
        Figure { name: "together", value: f64::from(compiled.together), may: May::Stay },
        rise("registers", counted(compiled, &["VGPRs"]), 0.05, 4.0),
        Figure {
            name: "spills",
            value: counted(compiled, &["Spilled VGPRs", "Spilled SGPRs"]),
            may: May::BeZero,
        },
        Figure { name: "shared bytes", value: counted(compiled, &["LDS size"]), may: May::Fall },
        rise("instructions", counted(compiled, &["Instructions"]), 0.05, 8.0),
        rise("loop", longest.all as f64, 0.02, 2.0),
        rise("vector", longest.vector as f64, 0.02, 2.0),
        rise("vector a weight", per_weight, 0.02, 0.03),
        Figure { name: "memory", value: longest.memory as f64, may: May::Fall },
        Figure { name: "shared", value: longest.shared as f64, may: May::Fall },
        rise("waits", longest.waits as f64, 0.02, 1.0),
        rise("other loops", others.all as f64, 0.05, 4.0),
        rise("their waits", others.waits as f64, 0.05, 1.0),
    ]
}

fn of_intel(compiled: &Compiled) -> Figures {
    vec![
        Figure { name: "together", value: f64::from(compiled.together), may: May::Stay },
        Figure { name: "spills", value: counted(compiled, &["Spill Count", "Fill Count"]), may: May::BeZero },
        rise("instructions", counted(compiled, &["Instruction Count"]), 0.05, 8.0),
        rise("memory", counted(compiled, &["SEND Count"]), 0.02, 1.0),
    ]
}

/// Whether threads of a subgroup exchange numbers: then a sum's order depends on how many run together.
fn exchanges(words: &[u32]) -> bool {
    // OpGroupNonUniformElect to OpGroupNonUniformQuadSwap; the first five words are a header.
    let mut at = 5;
    while let Some(word) = words.get(at) {
        if (333..=366).contains(&(word & 0xffff)) {
            return true;
        }
        at += ((word >> 16) as usize).max(1);
    }
    false
}

#[test]
#[ignore = "it needs a driver without hardware: `.ci/isa` runs it"]
fn kernels_keep_to_their_table() {
    let target = std::env::var("SPEC_RUN_ISA").expect("`.ci/isa` says what is compiled for");
    let path = PathBuf::from(format!("{}/../../tests/isa/{target}.csv", env!("CARGO_MANIFEST_DIR")));
    let driver = Driver::open().unwrap();
    let is_intel = driver.name.contains("Intel");
    // As a device of this kind gets them.
    let tuning = match target.as_str() {
        _ if is_intel => Tuning::INTEL,
        "vega10" => Tuning::GCN,
        _ => Tuning::HARDWARE,
    };
    let is_used = |kernel: Kernel| tuning.wide || !matches!(kernel, Kernel::MatmulWide { .. });
    let writes = std::env::var_os("SPEC_RUN_ISA_WRITE").is_some();
    let table = Table::read(&path);
    if let (false, Ok(table)) = (writes, &table)
        && table.driver != driver.name
    {
        println!("NOT RUN: {target}: the table is of {}, here is {}", table.driver, driver.name);
        return;
    }
    let kernels: Vec<Kernel> =
        every_kernel().into_iter().filter(|&kernel| is_judged(kernel) && is_used(kernel)).collect();
    let listings = std::env::var_os("SPEC_RUN_ISA_LISTINGS").map(PathBuf::from);
    let figures: Vec<(String, Figures)> = kernels
        .into_par_iter()
        .map(|kernel| {
            let name = label(kernel);
            let words = Final::of(kernel, &tuning, Variants::PLAIN, Square::default()).spirv().unwrap();
            assert!(!exchanges(&words), "{name}: its bits depend on how many threads run together");
            let compiled = driver.compile(&words, kernel.bindings().0.len());
            let compiled = compiled.unwrap_or_else(|e| panic!("{name}: {e}"));
            if let Some(folder) = &listings {
                std::fs::write(folder.join(format!("{name}.txt")), &compiled.listing).unwrap();
            }
            let figures = if is_intel { of_intel(&compiled) } else { of_amd(kernel, &tuning, &compiled) };
            (name, figures)
        })
        .collect();
    if writes {
        return Table::write(&path, &driver.name, &figures).unwrap();
    }
    let (worse, better) =
        table.unwrap_or_else(|e| panic!("{e}: `.ci/isa --write` makes it")).compare(&figures);
    println!("{target}: {} kernels, {better} of them better than the table says", figures.len());
    let said = "`.ci/isa --write` makes this the table, if it is meant to be so";
    assert!(worse.is_empty(), "{}\n{said}", worse.join("\n"));
}

#[test]
fn kernels_have_names_of_their_own() {
    let kernels = every_kernel();
    let labels: HashSet<String> = kernels.iter().copied().map(label).collect();
    assert_eq!(labels.len(), kernels.len());
}

#[test]
fn exchanges_between_threads_are_seen() {
    let header = [0; 5];
    // OpCapability Shader; OpGroupNonUniformFAdd has six words.
    let plain = [2 << 16 | 17, 1];
    let exchange = [6 << 16 | 350, 1, 2, 3, 0, 4];
    assert!(!exchanges(&[&header[..], &plain].concat()));
    assert!(exchanges(&[&header[..], &plain, &exchange].concat()));
}
