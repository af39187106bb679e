//! Adapters and control vectors: llama.cpp's numbers, sums by hand, and that a row does not know what others have.

use std::path::Path;

use spec_run::{
    Batch, Context, ContextConfig, Model,
    context::Isa,
    control::ControlVector,
    lora::{LoraFile, Scales},
    quant::GgmlType,
};
use tempfile::TempDir;

use crate::common::{
    bits, context,
    families::{Family, exactly, families, mixed},
    lora::{self, SCALES, Thin, adapters, golden, keys, thin, vector, write},
    reweighted,
};

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// How far a context's log-probabilities after the prompt are from these.
fn far(context: &mut Context, prompt: &[u32], theirs: &[f32]) -> f32 {
    context.remove(0);
    context.decode(&Batch::prompt(prompt, 0, 0)).unwrap();
    let ours = log_probabilities(context.logits(0));
    let off = |(ours, theirs): (&f32, &f32)| {
        if (ours - theirs).is_nan() { f32::INFINITY } else { (ours - theirs).abs() }
    };
    // What is next to impossible is next to nothing in theirs, too.
    std::iter::zip(&ours, theirs).filter(|(_, theirs)| **theirs > -12.0).map(off).fold(0.0, f32::max)
}

fn log_probabilities(logits: &[f32]) -> Vec<f32> {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - top).exp()).sum();
    logits.iter().map(|x| (f64::from(x - top) - sum.ln()) as f32).collect()
}

/// As for the models by themselves: see `Family::wrong`.
fn allowed(family: &Family) -> f32 {
    if family.model.arch == "gemma4" { 3e-2 } else { 3e-3 }
}

#[test]
fn adapters_give_llama_cpps_numbers_in_every_architecture() {
    let mut wrong = Vec::new();
    for family in families() {
        let (golden, folder) = (golden(&family.name), folder());
        let loras = adapters(folder.path(), &family.model, &golden.tensors);
        let with = |loras: &[LoraFile]| {
            let mut context = family.context(|config| {
                exactly(config);
                config.loras = loras.to_vec();
            });
            far(&mut context, family.prompt(), &golden.adapted)
        };
        let (off, without) = (with(&loras), with(&[]));
        println!("{}: {off:.1e}, {without:.1e} without", family.name);
        if off > allowed(family) || without < 10.0 * allowed(family) {
            wrong.push(format!("{} is off by {off:.1e}, {without:.1e} without", family.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn control_vectors_give_llama_cpps_numbers_in_every_architecture() {
    let mut wrong = Vec::new();
    for family in families() {
        // llama.cpp adds directions behind this one's MLPs only, and its other layers have none.
        if family.name == "nemotron_h" {
            continue;
        }
        let (golden, folder) = (golden(&family.name), folder());
        let meta = family.model.gguf.metadata();
        let size = |key: &str| meta.u32(&format!("{}.{key}", family.model.arch)).unwrap().unwrap() as usize;
        let blocks = size("block_count");
        let file = vector(folder.path(), blocks, size("embedding_length"));
        let with = |files: Vec<ControlVector>| {
            let mut context = family.context(|config| {
                exactly(config);
                (config.control_vectors, config.control_layers) = (files, Some(1..=blocks - 2));
            });
            far(&mut context, family.prompt(), &golden.steered)
        };
        // Two halves of it are all of it.
        let half = ControlVector { scale: 0.5, ..file };
        let (off, without) = (with(vec![half.clone(), half]), with(Vec::new()));
        println!("{}: {off:.1e}, {without:.1e} without", family.name);
        if off > allowed(family) || without < 3.0 * allowed(family) {
            wrong.push(format!("{} is off by {off:.1e}, {without:.1e} without", family.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// `W + s·alpha/rank·B·A`, by hand, for tensors of which llama.cpp applies no adapter or ends in an assertion.
#[test]
fn adapters_give_what_the_sum_of_the_matrices_gives() {
    let also = |family: &Family| -> Vec<String> {
        let parts: &[&str] = match family.name.as_str() {
            "deepseek2" => &["attn_q_a", "attn_q_b", "attn_kv_a_mqa", "ffn_down_exps"],
            "glm4" | "glm4moe" => &["attn_output", "ffn_down", "ffn_down_shexp"],
            // llama.cpp multiplies what comes of the matrix by its expert's scale, and not what an adapter adds to it.
            "gemma4-moe" => &["ffn_down_exps"],
            "phi3" => &["attn_qkv", "ffn_up"],
            _ => return Vec::new(),
        };
        let names = family.model.gguf.tensors().iter().map(|tensor| tensor.name.clone());
        names.filter(|name| parts.iter().any(|part| name.ends_with(&format!(".{part}.weight")))).collect()
    };
    let mut seen = 0;
    for family in families() {
        let names = also(family);
        if names.is_empty() {
            continue;
        }
        let (model, folder) = (&family.model, folder());
        let path = folder.path().join("adapter.gguf");
        let matrices: Vec<[Thin; 2]> =
            names.iter().map(|name| thin(name, &model.gguf.tensor(name).unwrap().shape, 4)).collect();
        let scale = 0.5 * 8.0 / 4.0;
        let sum = reweighted(model, |tensor, numbers| {
            let Some(at) = names.iter().position(|name| *name == tensor.name) else { return };
            let [a, b] = &matrices[at];
            let (cols, rows) = (tensor.shape[0] as usize, tensor.shape[1] as usize);
            for (i, w) in numbers.iter_mut().enumerate() {
                let (row, col) = (i / cols, i % cols);
                let expert = row / rows;
                let product: f32 =
                    (0..4).map(|r| b.numbers[row * 4 + r] * a.numbers[(expert * 4 + r) * cols + col]).sum();
                *w += scale * product;
            }
        });
        let flat: Vec<Thin> = matrices.into_iter().flatten().collect();
        write(&path, &keys(&model.arch, Some(8.0)), &flat, GgmlType::F32);
        let logits = |model, loras: Vec<LoraFile>| {
            let mut context = context(model, |config| {
                exactly(config);
                config.loras = loras;
            });
            context.decode(&Batch::prompt(family.prompt(), 0, 0)).unwrap();
            log_probabilities(context.logits(0))
        };
        let merged = logits(&sum, Vec::new());
        let off =
            |other: &[f32]| std::iter::zip(&merged, other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let adapted = off(&logits(model, vec![LoraFile { path, scale: 0.5 }]));
        let without = off(&logits(model, Vec::new()));
        println!("{}, {} tensors: {adapted:.1e}, {without:.1e} without", family.name, names.len());
        assert!(adapted < 2e-3 && without > 0.05, "{}: {adapted:.1e}, {without:.1e}", family.name);
        seen += 1;
    }
    assert!(seen >= 4, "{seen}");
}

/// Where the table of tokens is the head too, an adapter of it is for what tokens become.
#[test]
fn an_adapter_of_a_table_that_is_the_head_too_is_for_the_table() {
    let family = families().iter().find(|family| family.name == "gemma2").unwrap();
    let (model, folder) = (&family.model, folder());
    let name = "token_embd.weight";
    let shape = model.gguf.tensor(name).unwrap().shape.clone();
    let (path, [a, b]) = (folder.path().join("adapter.gguf"), thin(name, &shape, 4));
    let token = family.prompt()[0] as usize;
    // What another token's row would be: the first token's row moved by B·a, in a model where that token has it.
    let width = shape[0] as usize;
    let moved = reweighted(model, |tensor, numbers| {
        if tensor.name == name {
            for (i, w) in numbers[token * width..][..width].iter_mut().enumerate() {
                let by: f32 = (0..4).map(|r| b.numbers[i * 4 + r] * a.numbers[token * 4 + r]).sum();
                *w += by;
            }
        }
    });
    write(&path, &keys(&model.arch, Some(4.0)), &[a, b], GgmlType::F32);
    let logits = |model, loras: Vec<LoraFile>| {
        let mut context = context(model, |config| {
            exactly(config);
            config.loras = loras;
        });
        context.decode(&Batch::prompt(&[token as u32], 0, 0)).unwrap();
        context.logits(0).to_vec()
    };
    let adapted = logits(model, vec![LoraFile { path, scale: 1.0 }]);
    let moved = logits(&moved, Vec::new());
    let plain = logits(model, Vec::new());
    let off = |other: &[f32], but: usize| {
        let each = std::iter::zip(&adapted, other).enumerate().filter(|(i, _)| *i != but);
        each.map(|(_, (a, b))| (a - b).abs()).fold(0.0, f32::max)
    };
    // The token's own row of the head is another one there.
    assert!(
        off(&moved, token) < 1e-3 && off(&plain, token) > 0.1,
        "{} {}",
        off(&moved, token),
        off(&plain, token)
    );
}

/// What a sequence has of both adapters, and a part of the text.
struct Text<'t> {
    scales: Option<Scales>,
    tokens: &'t [u32],
}

/// The logits of all texts' rows, so many of each in turn in a batch.
fn together(context: &mut Context, texts: &[Text], each: usize) -> Vec<Vec<Vec<u32>>> {
    context.remove_all();
    for (seq, text) in (0..).zip(texts) {
        context.adapt(seq, text.scales.clone()).unwrap();
    }
    let mut out = vec![Vec::new(); texts.len()];
    let longest = texts.iter().map(|text| text.tokens.len()).max().unwrap();
    for begin in (0..longest).step_by(each) {
        let mut batch = Batch::new();
        for (seq, text) in texts.iter().enumerate() {
            let part = begin.min(text.tokens.len())..(begin + each).min(text.tokens.len());
            part.for_each(|pos| batch.push(text.tokens[pos], pos as u32, seq as u32, true));
        }
        context.decode(&batch).unwrap();
        for (i, row) in batch.rows.iter().enumerate() {
            out[row.seq as usize].push(bits(context.logits(i)));
        }
    }
    out
}

/// Alone and in company, in batches of any size, with any threads and instructions; and one without adapters is as if there
/// were none.
#[test]
fn a_text_has_the_same_bits_whatever_adapters_others_have() {
    for family in families() {
        let folder = folder();
        let model = mixed(&family.model);
        let loras = adapters(folder.path(), &model, &golden(&family.name).tensors);
        let open = |edit: &dyn Fn(&mut ContextConfig)| {
            family.with_model(model.clone()).context(|config| {
                config.loras.clone_from(&loras);
                config.sequences = 4;
                edit(config);
            })
        };
        let tokens = &family.text()[..24];
        let scales = [None, Scales::new(&SCALES), Scales::new(&[0.0, 1.0]), Scales::new(&[0.75])];
        let texts: Vec<Text> = scales.into_iter().map(|scales| Text { scales, tokens }).collect();
        let mut context = open(&|_| {});
        let alone: Vec<_> = texts
            .iter()
            .map(|text| {
                let one = [Text { scales: text.scales.clone(), tokens }];
                together(&mut context, &one, tokens.len()).remove(0)
            })
            .collect();
        let name = &family.name;
        let mut plain = family.with_model(model.clone()).context(|_| {});
        assert!(crate::common::all_logits(&mut plain, tokens) == alone[0], "{name}: without any");
        for (i, one) in alone.iter().enumerate() {
            assert!(alone[..i].iter().all(|other| other != one), "{name}: {i} is another's");
        }
        for each in [1, 2, 3, 24] {
            assert!(together(&mut context, &texts, each) == alone, "{name}: {each} rows of each");
        }
        for threads in [1, 2, 3] {
            assert!(
                together(&mut open(&|c| c.threads = threads), &texts, 5) == alone,
                "{name}: {threads} threads"
            );
        }
        for isa in Isa::available() {
            assert!(together(&mut open(&|c| c.isa = Some(isa)), &texts, 4) == alone, "{name}: {isa}");
        }
    }
}

#[test]
fn forks_have_the_adapters_of_their_text() {
    let family = families().iter().find(|family| family.name == "llama").unwrap();
    let folder = folder();
    let loras = adapters(folder.path(), &family.model, &golden("llama").tensors);
    let mut context = family.context(|config| config.loras = loras);
    assert_eq!(context.default_scales(), Scales::new(&SCALES).as_ref());
    let text = family.text();
    let (begin, end) = text.split_at(20);
    let mut after = |scales: Option<Scales>, forks: bool| {
        context.remove_all();
        context.adapt(0, scales).unwrap();
        context.decode(&Batch::prompt(begin, 0, 0)).unwrap();
        if forks {
            context.fork(0, 7);
        }
        let seq = if forks { 7 } else { 0 };
        context.decode(&Batch::prompt(end, begin.len() as u32, seq)).unwrap();
        bits(context.logits(0))
    };
    let other = Scales::new(&[0.1, 0.2]);
    for scales in [None, other.clone()] {
        assert_eq!(after(scales.clone(), true), after(scales, false));
    }
    assert_ne!(after(None, true), after(other.clone(), true));
    // What was evaluated with other adapters is no beginning of such a text.
    let error = context.adapt(7, None).unwrap_err().to_string();
    assert!(error.contains("other adapters"), "{error}");
    context.remove(7);
    assert_eq!(
        context.scales(7),
        Scales::new(&SCALES).as_ref(),
        "a sequence that is removed has what all have"
    );
    let error = context.adapt(9, Scales::new(&[0.0, 0.0, 1.0])).unwrap_err().to_string();
    assert!(error.contains("`loras` has 2"), "{error}");
}

/// What is wrong with a file, in one line that names it.
#[track_caller]
fn refused(model: &Model, path: &Path, scale: f32, what: &[&str]) {
    let loras = vec![LoraFile { path: path.into(), scale }];
    let config = ContextConfig { loras, ..ContextConfig::default() };
    told(Context::new(std::sync::Arc::new(model.clone()), &config), path, what);
}

#[track_caller]
fn told(opened: spec_run::Result<Context>, path: &Path, what: &[&str]) {
    let Err(error) = opened else { panic!("{what:?}: nothing is wrong with it") };
    let said = error.to_string();
    assert!(!said.contains('\n') && said.starts_with(&path.display().to_string()), "{said}");
    what.iter().for_each(|what| assert!(said.contains(what), "{what}: {said}"));
}

#[test]
fn an_adapter_that_does_not_fit_is_refused_in_one_line() {
    let family = families().iter().find(|family| family.name == "llama").unwrap();
    let (model, folder) = (&*family.model, folder());
    let name = "blk.0.attn_q.weight";
    let shape = model.gguf.tensor(name).unwrap().shape.clone();
    let good = || thin(name, &shape, 4).into_iter().collect::<Vec<_>>();
    let path = folder.path().join("adapter.gguf");
    let file =
        |keys: &[(&str, spec_run::gguf::Value)], tensors: &[Thin]| write(&path, keys, tensors, GgmlType::F32);
    let llama = || keys("llama", Some(8.0));
    file(&llama(), &good());
    for scale in [f32::NAN, f32::INFINITY] {
        refused(model, &path, scale, &["its scale is", "must be a number"]);
    }
    file(&keys("qwen2", None), &good());
    refused(model, &path, 1.0, &["`general.architecture` is `qwen2`", "`llama`", "another model"]);
    file(&[("general.architecture", "llama".into())], &good());
    refused(model, &path, 1.0, &["`general.type` is not there", "no LoRA adapter"]);
    let mut other = llama();
    other[2] = ("adapter.type", "ia3".into());
    file(&other, &good());
    refused(model, &path, 1.0, &["`adapter.type` is `ia3`", "`lora`"]);
    file(&keys("llama", Some(f32::NAN)), &good());
    refused(model, &path, 1.0, &["`adapter.lora.alpha` is NaN"]);
    let mut activated = llama();
    activated.push(("adapter.alora.invocation_tokens", spec_run::gguf::Value::U32(1)));
    file(&activated, &good());
    refused(model, &path, 1.0, &["adapter.alora.invocation_tokens", "middle of a text"]);
    file(&llama(), &[]);
    refused(model, &path, 1.0, &["no matrices"]);
    file(&llama(), &good()[..1]);
    refused(model, &path, 1.0, &["`lora_a` and no `lora_b`", name]);
    let renamed = |from: &str, to: &str| {
        let mut tensors = good();
        tensors.iter_mut().for_each(|tensor| tensor.name = tensor.name.replace(from, to));
        tensors
    };
    file(&llama(), &renamed("blk.0", "blk.99"));
    refused(model, &path, 1.0, &["`blk.99.attn_q.weight` is no tensor", "another model"]);
    file(&llama(), &renamed(".lora_", ".dora_"));
    refused(model, &path, 1.0, &["neither `.lora_a` nor `.lora_b`"]);
    file(&llama(), &thin(name, &[shape[0] + 1, shape[1]], 4));
    refused(model, &path, 1.0, &["shapes [65, 4]", "another model"]);
    let [a, _] = thin(name, &shape, 4);
    let [_, b] = thin(name, &shape, 3);
    file(&llama(), &[a, b]);
    refused(model, &path, 1.0, &["the ranks 4 and 3"]);
    for x in [f32::NAN, f32::NEG_INFINITY] {
        let mut tensors = good();
        tensors[1].numbers[5] = x;
        file(&llama(), &tensors);
        refused(model, &path, 1.0, &[&format!("has {x} as number 5"), "damaged"]);
    }
    // A norm has no rows to be multiplied with.
    let norm = ["a", "b"]
        .map(|which| Thin { name: format!("blk.0.attn_norm.weight.lora_{which}"), ..matrix(1, 64) });
    file(&llama(), &norm);
    refused(model, &path, 1.0, &["`blk.0.attn_norm.weight` is not multiplied by itself", "merge it"]);
    let scaled = families().iter().find(|family| family.name == "mamba2").unwrap();
    let name = "blk.0.ssm_out.weight";
    let shape = scaled.model.gguf.tensor(name).unwrap().shape.clone();
    file(&keys("mamba2", None), &thin(name, &shape, 4));
    refused(&scaled.model, &path, 1.0, &["is multiplied by `blk.0.ssm_out.scale`", "merge it"]);
    std::fs::write(&path, b"not a model").unwrap();
    refused(model, &path, 1.0, &["not a GGUF"]);
    std::fs::remove_file(&path).unwrap();
    refused(model, &path, 1.0, &["No such file"]);
}

fn matrix(rows: u64, cols: u64) -> Thin {
    Thin { name: String::new(), shape: vec![cols, rows], numbers: vec![0.0; (rows * cols) as usize] }
}

#[test]
fn a_control_vector_that_does_not_fit_is_refused_in_one_line() {
    let family = families().iter().find(|family| family.name == "llama").unwrap();
    let folder = folder();
    let path = folder.path().join("vector.gguf");
    let refused = |tensors: &[Thin], ty, scale, what: &[&str]| {
        write(&path, &[("general.architecture", "controlvector".into())], tensors, ty);
        let control_vectors = vec![ControlVector { path: path.clone(), scale }];
        let config = ContextConfig { control_vectors, ..ContextConfig::default() };
        told(Context::new(family.model.clone(), &config), &path, what);
    };
    let direction = |name: &str, width: usize| Thin {
        name: name.into(),
        shape: vec![width as u64],
        numbers: lora::numbers(name, width),
    };
    refused(&[direction("direction.1", 64)], GgmlType::F32, f32::NAN, &["its scale is NaN"]);
    refused(&[], GgmlType::F32, 1.0, &["no directions"]);
    refused(&[direction("direction.0", 64)], GgmlType::F32, 1.0, &["`direction.0`", "layer 1 or later"]);
    refused(&[direction("direction.x", 64)], GgmlType::F32, 1.0, &["`direction.x`"]);
    refused(&[direction("direction.1", 32)], GgmlType::F32, 1.0, &["[32]", "[64]", "another model"]);
    refused(&[direction("direction.1", 64)], GgmlType::F16, 1.0, &["F16", "F32"]);
    let mut broken = direction("direction.1", 64);
    broken.numbers[3] = f32::NAN;
    refused(&[broken], GgmlType::F32, 1.0, &["NaN among its numbers"]);
}
