//! Every architecture on the GPU: llama.cpp's numbers, and the promises that hold for all models.

use std::{collections::BTreeSet, env, path::PathBuf, process::Command};

use crate::common::{
    all_logits,
    child::Start,
    context,
    covering::{covering, demands},
    families::{Family, exactly, families, mixed},
    gpu::{self, ROUNDING},
    in_floats::{f32_cache, floats, in_floats, relative_error},
};
use spec_run::{
    Context, ContextConfig,
    context::{Device, GpuVariant},
    placement::UnitSet,
};

/// So many models a process: Mesa's llvmpipe keeps what it compiles, and a process has so many mappings only.
const AT_ONCE: usize = 8;

/// Says to a process of ours which models it has.
const FIRST: &str = "SPEC_RUN_TEST_FAMILIES_FROM";
/// And where what an earlier one found out about the device is kept.
const KEPT: &str = "SPEC_RUN_TEST_FAMILIES_KEPT";

/// Those that cover all operations, or every one where `SPEC_RUN_EVERY_FAMILY` asks for it, as `.ci/full` does.
fn asked_for() -> Vec<&'static Family> {
    match env::var_os("SPEC_RUN_EVERY_FAMILY") {
        Some(_) => families().iter().collect(),
        None => covering(),
    }
}

/// Checks these families on the device; what is wrong is said of all of them.
fn check_each(test: &str, check: impl Fn(&str, &Family) -> Option<String>) {
    let Some(device) = gpu::device(test) else { return };
    let families = asked_for();
    if let Ok(first) = env::var(FIRST) {
        let mine = families.into_iter().skip(first.parse().unwrap()).take(AT_ONCE);
        let wrong: Vec<_> = mine.filter_map(|family| check(&device, family)).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        return;
    }
    let kept = tempfile::tempdir().unwrap();
    for first in (0..families.len()).step_by(AT_ONCE) {
        let mut own = Command::new(env::current_exe().unwrap());
        own.args([&format!("families::{test}"), "--exact", "--nocapture"]).env(FIRST, first.to_string());
        own.env(KEPT, kept.path());
        let output = own.ended();
        let said = String::from_utf8_lossy(&output.stdout);
        println!("{said}");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("1 passed"), "{said}");
    }
}

/// Each family with some sizes of batches, and each size with half of the families: a program that is a GPU has to compile
/// kernels for each.
fn has_same_bits(family: &Family, context: &mut Context) {
    let sum: u32 = family.name.bytes().map(u32::from).sum();
    let sizes = if sum.is_multiple_of(2) { [1, 16] } else { [2, 5] };
    family.has_same_bits_in_batches(context, &sizes);
}

/// What sends a model's contexts to the adapter, where keys and values are as exact as on the CPU.
fn to(device: &str) -> impl Fn(&mut ContextConfig) + '_ {
    move |config| {
        exactly(config);
        config.device = Device::Named(device.into());
        config.gpu_cache = env::var_os(KEPT).map(PathBuf::from);
    }
}

/// Far fewer than there are, and nothing that any of them has is missing.
#[test]
fn a_few_families_cover_all_operations() {
    let chosen = covering();
    let of = |families: &mut dyn Iterator<Item = &'static Family>| -> BTreeSet<String> {
        families.flat_map(|family| demands(&family.model)).collect()
    };
    let (some, all) = (of(&mut chosen.iter().copied()), of(&mut families().iter()));
    println!("{:?}", chosen.iter().map(|family| &family.name).collect::<Vec<_>>());
    assert_eq!(some, all);
    assert!(all.len() > 150 && chosen.len() < 25, "{} families for {} demands", chosen.len(), all.len());
}

#[test]
fn every_architecture_has_llama_cpps_numbers_the_same_in_any_batch_and_after_drafts() {
    const TEST: &str = "every_architecture_has_llama_cpps_numbers_the_same_in_any_batch_and_after_drafts";
    check_each(TEST, |device, family| {
        let mut context = family.context(to(device));
        let wrong = family.wrong(&mut context);
        has_same_bits(family, &mut context);
        context.remove(0);
        family.drafts_leave_no_trace(&mut context);
        wrong
    });
}

/// What crosses between the devices is more than the stream where a norm is shared or layers have inputs of their own.
#[test]
fn every_architecture_can_be_divided() {
    check_each("every_architecture_can_be_divided", |device, family| {
        let n_layer = family.model.n_layer();
        let layers = |on_gpu: fn(usize) -> bool| (0..n_layer).map(on_gpu).collect::<Vec<_>>();
        let (all, none) = (layers(|_| true), layers(|_| false));
        // Attention here and the rest there in one half of the families, in the other the other way round.
        let attention_first = family.name.len().is_multiple_of(2);
        let mut patterns = vec![if attention_first { (all, none) } else { (none, all) }];
        // States in both places, of the same text.
        if family.is_recurrent() {
            patterns.push((layers(|layer| layer % 2 == 0), layers(|layer| layer % 3 == 0)));
        }
        let mut wrong = None;
        for (attn, mlp) in patterns {
            let mut context = family.context(|config| {
                to(device)(config);
                config.placement.on_gpu = Some(UnitSet {
                    embed: !attn[0],
                    mlp,
                    experts: attn.clone(),
                    head: attn[0],
                    mtp: attn[0],
                    attn,
                });
            });
            wrong = wrong.or(family.wrong(&mut context));
            has_same_bits(family, &mut context);
            if family.is_recurrent() {
                context.remove(0);
                family.drafts_leave_no_trace(&mut context);
            }
        }
        wrong
    });
}

/// States of more texts take more, by what each is; and no more is taken of the GPU than a plan says.
#[test]
fn plans_count_states() {
    check_each("plans_count_states", |device, family| {
        let mixers = &family.model.plan.mixers;
        if mixers.is_empty() {
            return None;
        }
        const MIB: f64 = (1 << 20) as f64;
        // In MiB, rounded to tenths: what the plan's table says of the GPU, and what is taken.
        let planned_and_taken = |sequences| {
            let mut context = family.context(|config| {
                to(device)(config);
                config.sequences = sequences;
            });
            family.wrong(&mut context);
            let table = context.placement().to_string();
            let line = table.lines().find(|line| line.starts_with("VRAM")).expect("all of it is there");
            let planned = line.split_whitespace().skip(1).take(2).map(|mib| mib.parse::<f64>().unwrap());
            let banner = context.describe();
            let taken = banner.strip_suffix(" MiB").and_then(|banner| banner.rsplit(' ').next());
            (planned.sum::<f64>(), taken.expect("what is taken").parse::<f64>().unwrap())
        };
        let (one, many) = (planned_and_taken(1), planned_and_taken(21));
        // Four slabs for a text, with 64 rows each.
        let slab: usize = mixers.iter().map(|spec| spec.state_len() + 64 * spec.replay_len()).sum();
        let least = (20 * 4 * 4 * slab) as f64 / MIB;
        let what = format!("{}: {one:?}, {many:?}, at least {least:.1} more", family.name);
        println!("{what}");
        let counted = many.0 - one.0 >= least - 0.2 && many.1 - one.1 >= least - 0.2 && least > 1.0;
        let kept = [one, many].iter().all(|(planned, taken)| *taken <= planned + 0.2);
        (!counted || !kept).then_some(what)
    });
}

/// Matrices of three types, so that a gate and its second factor are multiplied apart; in floats, and for batches of any
/// size by whole numbers of eight bits, where the device has them.
#[test]
fn quantized_matrices_of_mixed_types_give_what_their_numbers_give() {
    const TEST: &str = "quantized_matrices_of_mixed_types_give_what_their_numbers_give";
    let dot4: GpuVariant = "dot4".parse().unwrap();
    check_each(TEST, |device, family| {
        let (mixed, text) = (mixed(&family.model), family.text());
        let exact = floats(&all_logits(&mut context(&in_floats(&mixed), f32_cache), &text));
        let family = family.with_model(mixed);
        let ours = floats(&all_logits(&mut family.context(to(device)), &text));
        let mut errors: Vec<f64> =
            std::iter::zip(&ours, &exact).map(|(ours, exact)| relative_error(ours, exact)).collect();
        errors.sort_by(f64::total_cmp);
        let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
        println!("{}: {median:.1e}, at most {worst:.1e}", family.name);
        let found = gpu::found(TEST).expect("found before");
        let has_dot4 = found.offers(dot4).is_ok();
        let mut whole_numbers = family.context(|config| {
            to(device)(config);
            if has_dot4 {
                config.gpu_variant = dot4;
            }
        });
        has_same_bits(&family, &mut whole_numbers);
        // Gemma 4 does not scale its scores, so that its layers hand on more of an error.
        let allowed = if family.model.arch == "gemma4" { 10.0 * ROUNDING } else { ROUNDING };
        (median.is_nan() || median > allowed).then(|| format!("{} is off by {median:.1e}", family.name))
    });
}
