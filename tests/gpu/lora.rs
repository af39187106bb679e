//! Adapters and control vectors on the GPU: the numbers that the CPU and llama.cpp have, and rows that do not know what others have.

use std::ops::ControlFlow;

use spec_run::{
    Batch, Context, ContextConfig, Sampler, Tokenizer,
    generate::{Request, generate},
    lora::{LoraFile, Scales},
    placement::Place,
    sampler::SamplerConfig,
    speculation::MaskProposer,
};

use crate::common::{
    bits,
    families::{Family, exactly, families, mixed},
    gpu::device,
    in_floats::{floats, relative_error},
    lora::{SCALES, adapters, vector},
};

fn family(name: &str) -> &'static Family {
    families().iter().find(|family| family.name == name).unwrap()
}

/// Adapters of all products in a plan, with and without a gate's second factor, of queries with norms and heads in windows.
const NAMES: [&str; 5] = ["llama", "gemma2", "gpt2", "qwen3", "phi3"];

/// All matrices of layers.
fn of_layers(family: &Family) -> Vec<String> {
    let tensors = family.model.gguf.tensors().iter();
    let matrices = tensors.filter(|tensor| tensor.shape.len() == 2 && tensor.name.starts_with("blk."));
    matrices.map(|tensor| tensor.name.clone()).filter(|name| name.ends_with(".weight")).collect()
}

struct Case {
    _folder: tempfile::TempDir,
    loras: Vec<LoraFile>,
    family: &'static Family,
}

impl Case {
    fn new(name: &str) -> Self {
        let family = family(name);
        let folder = tempfile::tempdir().unwrap();
        let loras = adapters(folder.path(), &family.model, &of_layers(family));
        Case { _folder: folder, loras, family }
    }

    fn open(&self, edit: impl Fn(&mut ContextConfig)) -> Context {
        self.family.context(|config| {
            exactly(config);
            config.loras.clone_from(&self.loras);
            config.sequences = 4;
            edit(config);
        })
    }
}

/// The logits of a text's rows in several sequences with these scales, so many of each in turn.
fn logits(
    context: &mut Context,
    scales: &[Option<Scales>],
    tokens: &[u32],
    each: usize,
) -> Vec<Vec<Vec<u32>>> {
    context.remove_all();
    for (seq, scales) in (0..).zip(scales) {
        context.adapt(seq, scales.clone()).unwrap();
    }
    let mut out = vec![Vec::new(); scales.len()];
    for begin in (0..tokens.len()).step_by(each) {
        let mut batch = Batch::new();
        for seq in 0..scales.len() as u32 {
            let part = begin..tokens.len().min(begin + each);
            part.for_each(|pos| batch.push(tokens[pos], pos as u32, seq, true));
        }
        context.decode(&batch).unwrap();
        for (i, row) in batch.rows.iter().enumerate() {
            out[row.seq as usize].push(bits(context.logits(i)));
        }
    }
    out
}

fn some() -> [Option<Scales>; 3] {
    [None, Scales::new(&SCALES), Scales::new(&[0.0, 1.0])]
}

#[test]
fn adapters_on_the_gpu_give_the_cpus_numbers_and_the_same_bits_in_company() {
    let Some(device) = device("adapters_on_the_gpu_give_the_cpus_numbers_and_the_same_bits_in_company")
    else {
        return;
    };
    for name in NAMES {
        let case = Case::new(name);
        let tokens = &case.family.text()[..12];
        let mut gpu = case.open(|config| config.device = device.parse().unwrap());
        assert!(gpu.placement().uses(Place::Vram) && gpu.notes().is_empty(), "{name}: {:?}", gpu.notes());
        let alone: Vec<_> =
            some().into_iter().map(|one| logits(&mut gpu, &[one], tokens, 12).remove(0)).collect();
        let expected = logits(&mut case.open(|_| {}), &some(), tokens, 12);
        for (i, (ours, expected)) in std::iter::zip(&alone, &expected).enumerate() {
            let errors = std::iter::zip(floats(ours), floats(expected)).map(|(a, b)| relative_error(&a, &b));
            let worst = errors.fold(0.0, f64::max);
            println!("{name}, {i}: {worst:.1e}");
            assert!(worst < 1e-3, "{name}, {i}: {worst:.1e}");
            assert!(alone[..i].iter().all(|other| other != ours), "{name}: {i} is another's");
        }
        for each in [1, 5] {
            assert!(logits(&mut gpu, &some(), tokens, each) == alone, "{name}: {each} rows of each");
        }
    }
}

/// With a part of the model on the CPU, and of quantized matrices.
#[test]
fn adapters_of_a_divided_model_have_the_same_bits_in_company() {
    let Some(device) = device("adapters_of_a_divided_model_have_the_same_bits_in_company") else { return };
    let case = Case::new("llama");
    let quantized = mixed(&case.family.model);
    let tokens = &case.family.text()[..12];
    let mut context = case.family.with_model(quantized).context(|config| {
        config.loras.clone_from(&case.loras);
        config.sequences = 4;
        config.device = device.parse().unwrap();
        config.placement.gpu_layers = Some(2);
    });
    assert!(context.is_divided());
    let alone: Vec<_> =
        some().into_iter().map(|one| logits(&mut context, &[one], tokens, 12).remove(0)).collect();
    assert!(alone[0] != alone[1] && alone[1] != alone[2]);
    assert!(logits(&mut context, &some(), tokens, 4) == alone);
}

#[test]
fn what_only_the_cpu_applies_is_run_there_and_said() {
    let Some(device) = device("what_only_the_cpu_applies_is_run_there_and_said") else { return };
    for (name, tensor) in [
        ("llama", "output.weight"),
        ("llama", "token_embd.weight"),
        ("llama-moe", "blk.0.ffn_up_exps.weight"),
    ] {
        let (family, folder) = (family(name), tempfile::tempdir().unwrap());
        let loras = adapters(folder.path(), &family.model, &[tensor.to_owned()]);
        let open = |on_gpu: bool| {
            family.context(|config| {
                config.loras.clone_from(&loras);
                if on_gpu {
                    config.device = device.parse().unwrap();
                }
            })
        };
        let (mut asked, mut cpu) = (open(true), open(false));
        assert!(!asked.placement().uses(Place::Vram));
        let [note] = asked.notes() else { panic!("{:?}", asked.notes()) };
        assert!(note.starts_with("all of it runs on the CPU") && note.contains(tensor), "{note}");
        let tokens = &family.text()[..8];
        let one = [Scales::new(&SCALES)];
        assert!(logits(&mut asked, &one, tokens, 8) == logits(&mut cpu, &one, tokens, 8), "{name}");
    }
}

#[test]
fn control_vectors_on_the_gpu_give_the_cpus_numbers() {
    let Some(device) = device("control_vectors_on_the_gpu_give_the_cpus_numbers") else { return };
    for name in ["llama", "mamba2"] {
        let (family, folder) = (family(name), tempfile::tempdir().unwrap());
        let file = vector(folder.path(), family.model.n_layer(), 64);
        let tokens = &family.text()[..12];
        let with = |on_gpu: bool, steers: bool| {
            let mut context = family.context(|config| {
                exactly(config);
                if on_gpu {
                    config.device = device.parse().unwrap();
                }
                if steers {
                    config.control_vectors = vec![file.clone()];
                }
            });
            floats(&crate::common::all_logits(&mut context, tokens))
        };
        let worst = |a: &[Vec<f32>], b: &[Vec<f32>]| {
            std::iter::zip(a, b).map(|(a, b)| relative_error(a, b)).fold(0.0, f64::max)
        };
        let (gpu, cpu, plain) = (with(true, true), with(false, true), with(false, false));
        assert!(worst(&gpu, &cpu) < 1e-3, "{name}: {:.1e}", worst(&gpu, &cpu));
        assert!(worst(&plain, &cpu) > 0.05, "{name}: {:.1e}", worst(&plain, &cpu));
    }
}

/// Greedy rounds are one submission there: draft and verification have the adapters of the text.
#[test]
fn drafts_on_the_gpu_with_adapters_give_the_plain_text() {
    let Some(device) = device("drafts_on_the_gpu_with_adapters_give_the_plain_text") else { return };
    let case = Case::new("llama");
    let tokenizer = Tokenizer::from_gguf(&case.family.model.gguf).unwrap();
    let prompt = &case.family.text()[..16];
    let text = |drafts: bool| {
        let mut context = case.open(|config| config.device = device.parse().unwrap());
        let request = Request { max_tokens: Some(16), ignore_eos: true, ..Request::new(prompt) };
        let greedy = SamplerConfig { temp: 0.0, ..SamplerConfig::default() };
        let mut sampler = Sampler::new(greedy).unwrap();
        if !drafts {
            let go_on = |_| Ok(ControlFlow::Continue(()));
            return generate(&mut context, &tokenizer, &mut sampler, &request, go_on).unwrap().tokens;
        }
        let layers = case.family.model.n_layer();
        let proposer = Box::new(MaskProposer::exit(layers, layers - 1));
        let (made, report) = super::drafted(&mut context, &tokenizer, &mut sampler, &request, proposer);
        assert!(report.drafting.drafted > 0);
        made.tokens
    };
    let drafted = text(true);
    assert_eq!(drafted.len(), 16);
    assert_eq!(drafted, text(false));
}
