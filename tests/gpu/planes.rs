//! High planes on the GPU, low planes in RAM: every format that can lie so, and mixes of them.

use std::{
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};

use crate::common;
use common::{
    all_logits, context,
    gpu::{self, chosen_in_turn, on},
    in_floats::{floats, relative_error},
    retyped, same_in_batches, tokens, with_logits,
};
use spec_run::placement::Basis;
use spec_run::{
    Batch, Context, Gguf, Model, RunLayers, Sampler, Tokenizer,
    context::{Planes, Streaming},
    embedded,
    generate::{Request, generate},
    placement::{HighBits, PlanesApart, UnitSet},
    quant::GgmlType,
    sampler::SamplerConfig,
    speculation::MaskProposer,
};
use spec_run_runtime::placement::forecast::Known;
use spec_run_synth::{Mix, Recipe, Shape, Skippable};

const LAYERS: usize = 3;
const DIM: usize = 256;
const FFN: usize = 512;
/// Of queries, and of keys and values together.
const HEADS: [usize; 2] = [256, 256];

const TYPES: [GgmlType; 6] = {
    use GgmlType::*;
    [Q4_0, Q4_1, Q4_K, Q5_K, Q6_K, Q8_0]
};

/// Rows of whole blocks of 256, which no model of the fixtures has.
fn model_of(mix: &str) -> Arc<Model> {
    let shape = Shape {
        layers: LAYERS as u32,
        dim: DIM as u32,
        ffn: FFN as u32,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        vocab: 1024,
        ..Shape::preset("llama-1b").unwrap()
    };
    let mix = mix.parse::<Mix>().unwrap();
    let recipe = Recipe { name: "planes".into(), shape, mix, seed: 1, skippable: Skippable::default() };
    let file = tempfile::NamedTempFile::new().unwrap();
    let synth = recipe.plan(&embedded::open().unwrap()).unwrap();
    synth.write_file(file.path(), true, 1, |_| ControlFlow::Continue(())).unwrap();
    Arc::new(Model::load(Arc::new(Gguf::open(file.path()).unwrap())).unwrap())
}

/// A model, and the bits of its high planes.
struct Case {
    name: String,
    model: Arc<Model>,
    high: HighBits,
}

/// Of every type, and mixes as people download them; values have another type than queries and keys in these, and some layers'
/// `down` another one than what is before it. Where high planes of a type can have more than two bits, both.
fn cases() -> &'static [Case] {
    static ALL: OnceLock<Vec<Case>> = OnceLock::new();
    ALL.get_or_init(|| {
        let floats = model_of("f16");
        let is_layers = |name: &str| name.starts_with("blk.") && !name.contains("norm");
        let of_type = |ty: GgmlType| {
            let model = retyped(&floats, |tensor| if is_layers(&tensor.name) { ty } else { tensor.ty });
            (ty.to_string(), model)
        };
        let of_mix = |name: &str| (name.to_string(), model_of(name));
        let case = |(name, model): (String, Arc<Model>), high| Case {
            name: format!("{name} {high:?}"),
            model,
            high,
        };
        let of_types = TYPES.into_iter().map(of_type).flat_map(|of| {
            let has_more = !of.0.starts_with("Q4");
            let highs = HighBits::ALL.into_iter().filter(move |&high| high == HighBits::Most || has_more);
            highs.map(move |high| case(of.clone(), high))
        });
        let mixes = [("q4_k_m", HighBits::Most), ("q5_k_m", HighBits::Two)];
        of_types.chain(mixes.map(|(name, high)| case(of_mix(name), high))).collect()
    })
}

fn coarse() -> RunLayers {
    common::coarse(LAYERS)
}

fn with_low_planes_in_ram(
    device: &str,
    Case { model, high, .. }: &Case,
    (variant, streaming): (&str, Streaming),
) -> Context {
    let apart = PlanesApart { units: UnitSet::all(LAYERS), high: *high };
    let context = on(device, model, |c| {
        (c.gpu_variant, c.streaming) = (variant.parse().unwrap(), streaming);
        c.placement.draft = Some(coarse());
        c.placement.on_gpu = Some(UnitSet::all(LAYERS));
        c.placement.planes_apart = Some(apart);
    });
    let PlanesApart { units, high: of } = context.placement().planes_apart();
    assert_eq!((units.attn, units.mlp, of), (vec![true; LAYERS], vec![true; LAYERS], *high));
    context
}

/// The low bits of four are a fourth of a weight's size and more, and only their part of a product meets rows that are rounded,
/// by 0.6 hundredths of their size: 2e-3 of a product, and some five times that behind the products of three layers. Drafts are
/// by the same weights as the CPU's coarse products, whose rows are rounded too.
#[test]
fn every_format_gives_its_logits_and_the_cpus_drafts() {
    const TEST: &str = "every_format_gives_its_logits_and_the_cpus_drafts";
    let Some(device) = gpu::device(TEST) else { return };
    for (i, case @ Case { name, model, high }) in cases().iter().enumerate() {
        let text = tokens(10, 4, model.n_vocab());
        let draft = with_logits(&text, 0).with_layers(coarse());
        let mut whole = on(&device, model, |c| c.gpu_variant = "plain".parse().unwrap());
        let want = floats(&all_logits(&mut whole, &text));
        let mut on_cpu = context(model, |c| c.planes = Some(Planes::All));
        on_cpu.decode(&draft).unwrap();
        for variant in chosen_in_turn(i + 1, &[&["plain"], &["dot4"]]) {
            let mut apart = with_low_planes_in_ram(&device, case, (variant, Streaming::Never));
            let got = floats(&all_logits(&mut apart, &text));
            apart.remove(0);
            apart.decode(&draft).unwrap();
            for (row, (got, want)) in got.iter().zip(&want).enumerate() {
                let full = relative_error(got, want);
                let without = relative_error(apart.logits(row), want);
                let drafts = relative_error(apart.logits(row), on_cpu.logits(row));
                println!(
                    "{name} {variant}, row {row}: {full} with low planes, {without} without; drafts {drafts}"
                );
                assert!(full < 0.03 && full < without / 3.0, "{name} {variant}, row {row}: {full} {without}");
                // The CPU's drafts read as many bits as there can be.
                if *high == HighBits::Most {
                    assert!(
                        drafts < 0.03 && drafts < without / 3.0,
                        "{name} {variant}, row {row}: {drafts} {without}"
                    );
                }
            }
        }
    }
}

/// And wherever the low planes are multiplied: on the CPU, or streamed to the GPU.
#[test]
fn every_format_gives_a_row_the_same_bits_in_any_batch() {
    const TEST: &str = "every_format_gives_a_row_the_same_bits_in_any_batch";
    let Some(device) = gpu::device(TEST) else { return };
    let ways: [&[_]; 2] =
        [&[("plain", Streaming::Never), ("plain", Streaming::From(9))], &[("dot4", Streaming::Never)]];
    for (i, case @ Case { name, model, .. }) in cases().iter().enumerate() {
        // Pieces of nine and one by itself: each number of rows has kernels of its own.
        let text = tokens(19, 4, model.n_vocab());
        let mut plain = None;
        for (variant, streaming) in chosen_in_turn(i, &ways) {
            let mut context = with_low_planes_in_ram(&device, case, (variant, streaming));
            assert_eq!(context.describe().contains("passes of 9 rows"), streaming == Streaming::From(9));
            let want = all_logits(&mut context, &text);
            if variant == "plain" {
                assert!(*plain.get_or_insert_with(|| want.clone()) == want, "{name} {streaming:?}");
            }
            for piece in [1, 9] {
                same_in_batches(&mut context, &text, piece, &want, &format!("{name} {variant}"));
            }
            let what = format!("{name} {variant}");
            gpu::a_coarse_draft_leaves_no_trace(&mut context, &text, &want, &what);
        }
    }
}

/// The text is plain decoding's with the same places.
#[test]
fn drafts_of_every_format_give_plain_text() {
    let Some(device) = gpu::device("drafts_of_every_format_give_plain_text") else { return };
    let tokenizer = Tokenizer::from_gguf(&embedded::open().unwrap()).unwrap();
    let prompt = [1, 413, 441];
    let request = Request { max_tokens: Some(24), ignore_eos: true, ..Request::new(&prompt) };
    let mut accepted = 0;
    for case @ Case { name, .. } in cases() {
        let mut context = with_low_planes_in_ram(&device, case, ("plain", Streaming::Never));
        let greedy = || Sampler::new(SamplerConfig::greedy()).unwrap();
        let go_on = |_| Ok(ControlFlow::Continue(()));
        let text = generate(&mut context, &tokenizer, &mut greedy(), &request, go_on).unwrap();
        let proposer = Box::new(MaskProposer::new("high planes", coarse()));
        let (drafted, report) = crate::drafted(&mut context, &tokenizer, &mut greedy(), &request, proposer);
        assert_eq!(drafted.tokens, text.tokens, "{name}");
        println!("{name}: {:?}", report.drafting.acceptance());
        accepted += report.drafting.accepted;
    }
    assert!(accepted > 0, "no draft was ever right");
}

/// What each side reads in a draft step and in a verification, and what crosses, is what the plan counts: bytes for bytes.
#[test]
fn each_side_reads_the_bytes_that_the_plan_counts() {
    const TEST: &str = "each_side_reads_the_bytes_that_the_plan_counts";
    let Some(device) = gpu::device(TEST) else { return };
    for case @ Case { name, model, .. } in cases() {
        let mut context = with_low_planes_in_ram(&device, case, ("plain", Streaming::Never));
        // A second for each byte from one place, or for each crossing, and no time for anything else.
        let endless = Known::given(f64::INFINITY);
        let nothing = Basis {
            vram: endless,
            ram: endless,
            file: endless,
            gpu_products: endless,
            cpu_products: endless,
            crossing: Known::given(0.0),
            ..Basis::default()
        };
        let of = |basis: Basis| {
            let predicted = context.placement().predict(&basis);
            [predicted.draft, predicted.token]
        };
        let vram = of(Basis { vram: Known::given(1.0), ..nothing });
        let ram = of(Basis { ram: Known::given(1.0), ..nothing });
        let crossings = of(Basis { crossing: Known::given(1.0), ..nothing });
        // Products read no norms, of which there are two in a layer and one behind them, nor a row of the table.
        let table = model.gguf.tensors().iter().find(|t| t.name == "token_embd.weight").expect("it has one");
        let beside = 4 * (2 * LAYERS + 1) * DIM + table.ty.row_bytes(DIM).unwrap();
        let text = tokens(15, 4, model.n_vocab());
        context.decode(&Batch::prompt(&text[..10], 0, 0)).unwrap();
        let rows = 4;
        let draft = Batch::prompt(&text[10..11], 10, 1).with_layers(coarse());
        let verification = with_logits(&text[10..10 + rows], 10);
        for (i, batch) in [draft, verification].into_iter().enumerate() {
            context.fork(0, 1);
            let before = context.traffic().unwrap();
            context.decode(&batch).unwrap();
            let went = context.traffic().unwrap().since(before);
            context.remove(1);
            println!("{name}: {went:?}");
            assert_eq!(went.weights as f64, vram[i] - beside as f64, "{name}, pass {i}: on the GPU");
            assert_eq!(went.low_planes as f64, ram[i], "{name}, pass {i}: in RAM");
            // Each product's rows come to the processor, sums go back, and the result comes.
            assert_eq!((went.readbacks - 1) as f64, crossings[i] / 2.0, "{name}, pass {i}: crossings");
        }
        let before = context.traffic().unwrap();
        context.remove(0);
        context.decode(&Batch::prompt(&text[..rows], 0, 0)).unwrap();
        let went = context.traffic().unwrap().since(before);
        // Queries, keys and values of the normed rows; the output; a gate and its factor; the way back from these. Where
        // values are of another type than queries and keys, the normed rows cross twice.
        let [queries, others] = HEADS;
        let once = (DIM + queries + others) + (queries + DIM) + (DIM + 2 * FFN) + (FFN + DIM);
        let twice = (went.readbacks as usize - 1).saturating_sub(4 * LAYERS) * DIM;
        assert_eq!(went.crossed as usize, 4 * rows * (LAYERS * once + twice), "{name}");
        assert_eq!(twice > 0, name.contains("_m "), "{name}");
    }
}
