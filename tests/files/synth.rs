//! Synthetic models: they load and run, their bytes depend on the recipe alone, and what is said to be
//! skippable is.

use crate::common;
use std::{ops::ControlFlow, sync::Arc};

use common::{all_logits, context, parts::numbers, tokens, with_logits};
use spec_run::{
    Batch, Context, Gguf, Model, RunLayers, Tokenizer, embedded, quant::GgmlType, tokenizer::EncodeOptions,
};
use spec_run_synth::{Arch, Experts, Latent, Mix, Recipe, Recurrent, Shape, Skippable};

const VOCAB: usize = 3000;

fn recipe(arch: Arch, mix: &str) -> Recipe {
    let tied = arch == Arch::Qwen3;
    let base = Shape::preset("llama-1b").unwrap();
    let shape = Shape {
        arch,
        layers: 6,
        dim: 256,
        ffn: 512,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        vocab: VOCAB as u32,
        tied,
        ..base
    };
    Recipe {
        name: format!("{arch:?} {mix}"),
        shape,
        mix: mix.parse().unwrap(),
        seed: 7,
        skippable: Skippable::default(),
    }
}

fn bytes(recipe: &Recipe, threads: usize) -> Vec<u8> {
    let synth = recipe.plan(&embedded::open().unwrap()).unwrap();
    let mut file = Vec::new();
    synth.write(&mut file, threads, |_| ControlFlow::Continue(())).unwrap();
    file
}

fn gguf(recipe: &Recipe) -> Gguf {
    Gguf::from_bytes(&recipe.name, bytes(recipe, 2)).unwrap()
}

fn model(recipe: &Recipe) -> Arc<Model> {
    Arc::new(Model::load(Arc::new(gguf(recipe))).unwrap())
}

fn logits(context: &mut Context, tokens: &[u32], mask: Option<RunLayers>) -> Vec<Vec<f32>> {
    context.remove(0);
    context.decode(&Batch { run_layers: mask, ..with_logits(tokens, 0) }).unwrap();
    (0..tokens.len()).map(|i| context.logits(i).to_vec()).collect()
}

fn std_of(x: &[f32]) -> f64 {
    let n = x.len() as f64;
    let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    (x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n).sqrt()
}

fn correlation(x: &[f32], y: &[f32]) -> f64 {
    let dot = |x: &[f32], y: &[f32]| std::iter::zip(x, y).map(|(x, y)| f64::from(x * y)).sum::<f64>();
    dot(x, y) / (dot(x, x) * dot(y, y)).sqrt()
}

fn first_choice(x: &[f32]) -> usize {
    (0..x.len()).max_by(|&a, &b| x[a].total_cmp(&x[b])).unwrap()
}

/// What the module promises of the numbers: finite, the logits spread by about 4, the choice not stuck.
fn is_sane(recipe: &Recipe) {
    let name = &recipe.name;
    let model = model(recipe);
    let mut context = context(&model, |_| ());
    let input = tokens(24, 3, VOCAB);
    let rows = logits(&mut context, &input, None);
    for row in &rows {
        assert!(row.iter().all(|x| x.is_finite()), "{name}");
        assert!((3.0..5.5).contains(&std_of(row)), "{name}: logits spread by {}", std_of(row));
    }
    let mut choices: Vec<usize> = rows.iter().map(|row| first_choice(row)).collect();
    let echoes = std::iter::zip(&choices, &input).filter(|&(&c, &t)| c == t as usize).count();
    assert!(echoes <= 2, "{name}: repeats its input in {echoes} of 24 places");
    choices.sort_unstable();
    choices.dedup();
    assert!(choices.len() >= 16, "{name}: only {} different choices", choices.len());
}

/// Every architecture that can be made, small.
fn small_shapes() -> Vec<Shape> {
    let small = |name: &str| {
        let shape = Shape::preset(name).unwrap();
        let experts = shape.experts.map(|experts| Experts { count: 8, used: 3, ffn: 64, ..experts });
        let kv_heads = shape.kv_heads.min(2);
        let recurrent = shape.recurrent.map(|recurrent| match recurrent {
            Recurrent::GatedDelta { kernel, .. } => {
                Recurrent::GatedDelta { kernel, heads: 4, key_heads: 2, head_dim: 32 }
            }
            Recurrent::ShortConv { .. } => recurrent,
        });
        let latent = shape.latent.map(|_| Latent { rank: 64, turned: 32, value: 32 });
        let (layers, dim, ffn, heads, head_dim, vocab) = (4, 256, 512, 4, 64, VOCAB as u32);
        Shape { layers, dim, ffn, heads, kv_heads, head_dim, vocab, experts, recurrent, latent, ..shape }
    };
    [
        "llama-1b",
        "mixtral-8x7b",
        "qwen2.5-0.5b",
        "qwen3-4b",
        "qwen3-30b-a3b",
        "gemma3-1b",
        "olmoe-1b-7b",
        "gpt-oss-20b",
        "glm-4.5-air",
        "qwen3.5-4b",
        "lfm2-1.2b",
        "deepseek-v2-lite",
    ]
    .map(small)
    .into()
}

#[test]
fn every_architecture_runs() {
    let shapes = small_shapes();
    assert!(Arch::ALL.iter().all(|arch| shapes.iter().any(|shape| shape.arch == *arch)));
    for shape in shapes {
        is_sane(&Recipe { name: format!("{:?}", shape.arch), shape, ..recipe(Arch::Llama, "q8_0") });
    }
}

#[test]
fn in_every_architecture_what_is_skippable_changes_nothing_and_the_rest_all() {
    for shape in small_shapes() {
        let name = format!("{:?}", shape.arch);
        let skippable = Skippable { attn: vec![1, 3], mlp: vec![2, 3], epsilon: 0.0 };
        let model = model(&Recipe { shape, skippable, ..recipe(Arch::Llama, "q8_0") });
        let (input, all) = (tokens(24, 3, VOCAB), RunLayers::all(model.n_layer()));
        let mut context = context(&model, |_| ());
        let full = logits(&mut context, &input, None);
        let mask = all.clone().skip_attn(1).skip_attn(3).skip_mlp(2).skip_mlp(3);
        assert!(logits(&mut context, &input, Some(mask)) == full, "{name}: what is skippable counts");
        for mask in [all.clone().skip_attn(2), all.skip_mlp(1)] {
            let without = logits(&mut context, &input, Some(mask.clone()));
            let same = std::iter::zip(&full, &without).filter(|(full, without)| full == without).count();
            assert_eq!(same, 0, "{name}: {mask:?} changes nothing");
        }
    }
}

#[test]
fn every_quantization_runs() {
    for mix in Mix::names() {
        is_sane(&recipe(Arch::Llama, mix));
    }
}

#[test]
fn depth_does_not_blow_up() {
    let mut deep = recipe(Arch::Qwen3, "f16");
    deep.shape = Shape { layers: 64, dim: 64, ffn: 128, head_dim: 16, ..deep.shape };
    is_sane(&deep);
}

/// With `e` the embedding and `s` all that the layers add, logits with and without the layers correlate by
/// |e| / sqrt(|e|² + |s|²) if s is independent of e; |e| is 0.5, so 0.24 to 0.93 is |s| between 2 and 0.2.
#[test]
fn layers_add_about_as_much_as_the_embedding_brings() {
    for layers in [2, 6, 40] {
        let mut recipe = recipe(Arch::Llama, "f32");
        recipe.shape.layers = layers;
        let model = model(&recipe);
        let mut context = context(&model, |_| ());
        let input = tokens(16, 5, VOCAB);
        let full = logits(&mut context, &input, None);
        let none =
            (0..layers as usize).fold(RunLayers::all(layers as usize), |m, l| m.skip_attn(l).skip_mlp(l));
        let bare = logits(&mut context, &input, Some(none));
        for (full, bare) in std::iter::zip(&full, &bare) {
            let correlation = correlation(full, bare);
            assert!((0.24..0.93).contains(&correlation), "{layers} layers: {correlation}");
        }
    }
}

/// The context must matter: the same last token after two different beginnings.
#[test]
fn attention_carries_what_came_before() {
    for shape in small_shapes() {
        let arch = shape.arch;
        let model = model(&Recipe { shape, ..recipe(arch, "f32") });
        let mut context = context(&model, |_| ());
        let mut last = |seed| {
            let input: Vec<u32> = tokens(40, seed, VOCAB).into_iter().chain([99]).collect();
            logits(&mut context, &input, None).pop().unwrap()
        };
        let correlation = correlation(&last(1), &last(2));
        assert!((0.1..0.97).contains(&correlation), "{arch:?}: {correlation}");
    }
}

#[test]
fn bytes_depend_on_the_seed_and_not_on_threads() {
    for (arch, mix) in [(Arch::Llama, "q4_k_m"), (Arch::Qwen2, "q4_0"), (Arch::Qwen3, "bf16")] {
        let recipe = recipe(arch, mix);
        let one = bytes(&recipe, 1);
        assert!(one == bytes(&recipe, 2) && one == bytes(&recipe, 5), "{}", recipe.name);
        assert!(one != bytes(&Recipe { seed: 8, ..recipe.clone() }, 1), "{}", recipe.name);
    }
}

#[test]
fn nothing_is_lost_by_skipping_what_counts_for_nothing() {
    for mix in ["q4_0", "q4_1", "q5_1", "q8_0", "q4_k", "q6_k", "f16"] {
        let mut recipe = recipe(Arch::Llama, mix);
        recipe.skippable = Skippable { attn: vec![1, 4], mlp: vec![1, 3], epsilon: 0.0 };
        let model = model(&recipe);
        let mut context = context(&model, |_| ());
        let input = tokens(20, 11, VOCAB);
        let full = all_logits(&mut context, &input);
        let mask = RunLayers::all(6).skip_attn(1).skip_attn(4).skip_mlp(1).skip_mlp(3);
        let skipped = logits(&mut context, &input, Some(mask));
        assert!(full == skipped.iter().map(|row| common::bits(row)).collect::<Vec<_>>(), "{mix}");
        // A layer that was not named does count.
        let other = logits(&mut context, &input, Some(RunLayers::all(6).skip_mlp(2)));
        assert!(full != other.iter().map(|row| common::bits(row)).collect::<Vec<_>>(), "{mix}");
    }
}

#[test]
fn epsilon_dials_how_much_a_skip_changes() {
    let change = |epsilon| {
        let mut recipe = recipe(Arch::Llama, "f32");
        recipe.skippable = Skippable { attn: vec![2, 3], mlp: vec![2, 3], epsilon };
        let model = model(&recipe);
        let mut context = context(&model, |_| ());
        let input = tokens(20, 13, VOCAB);
        let full = logits(&mut context, &input, None);
        let mask = RunLayers::all(6).skip_attn(2).skip_mlp(2).skip_attn(3).skip_mlp(3);
        let skipped = logits(&mut context, &input, Some(mask));
        let distance = |(a, b): (&Vec<f32>, &Vec<f32>)| 1.0 - correlation(a, b);
        std::iter::zip(&full, &skipped).map(distance).sum::<f64>() / full.len() as f64
    };
    let [one, tenth, hundredth] = [1.0, 0.1, 0.01].map(change);
    // What is small changes the angle in proportion and its cosine by the square. Weights are f32 because
    // quantized activations would blur changes as small as the last.
    assert!(one > 10.0 * tenth, "{one} {tenth} {hundredth}");
    assert!((50.0..200.0).contains(&(tenth / hundredth)), "{one} {tenth} {hundredth}");
}

#[test]
fn only_output_projections_of_the_named_layers_are_scaled() {
    let plain = recipe(Arch::Llama, "f32");
    let mut scaled = plain.clone();
    scaled.skippable = Skippable { attn: vec![1], mlp: vec![2], epsilon: 0.25 };
    let (plain, scaled) = (gguf(&plain), gguf(&scaled));
    for tensor in plain.tensors() {
        let values = |file: &Gguf| numbers(file, &tensor.name);
        let is_named = ["blk.1.attn_output.weight", "blk.2.ffn_down.weight"].contains(&&*tensor.name);
        let factor = if is_named { 0.25 } else { 1.0 };
        let expected: Vec<f32> = values(&plain).iter().map(|x| factor * x).collect();
        assert!(values(&scaled) == expected, "{}", tensor.name);
    }
}

#[test]
fn text_is_tokenized_as_by_the_vocabulary_it_came_from() {
    let file = gguf(&recipe(Arch::Llama, "q4_0"));
    let ours = Tokenizer::from_gguf(&file).unwrap();
    let original = Tokenizer::from_gguf(&embedded::open().unwrap()).unwrap();
    assert_eq!((ours.vocab_size(), original.vocab_size()), (VOCAB, 2048));
    let text = "Once upon a time, <filler_3> and a naïve 猫 sat <s> there.";
    let encode = |t: &Tokenizer| t.encode(text, EncodeOptions::PROMPT);
    assert_eq!(encode(&ours), encode(&original));
    assert_eq!(ours.token_text(2047), original.token_text(2047));
    assert_eq!((ours.token_text(2048), ours.token_text(2999)), ("<filler_0>", "<filler_951>"));
    assert_eq!(ours.piece(2050), b"<filler_2>");
}

#[test]
fn the_file_says_what_it_is() {
    let mut recipe = recipe(Arch::Qwen3, "q5_k_m");
    recipe.skippable = Skippable { attn: vec![0, 5], mlp: vec![], epsilon: 0.5 };
    let file = gguf(&recipe);
    let meta = file.metadata();
    assert_eq!(meta.bool("spec_run.synthetic").unwrap(), Some(true));
    assert_eq!(meta.u32("spec_run.seed").unwrap(), Some(7));
    assert_eq!(meta.i32s("spec_run.skippable.attn").unwrap(), Some(vec![0, 5]));
    assert_eq!(meta.f32("spec_run.skippable.epsilon").unwrap(), Some(0.5));
    assert!(meta.get("spec_run.skippable.mlp").is_none());
    assert!(meta.str("general.description").unwrap().unwrap().to_lowercase().contains("synthetic"));
    assert_eq!(meta.u32("general.file_type").unwrap(), Some(17));
    // Tied: the table is the head, which a mixture keeps in Q6_K.
    assert!(file.tensor("output.weight").is_none());
    assert_eq!(file.tensor("token_embd.weight").unwrap().ty, GgmlType::Q6_K);
}

#[test]
fn what_cannot_be_is_refused_before_writing() {
    let error = |recipe: Recipe| recipe.plan(&embedded::open().unwrap()).err().unwrap().to_string();
    let mut small = recipe(Arch::Llama, "q4_0");
    small.shape.vocab = 200;
    assert!(error(small).contains("at least 259 of its 2048 tokens"));
    let mut beyond = recipe(Arch::Llama, "q4_0");
    beyond.skippable = Skippable { attn: vec![6], mlp: vec![], epsilon: 0.0 };
    assert!(error(beyond).contains("`skippable` 6"));
    let mut inverted = recipe(Arch::Llama, "q4_0");
    inverted.skippable.epsilon = f32::NAN;
    assert!(error(inverted).contains("`epsilon`"));
}

#[test]
fn the_weights_read_per_token_are_those_of_the_real_models() {
    let read = |name: &str| {
        let mut recipe = recipe(Arch::Llama, "q4_0");
        recipe.shape = Shape::preset(name).unwrap();
        recipe.plan(&embedded::open().unwrap()).unwrap().parameters()
    };
    // Parameters as their publishers count them; biases and norms included.
    assert_eq!(read("llama-1b"), 1_100_048_384);
    assert_eq!(read("llama-7b"), 6_738_415_616);
    assert_eq!(read("llama-8b"), 8_030_261_248);
    assert_eq!(read("llama-70b"), 70_553_706_496);
    assert_eq!(read("llama-3.2-1b"), 1_235_814_400);
    assert_eq!(read("qwen2.5-0.5b"), 494_032_768);
    assert_eq!(read("qwen2.5-7b"), 7_615_616_512);
    assert_eq!(read("qwen3-0.6b"), 596_049_920);
    assert_eq!(read("qwen3-8b"), 8_190_735_360);
    assert_eq!(read("qwen3-30b-a3b"), 30_532_122_624);
    assert_eq!(read("mixtral-8x7b"), 46_702_792_704);
    assert_eq!(read("olmoe-1b-7b"), 6_919_161_856);
    assert_eq!(read("gemma3-1b"), 999_885_952);
    assert_eq!(read("lfm2-1.2b"), 1_170_340_608);
    assert_eq!(read("deepseek-v2-lite"), 15_706_484_224);
    // Published are the language model's, and those of the head that predicts one token further.
    assert_eq!(read("qwen3.5-4b"), 4_205_751_296 + 120_599_552);
    assert_eq!(read("qwen3.5-2b"), 1_881_825_088 + 60_828_160);
    let mut of_27b = recipe(Arch::Llama, "q4_0");
    of_27b.shape = Shape { further: 0, ..Shape::preset("qwen3.5-27b").unwrap() };
    assert_eq!(of_27b.plan(&embedded::open().unwrap()).unwrap().parameters(), 26_895_998_464);
    // Published in billions with two places.
    assert_eq!(read("gpt-oss-20b") / 10_000_000, 2091);
    assert_eq!(read("gpt-oss-120b") / 10_000_000, 11682);
}
