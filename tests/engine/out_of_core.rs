//! A model of which a half stays in the file: the same text whatever lies where and whatever drafts, and drafts that
//! never wait for the file where they should not.

use crate::common;
use std::{ops::ControlFlow, path::Path, sync::Arc};

use spec_run::{
    Context, ContextConfig, Model, RunLayers, Sampler, Tokenizer, embedded,
    generate::{Request, Speculation, generate, speculate},
    placement::{Place, PlacementRequest, Unit},
    sampler::SamplerConfig,
    speculation::{Costs, Fixed, MaskProposer, Proposer, Report},
};
use spec_run_synth::{Mix, Recipe, Shape, Skippable};

const N_LAYER: usize = 6;

/// Every other layer adds next to nothing.
fn write_model(path: &Path) -> Arc<Model> {
    let shape = Shape {
        layers: N_LAYER as u32,
        dim: 512,
        ffn: 1536,
        heads: 8,
        kv_heads: 4,
        vocab: 2048,
        ..Shape::preset("llama-1b").unwrap()
    };
    let odd: Vec<usize> = (1..N_LAYER).step_by(2).collect();
    let recipe = Recipe {
        name: "half".into(),
        shape,
        mix: "q8_0".parse::<Mix>().unwrap(),
        seed: 1,
        skippable: Skippable { attn: odd.clone(), mlp: odd, epsilon: 0.01 },
    };
    let synth = recipe.plan(&embedded::open().unwrap()).unwrap();
    synth.write_file(path, false, 1, |_| ControlFlow::Continue(())).unwrap();
    common::load(path)
}

fn mask() -> RunLayers {
    (1..N_LAYER).step_by(2).fold(RunLayers::all(N_LAYER), |mask, l| mask.skip_attn(l).skip_mlp(l))
}

/// RAM for the head and half of the layers.
fn context(model: &Arc<Model>, placed: bool) -> Context {
    let whole = common::context(model, |_| ());
    let bytes = |unit: fn(&Unit) -> bool| {
        let parts = &whole.placement().parts;
        parts.iter().filter(|(part, _)| unit(&part.unit)).map(|(part, _)| part.bytes).sum::<u64>()
    };
    let layers = bytes(|unit| matches!(unit, Unit::Attn(_) | Unit::Mlp(_)));
    let ram = bytes(|unit| matches!(unit, Unit::Head)) + layers / 2;
    let placement =
        PlacementRequest { ram: Some(ram), draft: placed.then(mask), ..PlacementRequest::default() };
    let context = Context::new(
        model.clone(),
        &ContextConfig { n_ctx: 128, threads: 2, placement, ..ContextConfig::default() },
    );
    let context = context.unwrap();
    assert!(context.is_divided() && context.placement().bytes_in_ram() <= ram);
    context
}

fn decode(context: &mut Context, drafts: bool) -> (Vec<u32>, Report) {
    let gguf = context.model().gguf.clone();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let mut sampler = Sampler::new(SamplerConfig { temp: 0.0, ..SamplerConfig::default() }).unwrap();
    let request = Request { max_tokens: Some(24), ignore_eos: true, ..Request::new(&[1, 413, 441]) };
    if !drafts {
        let made = generate(context, &tokenizer, &mut sampler, &request, |_| Ok(ControlFlow::Continue(())));
        return (made.unwrap().tokens, Report::off("plain"));
    }
    let mut proposers: [Box<dyn Proposer>; 1] = [Box::new(MaskProposer::new("half", mask()))];
    let mut policy = Fixed { max: 4, ..Fixed::default() };
    let mut speculation = Speculation { proposers: &mut proposers, policy: &mut policy };
    let ran = speculate(context, &tokenizer, &mut sampler, &request, &mut speculation, |_| {
        Ok(ControlFlow::Continue(()))
    });
    let (made, report) = ran.unwrap();
    (made.tokens, report)
}

#[test]
fn the_text_is_the_same_and_drafts_stay_in_ram_where_the_mask_was_heeded() {
    let folder = tempfile::tempdir().unwrap();
    let model = write_model(&folder.path().join("half.gguf"));
    let (text, _) = decode(&mut common::context(&model, |config| config.threads = 2), false);
    assert_eq!(text.len(), 24);
    let (plain, _) = decode(&mut context(&model, false), false);
    assert_eq!(plain, text);
    let (drafting, report) = decode(&mut context(&model, false), true);
    assert_eq!(drafting, text);
    assert!(report.draft_spent.file > 0.0 && report.drafting.accepted > 0, "{report:?}");
    let mut placed = context(&model, true);
    let (drafting, report) = decode(&mut placed, true);
    assert_eq!(drafting, text);
    let (draft, verify) = (report.draft_spent, report.verify_spent);
    assert!(draft.ram > 0.0 && draft.file == 0.0, "{draft:?}");
    assert!(verify.ram > 0.0 && verify.file > 0.0, "{verify:?}");
    assert!(report.to_string().contains("by place: drafting 100 % RAM; verifying "), "{report}");
    let json = report.to_json();
    assert_eq!(json["places"]["draft"]["file"].as_f64(), Some(0.0), "{json}");
    for (part, place) in &placed.placement().parts {
        if let Unit::Attn(l) | Unit::Mlp(l) = part.unit {
            assert_eq!(*place == Place::File, l % 2 == 1, "{part:?}");
        }
    }
}

/// Before anything was timed: a draft that stays in RAM is next to free beside a pass that reads the file, and more rows
/// of such a pass are too.
#[test]
fn the_first_guess_knows_what_is_far_away() {
    let folder = tempfile::tempdir().unwrap();
    let model = write_model(&folder.path().join("half.gguf"));
    let share = |context: &Context| {
        let (draft, step) = (context.expected(Some(&mask()), 1), context.expected(None, 1));
        (draft.file, draft.total() / step.total(), step.file / step.total())
    };
    let placed = context(&model, true);
    let (file, cost, waits) = share(&placed);
    assert!(file < 1e-6 && cost < 0.1 && waits > 0.8, "{file} {cost} {waits}");
    let (file, cost, _) = share(&context(&model, false));
    assert!(file > 0.0 && cost > 0.3, "{file} {cost}");
    let by_bytes = placed.mask_cost(&mask());
    let guess = |waits: f64| Costs::guess_of(&[cost], waits);
    assert!((0.4..0.7).contains(&by_bytes), "{by_bytes}");
    assert!(guess(waits).rows(9) < 1.3 && guess(waits).rows(9) < guess(0.0).rows(9));
}

/// What was used is not kept in the system's cache either.
#[cfg(target_os = "linux")]
#[test]
fn bytes_that_are_let_go_of_have_left_memory() {
    use std::{fs::File, io::IoSliceMut};

    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    // Where target files are, because a temporary folder may lie in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("half.gguf");
    let model = write_model(&path);
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    let gguf: &spec_run::Gguf = &model.gguf;
    let tensor = gguf.tensor("blk.1.ffn_down.weight").unwrap();
    let middle = tensor.offset + tensor.bytes / 2;
    let cached = || {
        let mut byte = [0];
        let read = preadv2(&file, &mut [IoSliceMut::new(&mut byte)], middle, ReadWriteFlags::NOWAIT);
        match read {
            Ok(_) => Some(true),
            Err(Errno::AGAIN) => Some(false),
            Err(_) => None,
        }
    };
    let before = gguf.bytes(tensor)[tensor.bytes as usize / 2];
    if cached().is_none() {
        eprintln!(
            "NOT RUN: bytes_that_are_let_go_of_have_left_memory: this file system does not tell what it has cached"
        );
        return;
    }
    assert_eq!(cached(), Some(true));
    // A page that another core has just taken up is passed over the first time.
    let left = (0..20).any(|_| {
        gguf.evict(tensor, 0..tensor.bytes as usize);
        std::thread::sleep(std::time::Duration::from_millis(10));
        cached() == Some(false)
    });
    assert!(left);
    assert_eq!(gguf.bytes(tensor)[tensor.bytes as usize / 2], before);
    assert_eq!(cached(), Some(true));
}
