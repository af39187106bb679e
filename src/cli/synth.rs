//! `spec-run synth`: writes a model with random weights, or a trained one at a larger size.

use std::{path::PathBuf, sync::Arc};

use clap::{Args, builder::PossibleValuesParser};
use serde_json::json;

use super::{
    common,
    device_args::{self, SpeedArgs, size},
    plan,
    progress::write_under_bar,
};
use crate::{
    ContextConfig, Error, Gguf, Model, Result, RunLayers,
    context::Planes,
    embedded,
    mask::LayerList,
    placement::PlacementRequest,
    runtime::{self, Plans},
    synth::{Arch, Experts, Mix, Recipe, Shape, Skippable, Synth, Widened, vocabulary_size},
};

const MAX_THREADS: usize = 1024;

#[derive(Args, Debug)]
pub struct SynthArgs {
    /// The file to write
    #[arg(short = 'o', long, value_name = "FILE", required_unless_present = "dry_run")]
    output: Option<PathBuf>,
    /// Write nothing: print what of such a model would go where and how fast it may be, drafts by what is skippable or
    /// else by every other layer
    #[arg(long, conflicts_with = "widen")]
    dry_run: bool,
    #[command(flatten)]
    plan: PlanArgs,
    /// The shape of a public model; the options below change it
    #[arg(long, value_name = "NAME", conflicts_with = "widen", value_parser = PossibleValuesParser::new(Shape::preset_names()))]
    like: Option<String>,
    /// q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, f16, bf16 or f32 throughout, or llama.cpp's mixtures
    /// q4_k_s, q4_k_m, q5_k_s, q5_k_m
    #[arg(short = 'q', long, value_name = "TYPE", default_value = "q4_0", value_parser = str::parse::<Mix>)]
    quant: Mix,
    #[command(flatten)]
    shape: ShapeArgs,
    /// Instead of random weights: those of --model, padded with zeros to K times the width. It computes the same
    /// and costs up to K*K times as much
    #[arg(long, value_name = "K", conflicts_with_all = ["quant", "vocab_from", "seed", "skippable", "skippable_attn", "skippable_mlp"])]
    widen: Option<u64>,
    /// The model to widen [default: the embedded one]
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    model: Option<PathBuf>,
    /// Take the vocabulary of FILE [default: the embedded model's]; what is missing is filled up
    #[arg(long, value_name = "FILE")]
    vocab_from: Option<PathBuf>,
    /// The same seed and options give the same bytes
    #[arg(short = 's', long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Layers that may be skipped at little loss, from 0: 3,5-8
    #[arg(long, value_name = "LAYERS", requires = "epsilon")]
    skippable: Option<LayerList>,
    /// Layers whose attention may be skipped
    #[arg(long, value_name = "LAYERS", requires = "epsilon")]
    skippable_attn: Option<LayerList>,
    /// Layers whose MLP may be skipped
    #[arg(long, value_name = "LAYERS", requires = "epsilon")]
    skippable_mlp: Option<LayerList>,
    /// The factor on what skippable sublayers add: 0 makes skipping them exact
    #[arg(long, value_name = "E")]
    epsilon: Option<f32>,
    /// Threads; the file does not depend on it [default: all cores]
    #[arg(short = 't', long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Overwrite the file if it is there
    #[arg(long)]
    force: bool,
    /// One JSON object on stdout instead of text
    #[arg(long)]
    json: bool,
}

/// The machine that --dry-run is about.
#[derive(Args, Debug)]
struct PlanArgs {
    /// For --dry-run: the memory of its GPU, as 24GiB [default: it has none]
    #[arg(long, value_name = "SIZE", requires = "dry_run")]
    vram: Option<String>,
    /// For --dry-run: layers that drafts run by the high bits of their weights, instead of leaving every other layer out:
    /// 0-63, or all
    #[arg(long, value_name = "LAYERS", requires = "dry_run")]
    coarse: Option<LayerList>,
    /// For --dry-run: its RAM for weights [default: what is free here]
    #[arg(long, value_name = "SIZE", requires = "dry_run")]
    ram: Option<String>,
    #[command(flatten)]
    speeds: SpeedArgs,
}

#[derive(Args, Debug)]
struct ShapeArgs {
    /// llama, qwen2, qwen3, qwen3moe, gemma3, olmoe, gpt-oss or glm4moe [default: llama]; without --like, give --layers,
    /// --dim, --ffn and --heads too. Recurrent layers and latents are only in shapes of --like
    #[arg(long, value_name = "NAME", value_parser = str::parse::<Arch>)]
    arch: Option<Arch>,
    #[arg(long, value_name = "N")]
    layers: Option<u32>,
    /// Width of the residual stream
    #[arg(long, value_name = "N")]
    dim: Option<u32>,
    /// Width inside the MLP
    #[arg(long, value_name = "N")]
    ffn: Option<u32>,
    #[arg(long, value_name = "N")]
    heads: Option<u32>,
    /// [default: as many as heads]
    #[arg(long, value_name = "N")]
    kv_heads: Option<u32>,
    /// [default: dim / heads]
    #[arg(long, value_name = "N")]
    head_dim: Option<u32>,
    /// Experts in the place of each MLP
    #[arg(long, value_name = "N")]
    experts: Option<u32>,
    /// Experts for each token [default: 2]
    #[arg(long, value_name = "N")]
    experts_used: Option<u32>,
    /// Width inside an expert [default: --ffn]
    #[arg(long, value_name = "N")]
    expert_ffn: Option<u32>,
    /// Cells that a layer with a sliding window sees
    #[arg(long, value_name = "N")]
    window: Option<u32>,
    /// Size of the vocabulary [default: what --vocab-from or the embedded model has]
    #[arg(long, value_name = "N")]
    vocab: Option<u32>,
    /// Context that the file says the model was trained for [default: 4096]
    #[arg(long, value_name = "N")]
    ctx: Option<u32>,
    /// Use the table of embeddings as the head
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    tied: Option<bool>,
}

pub fn run(args: SynthArgs) -> Result<()> {
    if args.threads > MAX_THREADS {
        return Err(Error::Usage(format!("-t {}: at most {MAX_THREADS} threads", args.threads)));
    }
    if let Some(output) = &args.output {
        let inputs = args.model.iter().chain(&args.vocab_from).flat_map(|path| common::model_files(path));
        common::check_not_read(output, &inputs.collect::<Vec<_>>())?;
    }
    if let Some(factor) = args.widen {
        return widen(&args, factor);
    }
    if args.model.is_some() {
        return Err(Error::Usage("-m: the model to widen; give --widen K too".into()));
    }
    let skippable = args.skippable()?;
    let vocabulary = match &args.vocab_from {
        Some(path) => Gguf::open(path)?,
        None => embedded::open()?,
    };
    let shape = args.shape.resolve(args.like.as_deref(), &vocabulary)?;
    let layers = shape.layers as usize;
    let recipe = Recipe {
        name: name(args.like.as_deref(), &shape, args.quant),
        skippable: skippable.resolve(layers)?,
        shape,
        mix: args.quant,
        seed: args.seed,
    };
    let synth = recipe.plan(&vocabulary)?;
    if args.dry_run {
        return plan::print(&args.plan.plans(&synth, &recipe.skippable, args.threads)?, None, args.json);
    }

    let output = args.output.as_deref().expect("asked for by the flags");
    let (parameters, bytes) = (synth.parameters(), synth.tensor_bytes());
    let seconds = write_under_bar(bytes, |tell| synth.write_file(output, args.force, args.threads, tell))?;
    if args.json {
        return common::print_json(&json!({
            "file": output.display().to_string(),
            "name": recipe.name,
            "parameters": parameters,
            "tensor_bytes": bytes,
            "seed": args.seed,
            "seconds": seconds,
        }));
    }
    common::print(format!(
        "{}: {}, {:.3} billion weights, {:.3} GB, in {seconds:.1} s ({:.0} million weights/s)\n",
        output.display(),
        recipe.name,
        parameters as f64 / 1e9,
        bytes as f64 / 1e9,
        parameters as f64 / 1e6 / seconds.max(1e-9),
    ))
}

fn widen(args: &SynthArgs, factor: u64) -> Result<()> {
    if args.shape.is_given() {
        return Err(Error::Usage(
            "--widen: the shape is that of the model; leave the options for it out".into(),
        ));
    }
    let gguf = match &args.model {
        Some(path) => Gguf::open(path)?,
        None => embedded::open()?,
    };
    let model = Model::load(Arc::new(gguf))?;
    let widened = Widened::plan(&model, factor)?;
    let bytes = widened.tensor_bytes();
    let output = args.output.as_deref().expect("asked for by the flags");
    let seconds = write_under_bar(bytes, |tell| widened.write_file(output, args.force, tell))?;
    if args.json {
        return common::print_json(&json!({
            "file": output.display().to_string(),
            "name": format!("{} widened {factor} times", model.name),
            "tensor_bytes": bytes,
            "seconds": seconds,
        }));
    }
    common::print(format!(
        "{}: {} at {factor} times the width, {:.3} GB, in {seconds:.1} s\n",
        output.display(),
        model.name,
        bytes as f64 / 1e9,
    ))
}

/// What may be skipped, before the number of layers is known.
struct SkippableLists<'a> {
    attn: Vec<(&'static str, &'a LayerList)>,
    mlp: Vec<(&'static str, &'a LayerList)>,
    epsilon: f32,
}

impl SkippableLists<'_> {
    fn resolve(&self, layers: usize) -> Result<Skippable> {
        let union = |lists: &[(&'static str, &LayerList)]| -> Result<Vec<usize>> {
            let mut all = Vec::new();
            for (flag, list) in lists {
                all.extend(list.resolve(flag, layers)?);
            }
            all.sort_unstable();
            all.dedup();
            Ok(all)
        };
        Ok(Skippable { attn: union(&self.attn)?, mlp: union(&self.mlp)?, epsilon: self.epsilon })
    }
}

impl PlanArgs {
    fn plans(&self, synth: &Synth, skippable: &Skippable, threads: usize) -> Result<Plans> {
        let model = synth.outline()?;
        let n_layer = model.plan.dims.n_layer;
        let size = |flag, text: &Option<String>| text.as_deref().map(|text| size(flag, text)).transpose();
        let (mut attn, mut mlp) = (skippable.attn.clone(), skippable.mlp.clone());
        let coarse = match &self.coarse {
            Some(layers) => layers.resolve("--coarse", n_layer)?,
            None => Vec::new(),
        };
        let is_told = !(attn.is_empty() && mlp.is_empty() && coarse.is_empty());
        if !is_told {
            attn = (1..n_layer).step_by(2).collect();
            mlp = attn.clone();
        }
        let by_high_bits = |layers: &[usize]| {
            layers.iter().fold(RunLayers::all(n_layer), |mask, &l| mask.coarse_attn(l).coarse_mlp(l))
        };
        let mask = attn.into_iter().fold(by_high_bits(&coarse), RunLayers::skip_attn);
        let mask = mlp.into_iter().fold(mask, RunLayers::skip_mlp);
        let (vram, ram) = (size("--vram", &self.vram)?, size("--ram", &self.ram)?);
        let n_ctx = model.n_ctx_train.min(common::DEFAULT_CTX);
        let plans = |draft, planes| {
            let placement = PlacementRequest { vram, ram, draft: Some(draft), ..PlacementRequest::default() };
            let config = ContextConfig { n_ctx, placement, planes: Some(planes), ..ContextConfig::default() };
            let known = device_args::measured(&model, &config);
            runtime::plan_elsewhere(&model, &config, self.speeds.basis(threads, None, known))
        };
        if is_told {
            return plans(mask, if coarse.is_empty() { Planes::Cheap } else { Planes::All });
        }
        // Nothing is said of drafts: they may as well be by the high bits of all layers.
        let every: Vec<usize> = (0..n_layer).collect();
        let coarse = plans(by_high_bits(&every), Planes::All)?;
        Ok(plans(mask, Planes::Cheap)?.or_apart(coarse))
    }
}

impl SynthArgs {
    fn skippable(&self) -> Result<SkippableLists<'_>> {
        let named = |flag, list| Option::<&LayerList>::map(list, |list| (flag, list));
        let both = named("--skippable", self.skippable.as_ref());
        let attn: Vec<_> =
            both.into_iter().chain(named("--skippable-attn", self.skippable_attn.as_ref())).collect();
        let mlp: Vec<_> =
            both.into_iter().chain(named("--skippable-mlp", self.skippable_mlp.as_ref())).collect();
        if self.epsilon.is_some() && attn.is_empty() && mlp.is_empty() {
            return Err(Error::Usage(
                "--epsilon: name the layers that it is for with --skippable LAYERS".into(),
            ));
        }
        Ok(SkippableLists { attn, mlp, epsilon: self.epsilon.unwrap_or(1.0) })
    }
}

impl ShapeArgs {
    fn is_given(&self) -> bool {
        let sizes = [
            self.layers,
            self.dim,
            self.ffn,
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.vocab,
            self.ctx,
            self.experts,
            self.experts_used,
            self.expert_ffn,
            self.window,
        ];
        self.arch.is_some() || self.tied.is_some() || sizes.iter().any(Option::is_some)
    }

    fn resolve(&self, like: Option<&str>, vocabulary: &Gguf) -> Result<Shape> {
        let mut shape = match like.and_then(Shape::preset) {
            Some(preset) => preset,
            None => self.without_preset(vocabulary)?,
        };
        // The size of a head is the preset's own where only the number of heads changes.
        let sizes = [
            (&mut shape.layers, self.layers),
            (&mut shape.dim, self.dim),
            (&mut shape.ffn, self.ffn),
            (&mut shape.heads, self.heads),
            (&mut shape.kv_heads, self.kv_heads),
            (&mut shape.head_dim, self.head_dim),
            (&mut shape.vocab, self.vocab),
            (&mut shape.ctx, self.ctx),
            (&mut shape.window, self.window),
        ];
        for (size, given) in sizes {
            *size = given.unwrap_or(*size);
        }
        shape.experts = self.experts(&shape)?;
        shape.arch = self.arch.unwrap_or(shape.arch);
        shape.tied = self.tied.unwrap_or(shape.tied);
        Ok(shape)
    }

    fn without_preset(&self, vocabulary: &Gguf) -> Result<Shape> {
        let needed = |flag: &str, size: Option<u32>| {
            size.ok_or_else(|| {
                Error::Usage(format!("{flag} is missing: give it, or --like NAME for a known shape"))
            })
        };
        let (layers, dim) = (needed("--layers", self.layers)?, needed("--dim", self.dim)?);
        let (ffn, heads) = (needed("--ffn", self.ffn)?, needed("--heads", self.heads)?);
        let head_dim = match self.head_dim {
            Some(head_dim) => head_dim,
            None if heads > 0 && dim.is_multiple_of(heads) => dim / heads,
            None => {
                return Err(Error::Usage(format!(
                    "--heads {heads}: must divide --dim {dim}, or give --head-dim"
                )));
            }
        };
        Ok(Shape {
            arch: self.arch.unwrap_or(Arch::Llama),
            layers,
            dim,
            ffn,
            heads,
            kv_heads: heads,
            head_dim,
            vocab: u32::try_from(vocabulary_size(vocabulary)?).unwrap_or(u32::MAX),
            ctx: 4096,
            tied: false,
            rope_base: 10_000.0,
            norm_eps: 1e-5,
            window: 0,
            experts: None,
            recurrent: None,
            latent: None,
            further: 0,
        })
    }

    /// The shape's own with what the options change, or those of the options.
    fn experts(&self, shape: &Shape) -> Result<Option<Experts>> {
        let experts = match (shape.experts, self.experts) {
            (Some(experts), _) => experts,
            (None, Some(count)) => Experts { count, used: 2, ffn: shape.ffn, dense_layers: 0 },
            (None, None) if self.experts_used.is_some() || self.expert_ffn.is_some() => {
                return Err(Error::Usage("--experts-used, --expert-ffn: give --experts N too".into()));
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(Experts {
            count: self.experts.unwrap_or(experts.count),
            used: self.experts_used.unwrap_or(experts.used),
            ffn: self.expert_ffn.unwrap_or(experts.ffn),
            dense_layers: experts.dense_layers.min(shape.layers.saturating_sub(1)),
        }))
    }
}

fn name(like: Option<&str>, shape: &Shape, quant: Mix) -> String {
    let size = match like {
        Some(like) => like.to_owned(),
        None => format!("{} {}x{}", shape.arch.name(), shape.layers, shape.dim),
    };
    format!("synthetic {size} {}", quant.name())
}
