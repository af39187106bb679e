//! What several subcommands share: the model, the context, the text to work on, and writing to stdout.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::{Arc, Once, OnceLock},
    time::{Duration, Instant},
};

use clap::{Args, builder::PossibleValuesParser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[cfg(feature = "download")]
use super::hub_args::HubArgs;
use super::{
    adapter_args::AdapterArgs,
    device_args::DeviceArgs,
    failure,
    output::{detail, note, warning},
    rope_args::RopeArgs,
    state::StateFile,
    thread_args::ThreadArgs,
};
use crate::{
    Context, ContextConfig, Error, Gguf, Model, Result, Tokenizer,
    backend::cpu::simd::Isa,
    context::{KvType, Loading, Planes},
    embedded,
    files::{Replacement, is_named_device, read_limited, read_stream_limited},
    gguf::shards,
    measure::memory::resident_bytes,
    placement::{Basis, Place, Placement, PlacementRequest},
    provenance::Provenance,
    words::count,
};

/// The context when -c does not say; a model trained for less gets what it was trained for.
pub const DEFAULT_CTX: u32 = 4096;
/// Bytes of a text that is read, or else /dev/zero fills the memory.
pub const MOST_TEXT: u64 = 1 << 30;

/// The text of a file that should be no larger than `most` bytes. Bytes are never replaced: it would be another text.
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    utf8(&path.display().to_string(), read_limited(path, most)?)
}

/// The same of bytes that messages call `name`.
pub fn utf8(name: &str, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::Input(format!("{name}: not UTF-8 at byte {at}; convert it first, e.g. with iconv"))
    })
}

#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Model file (.gguf; of a sharded model the first shard) [default: the embedded stories13m]
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    model: Option<PathBuf>,
    #[cfg(feature = "download")]
    #[command(flatten)]
    hub: HubArgs,
    /// How the file is read: auto, mmap, mlock and mmap+mlock map it, none and dio read it into memory; nothing is
    /// locked
    #[arg(long, value_name = "MODE", default_value = "auto")]
    #[arg(value_parser = PossibleValuesParser::new(["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]))]
    load_mode: String,
    /// The same as --load-mode none
    #[arg(long)]
    no_mmap: bool,
}

impl ModelArgs {
    /// Whether the embedded model is meant.
    pub fn is_embedded(&self) -> bool {
        #[cfg(feature = "download")]
        if self.hub.is_given() {
            return false;
        }
        self.model.is_none()
    }

    /// The files of the model, as far as they are named here or are in the cache.
    pub fn files(&self) -> Vec<PathBuf> {
        let named = self.model.as_deref().map_or_else(Vec::new, model_files);
        #[cfg(feature = "download")]
        let named = [named, self.hub.files(self.model.as_deref())].concat();
        named
    }

    /// The file, fetched if it must be.
    fn path(&self) -> Result<Option<PathBuf>> {
        #[cfg(feature = "download")]
        if self.hub.is_given() {
            return self.hub.fetch(self.model.as_deref()).map(Some);
        }
        Ok(self.model.clone())
    }

    /// What drafts, from another repository of the hub or from the model's own.
    #[cfg(feature = "download")]
    pub fn fetch_draft(&self, repository: Option<&str>) -> Result<Option<PathBuf>> {
        self.hub.fetch_draft(repository)
    }

    pub fn open(&self) -> Result<Arc<Gguf>> {
        Ok(Arc::new(match &self.path()? {
            Some(path) if self.no_mmap || matches!(self.load_mode.as_str(), "none" | "dio") => {
                Gguf::read(path)?
            }
            Some(path) => Gguf::open(path)?,
            None => embedded::open()?,
        }))
    }
}

/// The vocabulary and the model of one file, which writes text; what is odd about either goes to stderr.
pub fn load(gguf: &Arc<Gguf>, rope: &RopeArgs) -> Result<(Tokenizer, Arc<Model>)> {
    let (tokenizer, model) = load_any(gguf, rope)?;
    check_writes(&model)?;
    Ok((tokenizer, model))
}

/// Refuses a model that makes embeddings alone.
pub fn check_writes(model: &Model) -> Result<()> {
    if model.writes_text() {
        return Ok(());
    }
    Err(Error::model(
        model.gguf.name(),
        format!(
            "architecture `{}` makes embeddings, not text: see `spec-run embed`, and `spec-run serve` with /v1/embeddings",
            model.arch
        ),
    ))
}

/// The same of a model that may make embeddings alone.
pub fn load_any(gguf: &Arc<Gguf>, rope: &RopeArgs) -> Result<(Tokenizer, Arc<Model>)> {
    let tokenizer = Tokenizer::from_gguf(gguf)?;
    tokenizer.warnings().iter().for_each(|w| warning!("{w}"));
    let model = Model::load_turning(gguf.clone(), &rope.change())?;
    let (ids, rows) = (tokenizer.vocab_size(), model.plan.dims.n_vocab);
    if ids > rows {
        return Err(Error::model(
            gguf.name(),
            format!(
                "the vocabulary has {ids} tokens and `token_embd.weight` {rows} rows: the file is damaged"
            ),
        ));
    }
    if model.n_further > 0 && !model.has_mtp() {
        let s = if model.n_further == 1 { "" } else { "s" };
        detail!("left out: {} tensor{s} of heads that predict further tokens", model.n_further);
    }
    Ok((tokenizer, Arc::new(model)))
}

#[derive(Args, Clone, Debug)]
pub struct ContextArgs {
    /// Tokens that the context holds; 0 takes what the model was trained for [default: 4096, or less where the model was
    /// trained for less]
    #[arg(short = 'c', long, value_name = "N")]
    ctx_size: Option<u32>,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Tokens evaluated at once; no result depends on it
    #[arg(short = 'b', long, value_name = "N", default_value_t = 512)]
    batch_size: usize,
    /// -ub: the same, where it is the lower of the two
    #[arg(long, value_name = "N", default_value_t = 512)]
    ubatch_size: usize,
    /// -ctk: how keys are stored: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1 or iq4_nl
    #[arg(long, value_name = "TYPE", default_value_t = KvType::F16)]
    cache_type_k: KvType,
    /// -ctv: how values are stored, of the same types
    #[arg(long, value_name = "TYPE", default_value_t = KvType::F16)]
    cache_type_v: KvType,
    /// Layers that see only so far back keep the keys and values of the whole context too: more memory, the same text
    #[arg(long)]
    swa_full: bool,
    #[command(flatten)]
    pub rope: RopeArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Instruction set: scalar, avx2, avxvnni, avx512, neon or i8mm [default: the best there is]
    #[arg(long, value_name = "NAME")]
    isa: Option<Isa>,
    /// Read weights from the file as they are: nothing is copied at load, and a model larger than the memory runs
    #[arg(long)]
    no_repack: bool,
    /// Split the weights of every format that can be into high and low bits, so that a draft may read the high
    /// ones alone; without this only those that lose no speed by it (Q8_0, Q6_K, Q5_*)
    #[arg(long, conflicts_with = "no_repack")]
    planes: bool,
    #[command(flatten)]
    pub adapters: AdapterArgs,
}

impl ContextArgs {
    /// What can be refused before a file is opened.
    pub fn check(&self) -> Result<()> {
        self.device.check()?;
        self.threads.check()?;
        if self.batch_size == 0 || self.ubatch_size == 0 {
            return Err(Error::Usage("-b 0 or -ub 0: at least one token must be evaluated at a time".into()));
        }
        if let Some(isa) = self.isa
            && !Isa::available().contains(&isa)
        {
            return Err(Error::Usage(format!("--isa {isa}: this machine does not have it; leave it out")));
        }
        Ok(())
    }

    /// -c as given, if it was.
    pub fn ctx_size(&self) -> Option<u32> {
        self.ctx_size
    }

    pub fn config(&self, model: &Model) -> Result<ContextConfig> {
        let n_ctx = match self.ctx_size {
            None => model.n_ctx_train.min(DEFAULT_CTX),
            Some(0) => model.n_ctx_train,
            Some(n) => n,
        };
        let n_ctx = match model.plan.most_positions.map(|most| most as u32).filter(|&most| n_ctx > most) {
            Some(most) => {
                warning!("-c {n_ctx} is more than the model has places for: the context holds {most} tokens");
                most
            }
            None => n_ctx,
        };
        if n_ctx > model.n_ctx_train {
            warning!("-c {n_ctx} is more than the {} that the model was trained for", model.n_ctx_train);
        }
        let config = self.placed(n_ctx, self.device.placement_request_for(model)?)?;
        Ok(self.adapters.apply(config))
    }

    /// What holds of every model.
    pub fn placed(&self, n_ctx: u32, placement: PlacementRequest) -> Result<ContextConfig> {
        self.threads.apply(ContextConfig {
            n_ctx,
            n_ubatch: self.batch_size.min(self.ubatch_size),
            key_type: self.cache_type_k,
            value_type: self.cache_type_v,
            swa_full: self.swa_full,
            isa: self.isa,
            planes: match (self.no_repack, self.planes) {
                (true, _) => None,
                (false, true) => Some(Planes::All),
                (false, false) => Some(Planes::Cheap),
            },
            device: self.device.device(),
            placement,
            profile: self.device.profile(),
            streaming: self.device.streaming(),
            gpu_variant: self.device.gpu_variant(),
            gpu_cache: self.device.gpu_cache(),
            ..ContextConfig::default()
        })
    }
}

struct Watch<'a> {
    started: Instant,
    bar: ProgressBar,
    basis: &'a (dyn Fn() -> Basis + Sync),
    /// Measured once, however many plans are made.
    measured: OnceLock<Basis>,
}

impl Loading for Watch<'_> {
    fn trying(&self, device: &str) {
        note!("trying kernels on {device} (once) ...");
    }

    fn basis(&self) -> Basis {
        *self.measured.get_or_init(self.basis)
    }

    /// What goes where is worth a table if it is more than one place.
    fn planned(&self, placement: &Placement) {
        if placement.is_divided() {
            detail!("{}", placement.to_string().trim_end());
        }
        if let Some(choice) = &placement.choice {
            detail!("{choice}");
        }
    }

    fn ready(&self, ready: u64, total: u64) {
        if self.started.elapsed() > Duration::from_secs(1)
            && self.bar.is_hidden()
            && io::stderr().is_terminal()
        {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(total);
        self.bar.set_position(ready);
    }
}

/// Builds the context, with a progress bar if that takes long; and what it took, in words. `basis` is what a choice
/// of places rests on, if there is one.
pub fn open_context(
    model: &Arc<Model>,
    config: &ContextConfig,
    basis: &(dyn Fn() -> Basis + Sync),
) -> Result<(Context, String)> {
    let started = Instant::now();
    let bar = ProgressBar::hidden();
    let style = ProgressStyle::with_template("loading {bar:30} {bytes}/{total_bytes}, {eta} left");
    bar.set_style(style.expect("a valid template"));
    let watch = Watch { started, bar, basis, measured: OnceLock::new() };
    let context = Context::open_with(model.clone(), config, &watch)?;
    watch.bar.finish_and_clear();
    if config.placement.off_gpu.is_some() && !context.placement().uses(Place::Vram) {
        static NOTED: Once = Once::new();
        NOTED.call_once(|| {
            detail!(
                "--cpu-moe, --n-cpu-moe and -ot change nothing: all of the model is in main memory anyway"
            );
        });
    }
    context.notes().iter().for_each(|note| warning!("{}", failure::in_flags(note)));
    if !context.is_divided() && !context.placement().converted.is_empty() {
        detail!("{}", context.placement().conversion_note());
    }
    let resident = resident_bytes().map_or(String::new(), |b| format!(", {:.0} MB resident", b as f64 / 1e6));
    let took = format!("loaded in {:.2} s{resident}", started.elapsed().as_secs_f64());
    Ok((context, took))
}

#[derive(Args, Clone, Debug)]
pub struct TextArgs {
    /// The text
    #[arg(short = 'p', long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// A file with the text (default: standard input, where that is not a terminal)
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// -bf: the same, with the newline at the end of the file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "file"])]
    binary_file: Option<PathBuf>,
}

impl TextArgs {
    pub fn on_command_line(&self) -> bool {
        self.prompt.is_some()
    }

    /// Whether a flag has it.
    pub fn is_given(&self) -> bool {
        self.prompt.is_some() || self.file.is_some() || self.binary_file.is_some()
    }

    /// The file that has it.
    pub fn file(&self) -> Option<PathBuf> {
        self.binary_file.as_ref().or(self.file.as_ref()).cloned()
    }

    /// Where the text comes from.
    pub fn name(&self) -> String {
        let file = self.binary_file.as_ref().or(self.file.as_ref());
        match (file, &self.prompt) {
            (Some(file), _) => file.display().to_string(),
            (None, Some(_)) => "the command line".into(),
            (None, None) => "standard input".into(),
        }
    }

    /// The text from wherever it comes; `None` if there is none. As in llama.cpp, one newline at the end of a
    /// file is not part of it.
    pub fn read(&self) -> Result<Option<String>> {
        let Some(bytes) = self.bytes()? else { return Ok(None) };
        let text = String::from_utf8(bytes).unwrap_or_else(|e| {
            warning!("the text is not UTF-8; bad bytes are replaced");
            String::from_utf8_lossy(e.as_bytes()).into_owned()
        });
        Ok(Some(text))
    }

    /// The same where there has to be one.
    pub fn needed(&self) -> Result<String> {
        let none = || Error::Usage("no text: give one with -f FILE, -p TEXT or on standard input".into());
        self.read()?.ok_or_else(none)
    }

    /// The same of what need not be text.
    pub fn bytes(&self) -> Result<Option<Vec<u8>>> {
        if let Some(path) = &self.binary_file {
            return read_limited(path, MOST_TEXT).map(Some);
        }
        let mut bytes = match (&self.prompt, &self.file) {
            (Some(text), _) => return Ok(Some(text.clone().into_bytes())),
            (None, Some(path)) => read_limited(path, MOST_TEXT)?,
            (None, None) => {
                let mut stdin = io::stdin().lock();
                if stdin.is_terminal() {
                    return Ok(None);
                }
                let bytes = read_stream_limited("standard input", &mut stdin, MOST_TEXT)?;
                if bytes.is_empty() {
                    return Ok(None);
                }
                bytes
            }
        };
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        Ok(Some(bytes))
    }
}

/// The escapes that llama.cpp's programs know: `\n \r \t \' \" \\ \xHH`; others stay as they are.
pub fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        let plain = |c: char| match c {
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            '\'' | '"' | '\\' => Some(c),
            _ => None,
        };
        let hex = tail
            .strip_prefix('x')
            .and_then(|t| t.get(..2))
            .filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()));
        if let Some(c) = tail.chars().next().and_then(plain) {
            out.push(c);
            rest = &tail[1..];
        } else if let Some(code) = hex.and_then(|h| u8::from_str_radix(h, 16).ok()).filter(u8::is_ascii) {
            out.push(char::from(code));
            rest = &tail[3..];
        } else {
            out.push('\\');
            rest = tail;
        }
    }
    out + rest
}

/// The files of a model that begins with `path`: that one, or all shards, by their names.
pub fn model_files(path: &Path) -> Vec<PathBuf> {
    let shards = || {
        let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (stem, count) = name.rsplit_once("-00001-of-")?;
        let count = count.parse().ok().filter(|_| count.len() == 5)?;
        Some(shards::paths(&path.with_file_name(format!("{stem}.gguf")), count))
    };
    shards().unwrap_or_else(|| vec![path.to_owned()])
}

/// Refuses to write over what the command reads, whatever --force says.
pub fn check_not_read(path: &Path, inputs: &[PathBuf]) -> Result<()> {
    // Links are followed by who writes, too. What is not there yet may be a model that is fetched first.
    let absolute = |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let Ok(output) = absolute(path) else { return Ok(()) };
    let is_output = |input: &PathBuf| absolute(input).is_ok_and(|input| input == output);
    let may_be_file = output.is_file() || !output.exists();
    match may_be_file && inputs.iter().any(is_output) {
        true => {
            Err(Error::Input(format!("{}: is the input too; name another file to write", path.display())))
        }
        false => Ok(()),
    }
}

/// Refuses, before any work is done, to overwrite a file that is there or is one of `inputs`, and what cannot be written.
/// Pipes and devices are written to as they are.
pub fn check_overwrite(path: &Path, force: bool, inputs: &[PathBuf]) -> Result<()> {
    check_not_read(path, inputs)?;
    let name = path.display();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            Err(Error::Usage(format!("{name}: is a directory; name a file in it")))
        }
        Ok(found) if found.is_file() && !force => {
            Err(Error::Usage(format!("{name}: exists; --force overwrites it, or give another name")))
        }
        Ok(found) if !found.is_file() => Ok(()),
        Err(_) if is_named_device(path) => Ok(()),
        _ => check_writable(path),
    }
}

/// Begins a file and drops it again: what stands in the way now would be in the way after the work.
fn check_writable(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.exists()) {
        return Err(Error::Input(format!(
            "{}: there is no folder {}; make it, or name another file",
            path.display(),
            folder.display()
        )));
    }
    Replacement::of(path).map(drop)
}

/// What a result says of where it comes from; the caller adds the text, the mask and what came of it.
pub fn provenance(context: &Context, config: &ContextConfig) -> Provenance {
    with_settings(Provenance::of(context), config)
}

/// The same of what the library has begun.
pub fn with_settings(provenance: Provenance, config: &ContextConfig) -> Provenance {
    provenance
        .command(std::env::args_os())
        .setting("ctx_size", config.n_ctx)
        .setting("batch_size", config.n_ubatch)
        .setting("cache_type_k", config.key_type.to_string())
        .setting("cache_type_v", config.value_type.to_string())
        .setting("planes", config.planes.map(|planes| format!("{planes:?}").to_lowercase()))
}

/// Says how far an earlier run has come, and refuses a state that is further than this run goes.
pub fn going_on(state: &StateFile, done: usize, chunks: usize) -> Result<()> {
    if done > chunks {
        let had = count(done, "chunk");
        return Err(state.refuse(&format!("has {had} already, more than the {chunks} asked for")));
    }
    if done > 0 {
        note!("going on after chunk {done} of {chunks} ({})", state.path().display());
    }
    Ok(())
}

/// What is said of a run that ended early.
pub fn interrupted(done: usize, chunks: usize, kept: bool) -> String {
    let how = if kept { "the same command goes on" } else { "--resume FILE can go on next time" };
    format!("interrupted after {done} of {}; {how}", count(chunks, "chunk"))
}

/// Time by kernel, if --profile asked for it.
pub fn tell_profile(context: &Context) {
    if let Some(table) = context.profile() {
        note!("{}", table.trim_end());
    }
}

/// Writes to stdout and flushes; a closed pipe is [`Error::ClosedPipe`], which ends the program quietly.
pub fn print(text: impl AsRef<[u8]>) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref()).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Error::ClosedPipe,
        _ => Error::io("standard output", e),
    })
}

/// One JSON object on a line, for `--json`.
pub fn print_json(value: &serde_json::Value) -> Result<()> {
    print(format!("{value}\n"))
}

#[cfg(test)]
mod tests {
    use super::{model_files, unescape};

    #[test]
    fn a_model_has_the_files_that_its_name_says() {
        let files = |name: &str| -> Vec<String> {
            let files = model_files(name.as_ref());
            files.iter().map(|path| path.display().to_string().replace('\\', "/")).collect()
        };
        assert_eq!(files("a/m-00001-of-00002.gguf"), ["a/m-00001-of-00002.gguf", "a/m-00002-of-00002.gguf"]);
        for whole in ["m.gguf", "m-00001-of-2.gguf", "m-00001-of-00002", "-"] {
            assert_eq!(files(whole), [whole]);
        }
    }

    #[test]
    fn escapes_are_llama_cpps() {
        assert_eq!(unescape(r"a\nb\t\x41\\n\'"), "a\nb\tA\\n'");
        assert_eq!(unescape(r"\q \x4 \xZZ é\"), r"\q \x4 \xZZ é\");
    }
}
