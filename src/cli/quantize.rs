//! `spec-run quantize`: writes a model in other formats.

use std::{ffi::OsString, fmt::Write, path::PathBuf, sync::Arc};

use clap::Args;
use regex::Regex;
use serde_json::json;

use super::{
    common,
    output::{note, warning},
    progress::write_under_bar,
};
use crate::{
    Error, Gguf, Model, Result,
    files::read_limited,
    gguf::Value,
    mask::{LayerList, skips::Skips},
    quant::GgmlType,
    quantize::{
        FileType, Quantized, Settings, WRITTEN,
        importance::Importance,
        prune::{self, Pruned},
    },
    quoted::Quoted,
    words::count,
};

const MAX_THREADS: usize = 1024;
/// Of a file of types.
const MAX_TYPES_BYTES: u64 = 16 << 20;

#[derive(Args, Debug)]
pub struct QuantizeArgs {
    /// Model file of F32, F16 or BF16; of a sharded model the first shard
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The file to write [default: ggml-model-TYPE.gguf beside the model], what to write, as Q4_K_M, and how many threads,
    /// which -t says too
    #[arg(value_name = "[OUT] TYPE [THREADS]", num_args = 1..=3, required = true)]
    output_and_type: Vec<OsString>,
    /// Importance matrix, made by `spec-run imatrix` or llama.cpp: columns that matter more get smaller errors
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Use only entries of the importance matrix in whose names NAME is found
    #[arg(long, value_name = "NAME", requires = "imatrix", conflicts_with = "exclude_weights")]
    include_weights: Vec<String>,
    /// Use no entries of the importance matrix in whose names NAME is found
    #[arg(long, value_name = "NAME", requires = "imatrix")]
    exclude_weights: Vec<String>,
    /// The type of tensors in whose names a regular expression is found, as attn_v=q8_0; the first that fits counts
    #[arg(long, value_name = "PATTERN=TYPE", value_parser = tensor_type)]
    tensor_type: Vec<(Pattern, GgmlType)>,
    /// A file with more of them, with spaces or ends of lines between
    #[arg(long, value_name = "FILE")]
    tensor_type_file: Option<PathBuf>,
    /// The type of the head, output.weight
    #[arg(long, value_name = "TYPE", value_parser = written_type)]
    output_tensor_type: Option<GgmlType>,
    /// The type of the table of embeddings
    #[arg(long, value_name = "TYPE", value_parser = written_type)]
    token_embedding_type: Option<GgmlType>,
    /// Leave the head as it is
    #[arg(long, conflicts_with = "output_tensor_type")]
    leave_output_tensor: bool,
    /// One type for all matrices, without the rules of a mix
    #[arg(long)]
    pure: bool,
    /// Quantize again what is quantized already; that costs quality
    #[arg(long)]
    allow_requantize: bool,
    /// Leave these layers out, from 0: 3,5-8; the others are numbered anew
    #[arg(long, value_name = "LAYERS")]
    prune_layers: Option<LayerList>,
    /// Leave out the layers that a mask of this file skips, as skips.json: whole ones only
    #[arg(long, value_name = "FILE", conflicts_with = "prune_layers")]
    draft_skip: Option<PathBuf>,
    /// Which mask of the file, by name [default: the first]
    #[arg(long, value_name = "NAME", requires = "draft_skip")]
    mask: Option<String>,
    /// Write as many files as the model has, NAME-00001-of-00003.gguf and so on, with the same tensors in each
    #[arg(long)]
    keep_split: bool,
    /// Metadata to write instead of the model's; TYPE is int, float, bool or str
    #[arg(long, value_name = "KEY=TYPE:VALUE", value_parser = metadata)]
    override_kv: Vec<(String, Value)>,
    /// Write nothing: print each tensor's type and the size of the file
    #[arg(long)]
    dry_run: bool,
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

/// A regular expression that clap may copy and compare.
#[derive(Clone, Debug)]
struct Pattern(Regex);

fn written_type(name: &str) -> Result<GgmlType, String> {
    WRITTEN.iter().copied().find(|ty| ty.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
        let known = WRITTEN.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ");
        format!("there is {known}")
    })
}

fn tensor_type(text: &str) -> Result<(Pattern, GgmlType), String> {
    let (pattern, ty) = text.rsplit_once('=').ok_or("wanted PATTERN=TYPE, as attn_v=q8_0")?;
    if pattern.is_empty() {
        return Err("a pattern is missing before the =".into());
    }
    // As in llama.cpp, where all names are in small letters.
    let pattern = Regex::new(&pattern.to_lowercase()).map_err(|_| "no regular expression before the =")?;
    Ok((Pattern(pattern), written_type(ty)?))
}

fn metadata(text: &str) -> Result<(String, Value), String> {
    const WANTED: &str = "wanted KEY=TYPE:VALUE, as general.name=str:Mine";
    let (key, typed) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or(WANTED)?;
    let (ty, value) = typed.split_once(':').ok_or(WANTED)?;
    let wrong = |wanted: &str| format!("{value} is not {wanted}");
    let value = match ty {
        "int" => Value::U32(value.parse().map_err(|_| wrong("a whole number from 0 to 4294967295"))?),
        "float" => {
            let number = value.parse().ok().filter(|x: &f32| x.is_finite());
            Value::F32(number.ok_or_else(|| wrong("a number"))?)
        }
        "bool" => Value::Bool(value.parse().map_err(|_| wrong("true or false"))?),
        "str" => Value::String(value.into()),
        _ => return Err(format!("{ty} is not int, float, bool or str")),
    };
    Ok((key.into(), value))
}

/// What the words without a flag say.
struct Job {
    input: PathBuf,
    output: PathBuf,
    /// None to copy tensors as they are.
    file_type: Option<FileType>,
    threads: usize,
}

impl QuantizeArgs {
    /// As llama-quantize reads them: a second word that is a type leaves the file to be named after it.
    fn job(&self) -> Result<Job> {
        let mut words = self.output_and_type.iter();
        let mut next = || words.next();
        let input = self.input.clone();
        let second = next().expect("asked for by the flags");
        let (output, file_type) = match file_type(second) {
            Ok(ty) => {
                let name = format!("ggml-model-{}.gguf", ty.map_or("COPY", FileType::name));
                (input.with_file_name(name), ty)
            }
            Err(_) => {
                let third = next().ok_or_else(|| {
                    Error::Usage(format!("{}: a type is missing behind it, as Q4_K_M", second.display()))
                })?;
                (PathBuf::from(second), file_type(third)?)
            }
        };
        let threads = match next() {
            Some(word) => word.to_str().and_then(|word| word.parse().ok()).ok_or_else(|| {
                Error::Usage(format!("{}: wanted a number of threads behind the type", word.display()))
            })?,
            None => self.threads,
        };
        match next() {
            Some(word) => Err(Error::Usage(format!("{}: a word too many", word.display()))),
            None if threads > MAX_THREADS => {
                Err(Error::Usage(format!("-t {threads}: at most {MAX_THREADS} threads")))
            }
            None => Ok(Job { input, output, file_type, threads }),
        }
    }

    /// The files that are read.
    fn inputs(&self) -> Vec<PathBuf> {
        let others = [&self.imatrix, &self.tensor_type_file, &self.draft_skip];
        common::model_files(&self.input).into_iter().chain(others.into_iter().flatten().cloned()).collect()
    }

    fn importance(&self) -> Result<Option<Importance>> {
        let Some(path) = &self.imatrix else { return Ok(None) };
        let mut importance = Importance::read(path)?;
        if !self.include_weights.is_empty() {
            importance.choose(&self.include_weights, true);
        }
        importance.choose(&self.exclude_weights, false);
        match importance.entries() {
            0 => Err(Error::Usage(format!("{}: no entry of it is left to use", path.display()))),
            _ => Ok(Some(importance)),
        }
    }

    fn overrides(&self) -> Result<Vec<(Regex, GgmlType)>> {
        let mut all = self.tensor_type.clone();
        if let Some(path) = &self.tensor_type_file {
            let text = String::from_utf8(read_limited(path, MAX_TYPES_BYTES)?)
                .map_err(|_| Error::Input(format!("{}: is not UTF-8 text", path.display())))?;
            for word in text.split_whitespace() {
                let wrong = |what| Error::Input(format!("{}: {}: {what}", path.display(), Quoted(word)));
                all.push(tensor_type(word).map_err(wrong)?);
            }
        }
        Ok(all.into_iter().map(|(Pattern(pattern), ty)| (pattern, ty)).collect())
    }

    /// The model without the layers that are to be left out, if there are any.
    fn pruned(&self, gguf: &Arc<Gguf>) -> Result<Option<Pruned>> {
        // Loading it bounds how many layers there are.
        let load = || Model::load(gguf.clone());
        let (model, layers) = match (&self.prune_layers, &self.draft_skip) {
            (None, None) => return Ok(None),
            (Some(layers), _) => (load()?, layers.resolve("--prune-layers", prune::blocks(gguf)?)?),
            (None, Some(path)) => {
                let model = load()?;
                let skips = Skips::read(path, model.n_layer())?;
                skips.check_model(&model.id())?.iter().for_each(|w| warning!("{w}"));
                let layers = prune::skipped(&skips.pick(self.mask.as_deref())?.mask)?;
                (model, layers)
            }
        };
        prune::without(model, &layers).map(Some)
    }

    fn settings(&self, file_type: Option<FileType>, pruned: Option<&Pruned>) -> Result<Settings> {
        let mut importance = self.importance()?;
        if let (Some(importance), Some(pruned)) = (&mut importance, pruned) {
            importance.renumber(&pruned.numbers);
        }
        Ok(Settings {
            file_type: file_type.unwrap_or(FileType::F32),
            copy: file_type.is_none(),
            pure: self.pure,
            leave_output: self.leave_output_tensor,
            output: self.output_tensor_type,
            embedding: self.token_embedding_type,
            overrides: self.overrides()?,
            requantize: self.allow_requantize,
            importance,
            metadata: self.override_kv.clone(),
            keep_split: self.keep_split,
            layers: pruned.map(|pruned| pruned.before),
        })
    }
}

fn file_type(word: &OsString) -> Result<Option<FileType>> {
    let word = word.to_string_lossy();
    if word.eq_ignore_ascii_case("copy") { Ok(None) } else { word.parse().map(Some) }
}

pub fn run(args: QuantizeArgs) -> Result<()> {
    let job = args.job()?;
    let gguf = Arc::new(Gguf::open(&job.input)?);
    let pruned = args.pruned(&gguf)?;
    let settings = args.settings(job.file_type, pruned.as_ref())?;
    let quantized = Quantized::plan(pruned.as_ref().map_or(&gguf, |pruned| &pruned.gguf), &settings)?;
    tell(&quantized, &settings);
    if args.dry_run {
        return show(&quantized, args.json);
    }
    let files = quantized.paths(&job.output);
    let inputs = args.inputs();
    files.iter().try_for_each(|file| common::check_not_read(file, &inputs))?;

    let seconds = write_under_bar(quantized.tensor_bytes(), |tell| {
        quantized.write_files(&job.output, args.force, job.threads, tell)
    })?;
    if args.json {
        let mut out = summary(&quantized)?;
        out["file"] = json!(files[0].display().to_string());
        out["files"] = json!(files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>());
        out["seconds"] = json!(seconds);
        return common::print_json(&out);
    }
    let more = match files.len() {
        1 => String::new(),
        n => format!(", the first of {n}"),
    };
    common::print(format!("{}{more}: {}, in {seconds:.1} s\n", files[0].display(), sizes(&quantized)?))
}

/// What is not as one may think.
fn tell(quantized: &Quantized, settings: &Settings) {
    let fallbacks: Vec<_> = quantized.tensors().iter().filter_map(|t| Some((t, t.instead_of?))).collect();
    if let Some((first, wanted)) = fallbacks.first() {
        let (tensor, n) = (&first.tensor, fallbacks.len());
        note!(
            "{}: rows are not whole blocks of the type of the mix, so another is taken, as in {}, where {} weights are \
             no blocks of {wanted}: {}",
            count(n, "tensor"),
            tensor.name,
            tensor.shape[0],
            first.ty
        );
    }
    let Some(importance) = &settings.importance else { return };
    let changed = quantized.tensors().iter().filter(|t| t.ty != t.tensor.ty).map(|t| t.tensor);
    let missing = importance.missing(changed.filter(|t| t.name.starts_with("blk.")));
    if let Some(first) = missing.first() {
        warning!("{} in no entry of the importance matrix, as {first}", count(missing.len(), "tensor"));
    }
}

/// Each tensor with its type before and after, and what the file would have.
fn show(quantized: &Quantized, as_json: bool) -> Result<()> {
    if as_json {
        return common::print_json(&summary(quantized)?);
    }
    let mut out = String::new();
    for planned in quantized.tensors() {
        let shape: Vec<_> = planned.tensor.shape.iter().map(u64::to_string).collect();
        let _ = writeln!(
            out,
            "{:<40} {:>20}  {:>7} -> {:<7} {:>12}",
            planned.tensor.name,
            shape.join(" x "),
            planned.tensor.ty,
            planned.ty,
            planned.bytes
        );
    }
    let _ = writeln!(out, "{}", sizes(quantized)?);
    common::print(out)
}

fn sizes(quantized: &Quantized) -> Result<String> {
    let before: u64 = quantized.tensors().iter().map(|t| t.tensor.bytes).sum();
    let weights: u64 = quantized.tensors().iter().map(|t| t.tensor.elements()).sum();
    let (file, bits) = (quantized.file_bytes()?, quantized.tensor_bytes() as f64 * 8.0 / weights as f64);
    let what = match quantized.file_count() {
        1 => "the file has".to_string(),
        n => format!("the {n} files have"),
    };
    Ok(format!(
        "{:.3} GB of tensors become {:.3} GB, {bits:.2} bits a weight; {what} {file} bytes",
        before as f64 / 1e9,
        quantized.tensor_bytes() as f64 / 1e9,
    ))
}

fn summary(quantized: &Quantized) -> Result<serde_json::Value> {
    let tensors: Vec<_> = quantized
        .tensors()
        .iter()
        .map(|t| json!({ "name": t.tensor.name, "shape": t.tensor.shape, "from": t.tensor.ty.name(), "type": t.ty.name(), "bytes": t.bytes }))
        .collect();
    Ok(json!({
        "tensor_bytes": quantized.tensor_bytes(),
        "file_bytes": quantized.file_bytes()?,
        "tensors": tensors,
    }))
}
