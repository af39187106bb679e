//! llama.cpp's flags (llama-cli, llama-completion, llama-perplexity, llama-bench, llama-embedding, llama-server), and what becomes of each here. The
//! command line is read by this table, and the tables of docs/llama-cpp.md are made of it.

/// How many words follow a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Value,
    /// on, off or auto; or nothing.
    Switch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here {
    /// Done, by this flag.
    Same(&'static str),
    /// Done, by this flag; it asks for --chat too.
    Chat(&'static str),
    /// Done by a subcommand.
    Command(&'static str),
    /// Changes nothing here; why.
    Accepted(&'static str),
    /// These values are how it is here; others are refused, and why.
    Only(&'static [&'static str], &'static str),
    /// What there is instead.
    Refused(&'static str),
    /// Of the same name and another meaning: this one.
    Own(&'static str),
    /// A conversation: `spec-run chat`, or --chat where one turn is asked for.
    Conversation,
}

#[derive(Clone, Copy, Debug)]
pub struct Flag {
    pub names: &'static [&'static str],
    pub takes: Takes,
    /// The variable of the environment; empty if there is none.
    pub env: &'static str,
    pub here: Here,
}

use Here::{Accepted, Chat, Command, Conversation, Only, Own, Refused, Same};
use Takes::{Nothing, Switch, Value};

const fn flag(names: &'static [&'static str], takes: Takes, env: &'static str, here: Here) -> Flag {
    Flag { names, takes, env, here }
}

/// Grammars are a feature of the build.
const fn grammar(flag: &'static str) -> Here {
    match cfg!(feature = "constraints") {
        true => Same(flag),
        false => Refused("this program was built without grammars (the feature `constraints`)"),
    }
}

pub const NO_SUCH_DRAFT: &str =
    "drafters of this kind are not read here; take a draft model (-md), or make a head with `spec-run fit`";
const DRAFT_MODEL_SHARES: &str = "the draft model runs on the threads of the model";
const DRAFT_MODEL_FITS: &str = "what of the draft model fits the GPU is found out";
const PROMPTS_RUN_THERE_TOO: &str = "prompts run where everything does";
const FITS_BY_ITSELF: &str = "what fits the GPU is found out; see --dry-run";
const GPUS: &str = "--device 0,1 names the GPUs, which are filled in this order; --vram says how much of each, --tensor-split in which proportion";
const TEXT_ONLY: &str = "only text is read here; use llama-mtmd-cli";
const TEMPLATE_SAYS: &str = "the chat template says what stands around a message";
const PROMPT_FILES: &str = "a prompt's state is not kept on disk; leave it out";
const LOGS: &str = "there is no log; -v says more on stderr";
const LOOKUP: &str = "the lookup finds its own lengths; see --spec-type ngram";
const NO_TLS: &str = "the server speaks HTTP only; put a proxy with TLS before it";
const PRESETS: &str = "name the model with -m FILE or -hf USER/REPO";
const TEMPLATES: &str =
    "the template is the model's or that of --chat-template-file; it takes no settings yet";

/// Flags of the same name and meaning, without a variable in the environment: clap says what follows them.
#[cfg(test)]
#[rustfmt::skip]
pub const AS_THEY_ARE: &[&str] = &[
    "-h", "--version", "--display-prompt", "--no-display-prompt", "--cpu-strict", "--keep",
    "--no-context-shift", "-p", "--prompt", "-f", "--file", "--no-escape", "-r", "--reverse-prompt", "-s", "--seed",
    "--ignore-eos", "--repeat-last-n", "-l", "--logit-bias", "--samplers", "--xtc-probability", "--xtc-threshold",
    "--dry-multiplier", "--dry-base", "--dry-allowed-length", "--dry-penalty-last-n", "--dry-sequence-breaker",
    "--dynatemp-range", "--dynatemp-exp", "--mirostat", "--mirostat-lr", "--mirostat-ent", "--no-mmap", "--lora",
    "--lora-scaled", "--control-vector", "--control-vector-scaled", "--control-vector-layer-range", "--chunks",
    "--hellaswag", "--hellaswag-tasks", "--winogrande", "--winogrande-tasks", "--multiple-choice",
    "--multiple-choice-tasks", "--kl-divergence",
];

/// The other flags, in the order of llama.cpp's --help.
#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    // General.
    flag(&["--help", "--usage"], Nothing, "", Same("--help")),
    flag(&["-cl", "--cache-list"], Nothing, "", Same("--cache-list")),
    flag(&["--completion-bash"], Nothing, "", Command("completions bash")),
    flag(&["--list-devices"], Nothing, "", Command("devices")),
    flag(&["--server-base"], Value, "", Refused("nothing here talks to a server; leave it out")),
    flag(&["-v", "--verbose", "--log-verbose"], Nothing, "", Same("--verbose")),
    flag(&["-co", "--color"], Switch, "", Same("--color")),
    flag(&["--verbose-prompt"], Nothing, "", Accepted("`spec-run tokenize` shows a prompt's tokens")),
    // Threads.
    flag(&["-t", "--threads"], Value, "LLAMA_ARG_THREADS", Same("--threads")),
    flag(&["-tb", "--threads-batch"], Value, "", Same("--threads-batch")),
    flag(&["-C", "--cpu-mask"], Value, "", Same("--cpu-mask")),
    flag(&["-Cr", "--cpu-range"], Value, "", Same("--cpu-range")),
    flag(&["-Cb", "--cpu-mask-batch", "-Crb", "--cpu-range-batch", "--cpu-strict-batch"], Value, "", Accepted(PROMPTS_RUN_THERE_TOO)),
    flag(&["--prio", "--prio-batch"], Value, "", Accepted("the priority is the system's; see nice")),
    flag(&["--poll", "--poll-batch"], Value, "", Accepted("how threads wait is decided by itself")),
    flag(&["--numa"], Value, "LLAMA_ARG_NUMA", Same("--numa")),
    // Context.
    flag(&["-c", "--ctx-size"], Value, "LLAMA_ARG_CTX_SIZE", Same("--ctx-size")),
    flag(&["-n", "--predict", "--n-predict"], Value, "LLAMA_ARG_N_PREDICT", Same("--predict")),
    flag(&["-b", "--batch-size"], Value, "LLAMA_ARG_BATCH", Same("--batch-size")),
    flag(&["-ub", "--ubatch-size"], Value, "LLAMA_ARG_UBATCH", Same("--ubatch-size")),
    flag(&["--swa-full"], Nothing, "LLAMA_ARG_SWA_FULL", Same("--swa-full")),
    flag(&["-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"], Value, "LLAMA_ARG_CTX_CHECKPOINTS", Accepted("there is one sequence")),
    flag(&["-cram", "--cache-ram"], Value, "LLAMA_ARG_CACHE_RAM", Accepted("there is one sequence")),
    flag(&["-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"], Nothing, "LLAMA_ARG_KV_UNIFIED", Accepted("there is one sequence")),
    flag(&["--context-shift"], Nothing, "LLAMA_ARG_CONTEXT_SHIFT", Same("--context-shift")),
    flag(&["-fa", "--flash-attn"], Switch, "LLAMA_ARG_FLASH_ATTN", Accepted("flash attention is always on")),
    flag(&["-dt", "--defrag-thold"], Value, "LLAMA_ARG_DEFRAG_THOLD", Accepted("the cache needs no defragmentation")),
    flag(&["-np", "--parallel"], Value, "LLAMA_ARG_N_PARALLEL", Only(&["1", "-1"], "one sequence runs at a time")),
    flag(&["--rope-scaling"], Value, "LLAMA_ARG_ROPE_SCALING_TYPE", Same("--rope-scaling")),
    flag(&["--rope-scale"], Value, "LLAMA_ARG_ROPE_SCALE", Same("--rope-scale")),
    flag(&["--rope-freq-base"], Value, "LLAMA_ARG_ROPE_FREQ_BASE", Same("--rope-freq-base")),
    flag(&["--rope-freq-scale"], Value, "LLAMA_ARG_ROPE_FREQ_SCALE", Same("--rope-freq-scale")),
    flag(&["--yarn-orig-ctx"], Value, "LLAMA_ARG_YARN_ORIG_CTX", Same("--yarn-orig-ctx")),
    flag(&["--yarn-ext-factor"], Value, "LLAMA_ARG_YARN_EXT_FACTOR", Same("--yarn-ext-factor")),
    flag(&["--yarn-attn-factor"], Value, "LLAMA_ARG_YARN_ATTN_FACTOR", Same("--yarn-attn-factor")),
    flag(&["--yarn-beta-slow"], Value, "LLAMA_ARG_YARN_BETA_SLOW", Same("--yarn-beta-slow")),
    flag(&["--yarn-beta-fast"], Value, "LLAMA_ARG_YARN_BETA_FAST", Same("--yarn-beta-fast")),
    flag(&["-gan", "--grp-attn-n"], Value, "LLAMA_ARG_GRP_ATTN_N", Only(&["1"], "a longer context by groups is not there; see --context-shift")),
    flag(&["-gaw", "--grp-attn-w"], Value, "LLAMA_ARG_GRP_ATTN_W", Accepted("it counts only with -gan")),
    flag(&["-kvo", "--kv-offload"], Nothing, "LLAMA_ARG_KV_OFFLOAD", Accepted("keys and values are where their layer runs")),
    flag(&["-nkvo", "--no-kv-offload"], Nothing, "", Accepted("keys and values are where their layer runs")),
    flag(&["-ctk", "--cache-type-k"], Value, "LLAMA_ARG_CACHE_TYPE_K", Same("--cache-type-k")),
    flag(&["-ctv", "--cache-type-v"], Value, "LLAMA_ARG_CACHE_TYPE_V", Same("--cache-type-v")),
    // Text.
    flag(&["-bf", "--binary-file"], Value, "", Same("--binary-file")),
    flag(&["--in-file"], Value, "", Refused("-f FILE reads text")),
    flag(&["-e", "--escape"], Nothing, "", Accepted("escapes are processed unless --no-escape says no")),
    flag(&["-sp", "--special"], Nothing, "", Refused("special tokens are not shown; --json lists the ids")),
    flag(&["-ptc", "--print-token-count"], Value, "", Accepted("the report at the end counts tokens")),
    flag(&["--prompt-cache"], Value, "", Refused(PROMPT_FILES)),
    flag(&["--prompt-cache-all", "--prompt-cache-ro"], Nothing, "", Refused(PROMPT_FILES)),
    flag(&["--warmup", "--no-warmup"], Nothing, "", Accepted("there is no warm-up run")),
    flag(&["--perf", "--no-perf"], Nothing, "LLAMA_ARG_PERF", Accepted("speeds are always measured")),
    flag(&["--show-timings", "--no-show-timings"], Nothing, "LLAMA_ARG_SHOW_TIMINGS", Accepted("speeds are reported unless -q says no")),
    flag(&["--simple-io"], Nothing, "", Accepted("standard output is plain")),
    // Chat.
    flag(&["-sys", "--system-prompt"], Value, "", Chat("--system")),
    flag(&["-sysf", "--system-prompt-file"], Value, "", Chat("--system-file")),
    flag(&["-st", "--single-turn"], Nothing, "", Chat("")),
    flag(&["-cnv", "--conversation"], Nothing, "", Conversation),
    flag(&["-no-cnv", "--no-conversation"], Nothing, "", Same("--no-conversation")),
    flag(&["-i", "--interactive"], Nothing, "", Conversation),
    flag(&["-if", "--interactive-first"], Nothing, "", Conversation),
    flag(&["-mli", "--multiline-input"], Nothing, "", Accepted("a prompt may have several lines")),
    flag(&["--in-prefix", "--in-suffix"], Value, "", Refused(TEMPLATE_SAYS)),
    flag(&["--in-prefix-bos"], Nothing, "", Refused(TEMPLATE_SAYS)),
    flag(&["--jinja"], Nothing, "LLAMA_ARG_JINJA", Accepted("chat templates are always run as Jinja")),
    flag(&["--no-jinja"], Nothing, "", Refused("chat templates are always run as Jinja")),
    flag(&["--chat-template"], Value, "LLAMA_ARG_CHAT_TEMPLATE", Same("--chat-template")),
    flag(&["--chat-template-file"], Value, "LLAMA_ARG_CHAT_TEMPLATE_FILE", Same("--chat-template-file")),
    flag(&["--chat-template-kwargs"], Value, "LLAMA_ARG_CHAT_TEMPLATE_KWARGS", Refused(TEMPLATES)),
    flag(&["--skip-chat-parsing", "--no-skip-chat-parsing"], Nothing, "LLAMA_ARG_SKIP_CHAT_PARSING", Accepted("text is shown as the model writes it")),
    flag(&["--reasoning-format"], Value, "LLAMA_ARG_THINK", Accepted("text is shown as the model writes it")),
    flag(&["-rea", "--reasoning"], Value, "LLAMA_ARG_REASONING", Only(&["auto"], TEMPLATES)),
    flag(&["--reasoning-effort"], Value, "LLAMA_ARG_REASONING_EFFORT", Only(&["default"], TEMPLATES)),
    flag(&["--reasoning-budget"], Value, "LLAMA_ARG_THINK_BUDGET", Only(&["-1"], "thoughts are not counted; see -n")),
    flag(&["--reasoning-budget-message"], Value, "LLAMA_ARG_THINK_BUDGET_MESSAGE", Accepted("it counts only with --reasoning-budget")),
    flag(&["--reasoning-preserve", "--no-reasoning-preserve"], Nothing, "LLAMA_ARG_REASONING_PRESERVE", Accepted("there is one turn")),
    // Sampling.
    flag(&["--temp", "--temperature"], Value, "LLAMA_ARG_TEMPERATURE", Same("--temp")),
    flag(&["--top-k"], Value, "LLAMA_ARG_TOP_K", Same("--top-k")),
    flag(&["--top-p"], Value, "LLAMA_ARG_TOP_P", Same("--top-p")),
    flag(&["--min-p"], Value, "LLAMA_ARG_MIN_P", Same("--min-p")),
    flag(&["--typical", "--typical-p"], Value, "", Same("--typical")),
    flag(&["--repeat-penalty"], Value, "LLAMA_ARG_REPEAT_PENALTY", Same("--repeat-penalty")),
    flag(&["--presence-penalty"], Value, "LLAMA_ARG_PRESENCE_PENALTY", Same("--presence-penalty")),
    flag(&["--frequency-penalty"], Value, "LLAMA_ARG_FREQUENCY_PENALTY", Same("--frequency-penalty")),
    flag(&["--sampler-seq", "--sampling-seq"], Value, "", Same("--sampling-seq")),
    flag(&["--top-nsigma", "--top-n-sigma"], Value, "", Same("--top-n-sigma")),
    flag(&["--adaptive-target"], Value, "", Only(&["-1"], "there is no such sampler here; see --mirostat")),
    flag(&["--adaptive-decay"], Value, "", Accepted("it counts only with --adaptive-target")),
    flag(&["--grammar"], Value, "", grammar("--grammar")),
    flag(&["--grammar-file"], Value, "", grammar("--grammar-file")),
    flag(&["-j", "--json-schema"], Value, "", grammar("--json-schema")),
    flag(&["-jf", "--json-schema-file"], Value, "", grammar("--json-schema-file")),
    flag(&["-bs", "--backend-sampling"], Nothing, "LLAMA_ARG_BACKEND_SAMPLING", Accepted("where sampling runs is decided by itself")),
    // The model.
    flag(&["-m", "--model"], Value, "LLAMA_ARG_MODEL", Same("--model")),
    flag(&["-mu", "--model-url"], Value, "LLAMA_ARG_MODEL_URL", Same("--model-url")),
    flag(&["-hf", "-hfr", "--hf-repo"], Value, "LLAMA_ARG_HF_REPO", Same("--hf-repo")),
    flag(&["-hff", "--hf-file"], Value, "LLAMA_ARG_HF_FILE", Same("--hf-file")),
    flag(&["-hft", "--hf-token"], Value, "", Same("--hf-token")),
    flag(&["-dr", "--docker-repo"], Value, "LLAMA_ARG_DOCKER_REPO", Refused("models come from Hugging Face: -hf USER/REPO")),
    flag(&["--offline"], Nothing, "LLAMA_ARG_OFFLINE", Same("--offline")),
    flag(&["-lm", "--load-mode"], Value, "LLAMA_ARG_LOAD_MODE", Same("--load-mode")),
    flag(&["--mmap"], Nothing, "", Accepted("files are mapped unless --load-mode says no")),
    flag(&["--mlock"], Nothing, "", Accepted("weights are copied to memory where that is faster; nothing is locked")),
    flag(&["-lzm", "--lazy-mode"], Value, "LLAMA_ARG_LAZY_MODE", Accepted("a tensor is read when it is needed; see --no-repack")),
    flag(&["--repack"], Nothing, "LLAMA_ARG_REPACK", Accepted("weights are repacked unless --no-repack says no")),
    flag(&["-nr", "--no-repack"], Nothing, "", Same("--no-repack")),
    flag(&["--no-host"], Nothing, "LLAMA_ARG_NO_HOST", Accepted("buffers are chosen by themselves")),
    flag(&["--check-tensors"], Nothing, "", Accepted("what loading needs is always checked")),
    flag(&["--override-kv"], Value, "", Refused("the file's metadata counts; change it with gguf-py's gguf_set_metadata.py")),
    flag(&["--gpt-oss-20b-default", "--gpt-oss-120b-default", "--vision-gemma-4b-default", "--vision-gemma-12b-default"], Nothing, "", Refused(PRESETS)),
    // Devices.
    flag(&["-dev", "--device"], Value, "LLAMA_ARG_DEVICE", Same("--device")),
    flag(&["-ngl", "--gpu-layers", "--n-gpu-layers"], Value, "LLAMA_ARG_N_GPU_LAYERS", Same("--n-gpu-layers")),
    flag(&["-sm", "--split-mode"], Value, "LLAMA_ARG_SPLIT_MODE", Only(&["none", "layer"], GPUS)),
    flag(&["-ts", "--tensor-split"], Value, "LLAMA_ARG_TENSOR_SPLIT", Same("--tensor-split")),
    flag(&["-mg", "--main-gpu"], Value, "LLAMA_ARG_MAIN_GPU", Only(&["0"], GPUS)),
    flag(&["-ot", "--override-tensor"], Value, "LLAMA_ARG_OVERRIDE_TENSOR", Same("--override-tensor")),
    flag(&["-cmoe", "--cpu-moe"], Nothing, "LLAMA_ARG_CPU_MOE", Same("--cpu-moe")),
    flag(&["-ncmoe", "--n-cpu-moe"], Value, "LLAMA_ARG_N_CPU_MOE", Same("--n-cpu-moe")),
    flag(&["-ncffn", "--n-cpu-ffn"], Value, "LLAMA_ARG_N_CPU_FFN", Accepted(FITS_BY_ITSELF)),
    flag(&["-fit", "--fit"], Switch, "LLAMA_ARG_FIT", Accepted(FITS_BY_ITSELF)),
    flag(&["-fitt", "--fit-target"], Value, "LLAMA_ARG_FIT_TARGET", Accepted(FITS_BY_ITSELF)),
    flag(&["-fitc", "--fit-ctx"], Value, "LLAMA_ARG_FIT_CTX", Accepted(FITS_BY_ITSELF)),
    flag(&["--op-offload", "--no-op-offload"], Nothing, "", Accepted("an operation runs where its weights are")),
    flag(&["--rpc"], Value, "LLAMA_ARG_RPC", Refused("a model runs on one machine; use llama-cli")),
    // Drafting.
    flag(&["--spec-type"], Value, "LLAMA_ARG_SPEC_TYPE", Same("--spec-type")),
    flag(&["--spec-default"], Nothing, "", Accepted("drafting is on unless --spec-type none says no")),
    flag(&["--spec-draft-n-max", "--draft-max", "--draft-n"], Value, "LLAMA_ARG_SPEC_DRAFT_N_MAX", Same("--spec-draft-n-max")),
    flag(&["--spec-draft-n-min", "--draft-min", "--draft-n-min"], Value, "LLAMA_ARG_SPEC_DRAFT_N_MIN", Same("--spec-draft-n-min")),
    flag(&["--spec-draft-p-min", "--draft-p-min"], Value, "LLAMA_ARG_SPEC_DRAFT_P_MIN", Same("--spec-draft-p-min")),
    flag(&["--draft"], Value, "", Own("what drafts, as --spec-type; for the length of drafts there is --spec-draft-n-max")),
    flag(&["--spec-draft-p-split", "--draft-p-split"], Value, "LLAMA_ARG_SPEC_DRAFT_P_SPLIT", Accepted("a draft has one branch")),
    flag(&["--spec-draft-model", "-md", "--model-draft"], Value, "LLAMA_ARG_SPEC_DRAFT_MODEL", Same("--spec-draft-model")),
    flag(&["--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"], Value, "LLAMA_ARG_SPEC_DRAFT_HF_REPO", Same("--spec-draft-hf")),
    flag(&["--spec-draft-ngl", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"], Value, "LLAMA_ARG_N_GPU_LAYERS_DRAFT", Same("--spec-draft-ngl")),
    flag(&["--spec-draft-device", "-devd", "--device-draft"], Value, "", Same("--spec-draft-device")),
    flag(
        &["--spec-draft-threads", "-td", "--threads-draft", "--spec-draft-threads-batch", "-tbd",
          "--threads-batch-draft", "--spec-draft-cpu-mask", "-Cd", "--cpu-mask-draft", "--spec-draft-cpu-range",
          "-Crd", "--cpu-range-draft", "--spec-draft-cpu-strict", "--cpu-strict-draft", "--spec-draft-prio",
          "--prio-draft", "--spec-draft-poll", "--poll-draft", "--spec-draft-cpu-mask-batch", "-Cbd",
          "--cpu-mask-batch-draft", "--spec-draft-cpu-strict-batch", "--cpu-strict-batch-draft",
          "--spec-draft-prio-batch", "--prio-batch-draft", "--spec-draft-poll-batch", "--poll-batch-draft"],
        Value, "", Accepted(DRAFT_MODEL_SHARES),
    ),
    flag(&["--spec-draft-type-k", "-ctkd", "--cache-type-k-draft"], Value, "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", Same("--spec-draft-type-k")),
    flag(&["--spec-draft-type-v", "-ctvd", "--cache-type-v-draft"], Value, "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", Same("--spec-draft-type-v")),
    flag(&["--spec-draft-override-tensor", "-otd", "--override-tensor-draft"], Value, "", Accepted(DRAFT_MODEL_FITS)),
    flag(&["--spec-draft-cpu-moe", "-cmoed", "--cpu-moe-draft"], Nothing, "LLAMA_ARG_SPEC_DRAFT_CPU_MOE", Accepted(DRAFT_MODEL_FITS)),
    flag(&["--spec-draft-n-cpu-moe", "--spec-draft-ncmoe", "-ncmoed", "--n-cpu-moe-draft"], Value, "LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE", Accepted(DRAFT_MODEL_FITS)),
    flag(&["--spec-draft-backend-sampling", "--no-spec-draft-backend-sampling"], Nothing, "LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING", Accepted("where sampling runs is decided by itself")),
    flag(&["--spec-synth-len"], Value, "LLAMA_ARG_SPEC_SYNTH_LEN", Refused("acceptance is not made up here; `spec-run synth` makes models whose drafts are good")),
    flag(&["--spec-synth-rates"], Value, "LLAMA_ARG_SPEC_SYNTH_RATES", Refused("acceptance is not made up here; `spec-run synth` makes models whose drafts are good")),
    flag(
        &["--spec-ngram-mod-n-min", "--spec-ngram-mod-n-max", "--spec-ngram-mod-n-match", "--spec-ngram-simple-size-n",
          "--spec-ngram-simple-size-m", "--spec-ngram-simple-min-hits", "--spec-ngram-map-k-size-n",
          "--spec-ngram-map-k-size-m", "--spec-ngram-map-k-min-hits", "--spec-ngram-map-k4v-size-n",
          "--spec-ngram-map-k4v-size-m", "--spec-ngram-map-k4v-min-hits"],
        Value, "", Accepted(LOOKUP),
    ),
    // Images and sound.
    flag(&["-mm", "--mmproj"], Value, "LLAMA_ARG_MMPROJ", Refused(TEXT_ONLY)),
    flag(&["-mmu", "--mmproj-url"], Value, "LLAMA_ARG_MMPROJ_URL", Refused(TEXT_ONLY)),
    flag(&["-mmdev", "--mmproj-device"], Value, "", Accepted("only text is read here")),
    flag(&["--mmproj-auto", "--no-mmproj", "--no-mmproj-auto"], Nothing, "LLAMA_ARG_MMPROJ_AUTO", Accepted("only text is read here")),
    flag(&["--mmproj-offload", "--no-mmproj-offload"], Nothing, "LLAMA_ARG_MMPROJ_OFFLOAD", Accepted("only text is read here")),
    flag(&["--image", "--audio", "--video"], Value, "", Refused(TEXT_ONLY)),
    flag(&["--image-min-tokens"], Value, "LLAMA_ARG_IMAGE_MIN_TOKENS", Accepted("only text is read here")),
    flag(&["--image-max-tokens"], Value, "LLAMA_ARG_IMAGE_MAX_TOKENS", Accepted("only text is read here")),
    flag(&["--video-fps"], Value, "LLAMA_ARG_VIDEO_FPS", Accepted("only text is read here")),
    flag(&["--video-timestamp-interval"], Value, "LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL", Accepted("only text is read here")),
    flag(&["--video-ffmpeg-dir"], Value, "LLAMA_ARG_VIDEO_FFMPEG_DIR", Accepted("only text is read here")),
    // Logs.
    flag(&["--log-disable"], Nothing, "", Accepted(LOGS)),
    flag(&["--log-file"], Value, "LLAMA_ARG_LOG_FILE", Accepted("there is no log; 2> FILE keeps what is said on stderr")),
    flag(&["--log-jsonl", "--no-log-jsonl"], Nothing, "LLAMA_ARG_LOG_JSONL", Accepted(LOGS)),
    flag(&["--log-prompts-dir"], Value, "", Accepted(LOGS)),
    flag(&["--log-colors"], Switch, "LLAMA_ARG_LOG_COLORS", Accepted(LOGS)),
    flag(&["--log-prefix", "--no-log-prefix"], Nothing, "LLAMA_ARG_LOG_PREFIX", Accepted(LOGS)),
    flag(&["--log-timestamps", "--no-log-timestamps"], Nothing, "LLAMA_ARG_LOG_TIMESTAMPS", Accepted(LOGS)),
    flag(&["-lv", "--verbosity", "--log-verbosity"], Value, "LLAMA_ARG_LOG_VERBOSITY", Accepted(LOGS)),
    // llama-perplexity.
    flag(&["--save-all-logits", "--kl-divergence-base"], Value, "", Same("--kl-divergence-base")),
    flag(&["--ppl-stride"], Value, "", Only(&["0"], "chunks do not overlap here")),
    flag(&["--ppl-output-type"], Value, "", Only(&["0"], "--json and --csv are the other outputs")),
];

/// llama-bench's own flags; what is not here is as in [`FLAGS`].
#[rustfmt::skip]
pub const BENCH: &[Flag] = &[
    flag(&["-p", "--n-prompt"], Value, "", Same("--n-prompt")),
    flag(&["-n", "--n-gen"], Value, "", Same("--n-gen")),
    flag(&["-d", "--n-depth"], Value, "", Same("--n-depth")),
    flag(&["-pg"], Value, "", Same("--n-prompt-gen")),
    flag(&["-r", "--repetitions"], Value, "", Same("--rounds")),
    flag(&["-o", "--output"], Value, "", Same("--output")),
    flag(&["-oe", "--output-err"], Value, "", Refused("results go to standard output only; see -o")),
    flag(&["--delay"], Value, "", Only(&["0"], "there is no pause between tests")),
    flag(&["--progress"], Nothing, "", Accepted("a bar is shown at a terminal")),
    flag(&["-embd", "--embeddings"], Value, "", Only(&["0"], "only text is generated here")),
    flag(&["-nopo", "--no-op-offload"], Value, "", Accepted("an operation runs where its weights are")),
    flag(&["-nkvo", "--no-kv-offload"], Value, "", Accepted("keys and values are where their layer runs")),
    flag(&["--no-host"], Value, "", Accepted("buffers are chosen by themselves")),
    flag(&["--repack"], Value, "", Only(&["1"], "--no-repack reads weights as they are in the file")),
    flag(&["-rpc", "--rpc"], Value, "", Refused("a model runs on one machine; use llama-bench")),
];

/// llama-embedding's own flags; what is not here is as in [`FLAGS`].
#[rustfmt::skip]
pub const EMBED: &[Flag] = &[
    flag(&["--pooling"], Value, "LLAMA_ARG_POOLING", Same("--pooling")),
    flag(&["--embd-normalize"], Value, "", Same("--embd-normalize")),
    flag(&["--embd-output-format"], Value, "", Same("--embd-output-format")),
    flag(&["--embd-separator"], Value, "", Same("--embd-separator")),
    flag(&["--cls-separator"], Value, "", Same("--cls-separator")),
    flag(&["--attention"], Value, "", Refused("whether a token sees what comes behind it is as the model's file says")),
    flag(&["-np", "--parallel"], Value, "LLAMA_ARG_N_PARALLEL", Accepted("as many texts share a pass as fit")),
    flag(&["--embd-gemma-default"], Nothing, "", Refused(PRESETS)),
];

/// llama-server's flags that `serve` does not take as they are, or that mean something else to other commands.
#[rustfmt::skip]
pub const SERVE: &[Flag] = &[
    flag(&["-np", "--parallel"], Value, "LLAMA_ARG_N_PARALLEL", Same("--parallel")),
    flag(&["-kvu", "--kv-unified"], Nothing, "LLAMA_ARG_KV_UNIFIED", Same("--kv-unified")),
    flag(&["--host"], Value, "LLAMA_ARG_HOST", Same("--host")),
    flag(&["--port"], Value, "LLAMA_ARG_PORT", Same("--port")),
    flag(&["-to", "--timeout"], Value, "LLAMA_ARG_TIMEOUT", Same("--timeout")),
    flag(&["--api-key"], Value, "LLAMA_API_KEY", Same("--api-key")),
    flag(&["-a", "--alias"], Value, "LLAMA_ARG_ALIAS", Same("--alias")),
    flag(&["--tags"], Value, "LLAMA_ARG_TAGS", Same("--tags")),
    flag(&["--metrics"], Nothing, "LLAMA_ARG_ENDPOINT_METRICS", Same("--metrics")),
    flag(&["--chat-template-kwargs"], Value, "LLAMA_ARG_CHAT_TEMPLATE_KWARGS", Same("--chat-template-kwargs")),
    flag(&["--reasoning-format"], Value, "LLAMA_ARG_THINK", Same("--reasoning-format")),
    flag(&["-rea", "--reasoning"], Value, "LLAMA_ARG_REASONING", Same("--reasoning")),
    flag(&["--ui", "--webui"], Nothing, "LLAMA_ARG_UI", Accepted("there is a page unless --no-ui says no")),
    flag(&["--props"], Nothing, "LLAMA_ARG_ENDPOINT_PROPS", Accepted("/props tells what there is, and changes nothing")),
    flag(&["--prefill-assistant"], Nothing, "LLAMA_ARG_PREFILL_ASSISTANT", Accepted("it is so unless --no-prefill-assistant says no")),
    flag(&["--cache-prompt", "--no-cache-prompt"], Nothing, "LLAMA_ARG_CACHE_PROMPT", Accepted("a prompt begins with the longest text that begins alike")),
    flag(&["--cache-reuse"], Value, "LLAMA_ARG_CACHE_REUSE", Only(&["0"], "what is kept of a text is its beginning")),
    flag(&["--ssl-key-file"], Value, "LLAMA_ARG_SSL_KEY_FILE", Refused(NO_TLS)),
    flag(&["--ssl-cert-file"], Value, "LLAMA_ARG_SSL_CERT_FILE", Refused(NO_TLS)),
    flag(&["--api-prefix"], Value, "LLAMA_ARG_API_PREFIX", Refused("addresses have no prefix; a proxy before the server can add one")),
    flag(&["--path"], Value, "LLAMA_ARG_STATIC_PATH", Refused("the server has a page of its own and no other files; see --no-ui")),
    flag(&["--jinja", "--no-jinja"], Nothing, "LLAMA_ARG_JINJA", Accepted("chat templates are always run as Jinja")),
    flag(&["-cb", "--cont-batching", "-nocb", "--no-cont-batching"], Nothing, "LLAMA_ARG_CONT_BATCHING", Accepted("texts are always made side by side")),
    flag(&["-bs", "--backend-sampling", "--backend_sampling"], Nothing, "LLAMA_ARG_BACKEND_SAMPLING", Accepted("where sampling runs is decided by itself")),
    flag(&["--cache-idle-slots", "--no-cache-idle-slots"], Nothing, "LLAMA_ARG_CACHE_IDLE_SLOTS", Accepted("texts that have ended stay in the context while there is room")),
    flag(&["-cram", "--cache-ram"], Value, "LLAMA_ARG_CACHE_RAM", Accepted("texts that have ended stay in the context; see -c")),
    flag(&["-sps", "--slot-prompt-similarity"], Value, "", Accepted("a prompt begins with the longest text that begins alike")),
    flag(&["--threads-http"], Value, "LLAMA_ARG_THREADS_HTTP", Accepted("requests have few threads of their own")),
    flag(&["--no-context-shift"], Nothing, "", Accepted("the context is shifted only with --context-shift")),
    flag(&["--warmup", "--no-warmup"], Nothing, "", Accepted("there is no warm-up run")),
    flag(&["-fa", "--flash-attn"], Switch, "LLAMA_ARG_FLASH_ATTN", Accepted("flash attention is always on")),
    flag(&["--ui-mcp-proxy", "--webui-mcp-proxy"], Nothing, "LLAMA_ARG_UI_MCP_PROXY", Refused("whoever reaches the server could have it fetch any address")),
    flag(&["--tools", "--tools-runtime"], Value, "LLAMA_ARG_TOOLS", Refused("the server runs no tools; clients run those that a model calls")),
    flag(&["--mcp-servers-config", "--mcp-servers-json"], Value, "", Refused("the server runs no tools; clients run those that a model calls")),
    flag(&["--embedding", "--embeddings"], Nothing, "LLAMA_ARG_EMBEDDINGS", Same("--embeddings")),
    flag(&["--rerank", "--reranking"], Nothing, "LLAMA_ARG_RERANKING", Same("--rerank")),
    flag(&["--pooling"], Value, "LLAMA_ARG_POOLING", Same("--pooling")),
    flag(&["--embd-normalize"], Value, "", Same("--embd-normalize")),
    flag(&["--embd-gemma-default"], Nothing, "", Refused(PRESETS)),
    flag(&["--models-dir"], Value, "LLAMA_ARG_MODELS_DIR", Same("--models-dir")),
    flag(&["--models-preset"], Value, "LLAMA_ARG_MODELS_PRESET", Same("--models-preset")),
    flag(&["--models-max"], Value, "LLAMA_ARG_MODELS_MAX", Same("--models-max")),
    flag(&["--models-autoload"], Nothing, "LLAMA_ARG_MODELS_AUTOLOAD", Same("--models-autoload")),
    flag(&["--no-models-autoload"], Nothing, "", Same("--no-models-autoload")),
];

/// Each table of docs/llama-cpp.md, by its first heading.
#[cfg(test)]
pub const TABLES: [(&str, &[Flag]); 4] =
    [("llama.cpp", FLAGS), ("llama-bench", BENCH), ("llama-embedding", EMBED), ("llama-server", SERVE)];

impl Here {
    /// The flag of ours that does it, without dashes.
    fn long(self) -> Option<&'static str> {
        match self {
            Same(long) | Chat(long) => long.strip_prefix("--"),
            _ => None,
        }
    }

    /// For the documents.
    #[cfg(test)]
    pub fn describe(self) -> String {
        let listed = |values: &[&str]| {
            values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(" or ")
        };
        match self {
            Same(long) => format!("`{long}`"),
            Chat("") => "`--chat`".into(),
            Chat(long) => format!("`{long}`, with `--chat`"),
            Command(command) => format!("`spec-run {command}`"),
            Accepted(why) => format!("ignored: {why}"),
            Only(values, why) => format!("{} only: {why}", listed(values)),
            Refused(why) => format!("refused: {why}"),
            Own(what) => format!("other: {what}"),
            Conversation => "`spec-run chat`; with `-st`, `--chat`".into(),
        }
    }
}

/// The rows of a command that stands for another program than llama-cli.
pub fn own_rows(command: Option<&str>) -> &'static [Flag] {
    match command {
        Some("bench") => BENCH,
        Some("embed") => EMBED,
        Some("serve") => SERVE,
        _ => &[],
    }
}

/// The environment's variable for a flag of a command of ours, named without dashes.
pub fn env_of(command: Option<&str>, long: &str) -> Option<&'static str> {
    let is = |flag: &&Flag| !flag.env.is_empty() && flag.here.long() == Some(long);
    own_rows(command).iter().chain(FLAGS).find(is).map(|flag| flag.env)
}

/// What llama.cpp's programs read from the environment, as a command of ours does.
pub fn of_environment(command: Option<&str>) -> impl Iterator<Item = &'static Flag> {
    let own = own_rows(command);
    let others = FLAGS.iter().filter(move |flag| own.iter().all(|row| row.env != flag.env));
    own.iter().chain(others).filter(|flag| !flag.env.is_empty())
}

#[cfg(test)]
impl Flag {
    /// A row of the documents' table.
    pub fn row(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let env = if self.env.is_empty() { String::new() } else { format!("`{}`", self.env) };
        format!("| {} | {} | {env} |", names.join(" "), self.here.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_three_columns() {
        for flag in TABLES.iter().flat_map(|(_, flags)| *flags) {
            assert_eq!(flag.row().matches('|').count(), 4, "{}", flag.row());
        }
    }
}
