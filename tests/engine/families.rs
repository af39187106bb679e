//! Every architecture, on the small random models of the fixtures: llama.cpp's numbers, and the promises that hold for all
//! models.

use std::{fs, path::PathBuf, sync::Arc};

use crate::common::{
    all_logits, bits, context, fixture,
    gpu::{floats, in_floats as in_f32, relative_error},
    load, retyped, rewritten,
};
use serde_json::Value;
use spec_run::{
    Batch, ContextConfig, Model, RunLayers,
    context::{Isa, KvType},
    mask::LayerBits,
    placement::{Place, Unit, UnitSize},
    quant::GgmlType,
};

/// Those that come with recurrent states or latents.
const LATER: [&str; 10] = [
    "deepseek2",
    "falcon-h1",
    "granitehybrid",
    "lfm2",
    "lfm2moe",
    "mamba2",
    "nemotron_h",
    "qwen35",
    "qwen35moe",
    "qwen3next",
];

pub struct Family {
    pub name: String,
    pub model: Arc<Model>,
    prompt: Vec<u32>,
    /// The tokens that llama.cpp chose, and what it thought of all of them.
    steps: Vec<(u32, Vec<f32>)>,
}

pub fn families(test: &str) -> Vec<Family> {
    let Some(folder) = fixture(test, "archs") else { return Vec::new() };
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let name = |file: &PathBuf| file.file_stem().unwrap().to_string_lossy().into_owned();
    let (later, now): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| LATER.contains(&name(file).as_str()));
    assert_eq!(later.len(), LATER.len());
    assert_eq!(now.len(), 48, "the fixtures have changed");
    let numbers = |value: &Value| -> Vec<f32> {
        value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
    };
    let id = |value: &Value| value.as_u64().unwrap() as u32;
    now.into_iter()
        .map(|file| {
            let json: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            Family {
                name: name(&file),
                model: load(&file.with_extension("gguf")),
                prompt: json["prompt"].as_array().unwrap().iter().map(id).collect(),
                steps: json["steps"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|step| (id(&step["id"]), numbers(&step["logprobs"])))
                    .collect(),
            }
        })
        .collect()
}

impl Family {
    /// The prompt and llama.cpp's continuation.
    fn text(&self) -> Vec<u32> {
        self.prompt.iter().copied().chain(self.steps.iter().map(|(token, _)| *token)).collect()
    }
}

/// The same model with another number under one of its keys.
fn with_key(model: &Model, key: &str, value: u32) -> Arc<Model> {
    rewritten(model, |writer| _ = writer.set(&format!("{}.{key}", model.arch), value), |tensor| tensor.ty)
}

/// The same model with matrices of three types, those of a gate and its second factor of different ones.
fn mixed(model: &Model) -> Arc<Model> {
    retyped(model, |tensor| {
        let is_matrix =
            tensor.shape.len() > 1 && tensor.shape[0] % 32 == 0 && tensor.name.ends_with("weight");
        // Gemma 4 does not scale its scores: there the rounding of a row would decide whom a random head sees.
        let unscaled = model.arch == "gemma4" && tensor.name.contains("attn_");
        match tensor.name.as_str() {
            _ if unscaled => tensor.ty,
            // Routers and tables of positions are floats in all files.
            name if !is_matrix || ["ffn_gate_inp", "position"].iter().any(|part| name.contains(part)) => {
                tensor.ty
            }
            name if name.contains("ffn_gate") => GgmlType::F16,
            name if name.contains("ffn_down") || name.contains("attn_output") => GgmlType::Q4_0,
            _ => GgmlType::Q8_0,
        }
    })
}

/// Layers with windows have fewer cells than others then.
fn in_floats(config: &mut ContextConfig) {
    (config.key_type, config.value_type) = (KvType::F32, KvType::F32);
    (config.n_ctx, config.n_ubatch) = (2048, 50);
}

fn log_probabilities(logits: &[f32]) -> Vec<f32> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
    logits.iter().map(|x| x - max - sum.ln() as f32).collect()
}

#[test]
fn every_architecture_has_llama_cpps_numbers() {
    let mut wrong = Vec::new();
    for family in families("every_architecture_has_llama_cpps_numbers") {
        let mut context = context(&family.model, in_floats);
        let text = family.text();
        let first = family.prompt.len() - 1;
        let mut batch = Batch::new();
        for (pos, &token) in text.iter().enumerate() {
            batch.push(token, pos as u32, 0, pos >= first);
        }
        context.decode(&batch).unwrap();
        let mut worst = 0.0f32;
        for (i, (_, theirs)) in family.steps.iter().enumerate() {
            let ours = log_probabilities(context.logits(i));
            // What is next to impossible is next to nothing in theirs, too.
            let likely = ours.iter().zip(theirs).filter(|(_, x)| **x > -12.0);
            worst = likely.map(|(ours, theirs)| (ours - theirs).abs()).fold(worst, f32::max);
        }
        println!("{}: {worst:.1e}", family.name);
        // llama.cpp takes GELU from a table of half-precision numbers, which costs up to 1.5e-3 in the other families that
        // have it. In Gemma 4's fixtures it costs more: by a forward pass in f64 we are within 3.2e-5 of the exact numbers,
        // and with such a table that pass is within 1.6e-3 of llama.cpp.
        let allowed = if family.model.arch == "gemma4" { 3e-2 } else { 2e-3 };
        if worst.is_nan() || worst > allowed {
            wrong.push(format!("{} is off by {worst:.1e}", family.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Rows are rounded to 8 bits before they are multiplied with quantized matrices, half a percent each time; a row whose
/// experts are chosen by a hair may then have others. What reads other weights or other rows is off by all of it.
#[test]
fn quantized_matrices_of_mixed_types_give_what_their_numbers_give() {
    let mut wrong = Vec::new();
    for family in families("quantized_matrices_of_mixed_types_give_what_their_numbers_give") {
        let (mixed, text) = (mixed(&family.model), family.text());
        let ours = floats(&all_logits(&mut context(&mixed, |_| {}), &text));
        let exact = floats(&all_logits(&mut context(&in_f32(&mixed), |_| {}), &text));
        let mut errors: Vec<f64> =
            std::iter::zip(&ours, &exact).map(|(ours, exact)| relative_error(ours, exact)).collect();
        errors.sort_by(f64::total_cmp);
        let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
        println!("{}: {median:.1e}, at most {worst:.1e}", family.name);
        // Gemma 4's layers hand on ten times the error of the others', by its scores; other weights would give 1.4.
        let allowed = if mixed.arch == "gemma4" { 0.5 } else { 0.05 };
        if median.is_nan() || median > allowed {
            wrong.push(format!("{} is off by {median:.1e}", family.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_row_has_the_same_bits_in_any_batch_with_any_threads_and_instructions() {
    for family in families("a_row_has_the_same_bits_in_any_batch_with_any_threads_and_instructions") {
        let (name, model, text) = (&family.name, &family.model, family.text());
        let expected = all_logits(&mut context(model, |_| {}), &text);
        for size in [1, 2, 5, 16] {
            let mut context = context(model, |_| {});
            for (i, part) in text.chunks(size).enumerate() {
                let mut batch = Batch::new();
                for (j, &token) in part.iter().enumerate() {
                    batch.push(token, (i * size + j) as u32, 0, true);
                }
                context.decode(&batch).unwrap();
                for j in 0..part.len() {
                    let row = i * size + j;
                    assert!(bits(context.logits(j)) == expected[row], "{name}: row {row}, batches of {size}");
                }
            }
        }
        for threads in [1, 2, 3] {
            let mut context = context(model, |c| c.threads = threads);
            assert!(all_logits(&mut context, &text) == expected, "{name}: {threads} threads");
        }
        for isa in Isa::available() {
            let mut context = context(model, |c| c.isa = Some(isa));
            assert!(all_logits(&mut context, &text) == expected, "{name}: {isa}");
        }
        // Few outputs of many rows: the last layer then runs for these alone.
        let mut context = context(model, |_| {});
        let mut batch = Batch::new();
        for (pos, &token) in text.iter().enumerate() {
            batch.push(token, pos as u32, 0, pos % 20 == 7);
        }
        context.decode(&batch).unwrap();
        for (i, row) in (0..text.len()).filter(|pos| pos % 20 == 7).enumerate() {
            assert!(bits(context.logits(i)) == expected[row], "{name}: row {row}, of those wanted");
        }
    }
}

/// A mask with fewer experts is the model whose file asks for so few: llama.cpp's numbers hold for that, too.
#[test]
fn the_best_experts_alone_are_a_model_that_takes_so_few() {
    let mut models = 0;
    for family in families("the_best_experts_alone_are_a_model_that_takes_so_few") {
        let (name, model, text) = (&family.name, &family.model, family.text());
        let Some(used) = model.gguf.metadata().u32(&format!("{}.expert_used_count", model.arch)).unwrap()
        else {
            continue;
        };
        for n in 1..used {
            let fewer = with_key(model, "expert_used_count", n);
            let expected = all_logits(&mut context(&fewer, |_| {}), &text);
            let mut context = context(model, |_| {});
            let mut batch = Batch::prompt(&text, 0, 0);
            let mask = (0..model.n_layer())
                .fold(RunLayers::all(model.n_layer()), |mask, layer| mask.experts(layer, n as usize));
            batch.run_layers = Some(mask);
            context.decode(&batch).unwrap();
            assert!(bits(context.logits(0)) == expected[text.len() - 1], "{name}: {n} of {used} experts");
            models += 1;
        }
        let mask = RunLayers::all(model.n_layer()).experts(0, used as usize);
        let mut batch = Batch::prompt(&text, 0, 0);
        batch.run_layers = Some(mask);
        let mut context = context(model, |_| {});
        context.decode(&batch).unwrap();
        let all = all_logits(&mut crate::common::context(model, |_| {}), &text);
        assert!(bits(context.logits(0)) == all[text.len() - 1], "{name}: all experts");
    }
    assert!(models >= 12, "{models} models with experts");
}

/// What is read by every token is kept first; experts that stay in the file are read when they are chosen, or all of them
/// where many rows choose, or by page faults.
#[test]
fn with_any_budget_the_bits_are_those_of_memory() {
    for family in families("with_any_budget_the_bits_are_those_of_memory") {
        let (name, model, text) = (&family.name, &family.model, family.text());
        if model.plan.experts.is_empty() {
            continue;
        }
        let mut whole = context(model, |_| {});
        let expected = all_logits(&mut whole, &text);
        let bytes = |experts: bool| -> u64 {
            let parts = whole.placement().parts.iter().map(|(part, _)| part);
            let wanted = parts.filter(|part| matches!(part.unit, Unit::Experts(_)) == experts);
            wanted.map(|part| part.bytes).sum()
        };
        let (dense, experts) = (bytes(false), bytes(true));
        for (ram, read_chosen) in [(0, true), (dense, true), (dense, false), (dense + experts / 2, true)] {
            let case = format!("{name}, {ram} of {} bytes, {read_chosen}", dense + experts);
            let mut context = context(model, |c| {
                (c.placement.ram, c.read_chosen, c.threads) = (Some(ram), read_chosen, 2);
            });
            let in_file = |part: &(UnitSize, Place)| part.1 == Place::File;
            for part in context.placement().parts.iter().filter(|part| in_file(part)) {
                let may = ram == 0 || matches!(part.0.unit, Unit::Experts(_) | Unit::Embed);
                assert!(may, "{case}: {part:?}");
            }
            assert!(context.placement().parts.iter().any(|part| in_file(part)), "{case}");
            assert!(all_logits(&mut context, &text) == expected, "{case}");
            context.remove(0);
            let mut at = 0;
            for size in [1, 1, 1, 2, 4, 1, 8, 1] {
                let mut batch = Batch::new();
                for (pos, &token) in text.iter().enumerate().skip(at).take(size) {
                    batch.push(token, pos as u32, 0, true);
                }
                context.decode(&batch).unwrap();
                for row in 0..size {
                    assert!(bits(context.logits(row)) == expected[at + row], "{case}: row {}", at + row);
                }
                at += size;
            }
            assert!(context.spent().file > 0.0, "{case}");
        }
    }
}

/// What a speculative round does: a fork drafts under a mask, the text verifies, and what was not accepted is dropped.
#[test]
fn drafts_forks_and_truncations_leave_no_trace() {
    for family in families("drafts_forks_and_truncations_leave_no_trace") {
        let (name, model, text) = (&family.name, &family.model, family.text());
        let n_layer = model.n_layer();
        let expected = all_logits(&mut context(model, |_| {}), &text);
        let without = |bits: LayerBits| {
            let of = |layer| if layer % 2 == 1 { LayerBits::FULL.without(bits) } else { LayerBits::FULL };
            RunLayers::mask((0..n_layer).map(of).collect())
        };
        let coarse = LayerBits::FULL | LayerBits::COARSE_ATTN | LayerBits::COARSE_MLP;
        let masks = [
            (0..n_layer).fold(RunLayers::all(n_layer), |mask, layer| mask.experts(layer, 1)),
            RunLayers::exit(n_layer, 1),
            without(LayerBits::ATTN),
            without(LayerBits::MLP),
            without(LayerBits::FULL),
            RunLayers::mask(vec![coarse; n_layer]),
            RunLayers::from_steps(n_layer, [0, 1, 1, 0].map(|layer| (layer, LayerBits::FULL))).unwrap(),
        ];
        let mut context = context(model, |c| c.extra_slots = 2);
        let mut at = 30;
        context.decode(&Batch::prompt(&text[..at], 0, 0)).unwrap();
        for mask in masks.iter().cycle().take(14) {
            context.fork(0, 1);
            for (pos, &token) in text.iter().enumerate().skip(at).take(3) {
                let mut batch = Batch::new();
                batch.push(token, pos as u32, 1, true);
                batch.run_layers = Some(mask.clone());
                context.decode(&batch).unwrap();
            }
            context.remove(1);
            // Three rows, of which the second is wrong and goes again with the third.
            let mut batch = Batch::new();
            for (pos, token) in (at..).zip([text[at], 5, 6]) {
                batch.push(token, pos as u32, 0, true);
            }
            context.decode(&batch).unwrap();
            assert!(bits(context.logits(0)) == expected[at], "{name}: row {at} after {mask:?}");
            at += 1;
            context.truncate(0, at).unwrap();
        }
        context.decode(&Batch::prompt(&text[at..], at as u32, 0)).unwrap();
        assert!(bits(context.logits(0)) == expected[text.len() - 1], "{name}: the end");
    }
}
