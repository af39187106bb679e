//! `spec-run [OPTIONS]`: generates text.

use std::{
    io::{self, IsTerminal},
    ops::ControlFlow,
};

use clap::Args;
use serde_json::{Value, json};

use super::{
    chat,
    chat_args::{ChatArgs, StopArgs},
    colors::{self, PLAIN},
    common::{self, ContextArgs, ModelArgs, TextArgs},
    draft_args::{DraftArgs, Sources},
    drafting::{Drafting, summary},
    engine_args::EngineArgs,
    interrupt,
    learned_args::LearnedArgs,
    output::{detail, note},
    sampler_args::SamplerArgs,
};
#[cfg(feature = "constraints")]
use crate::constraint::ForcedTokens;
use crate::{
    ContextConfig, Error, Gguf, Result, Sampler, Tokenizer,
    chat::prompt_tokens,
    generate::{Generation, Request, Speculation, Stop, TokenScore, generate, speculate},
    speculation::{Report, Token},
    tokenizer::{EncodeOptions, StreamDecoder},
    words::count,
};

/// What the embedded model is asked when nobody asks anything.
const DEFAULT_PROMPT: &str = "Once upon a time";
/// So many bytes of weights are rearranged before anybody feels it.
const PACKED_AT_ONCE: u64 = 128 << 20;

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    text: TextArgs,
    /// Tokens to generate; -1 until the text ends, -2 until the context is full
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N", default_value_t = -1)]
    #[arg(allow_negative_numbers = true)]
    n_predict: i64,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    sampler: SamplerArgs,
    #[cfg(feature = "constraints")]
    #[command(flatten)]
    constraint: super::constraint_args::ConstraintArgs,
    #[command(flatten)]
    draft: DraftArgs,
    #[command(flatten)]
    learned: LearnedArgs,
    /// Take the prompt as it is: without this, \n, \t, \\ and the like in -p are escapes
    #[arg(long)]
    no_escape: bool,
    #[command(flatten)]
    chat: ChatArgs,
    /// Take no prompt at the terminal for a conversation
    #[arg(long)]
    no_conversation: bool,
    #[command(flatten)]
    stop: StopArgs,
    /// Go on after an end-of-text token
    #[arg(long)]
    ignore_eos: bool,
    /// When the context is full, drop half of it and go on
    #[arg(long, overrides_with = "no_context_shift")]
    context_shift: bool,
    /// End where the context is full, as it is without --context-shift; in a conversation, leave out no old messages
    #[arg(long, overrides_with = "context_shift")]
    no_context_shift: bool,
    /// Tokens of the prompt that a context shift keeps; -1 keeps all of it
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    keep: i64,
    /// Print the prompt before the text: without --chat that is so anyway
    #[arg(long, overrides_with = "no_display_prompt")]
    display_prompt: bool,
    /// Print only what was generated, not the prompt: with --chat that is so anyway
    #[arg(long, overrides_with = "display_prompt")]
    no_display_prompt: bool,
    /// With --json: the K likeliest tokens and their log-probabilities at each position
    #[arg(long, value_name = "K", default_value_t = 0, requires = "json")]
    logprobs: usize,
    /// One JSON object on stdout instead of text
    #[arg(long)]
    json: bool,
}

impl RunArgs {
    /// Nothing was said, somebody sits at the terminal, and the model is one to talk with.
    fn is_conversation(&self) -> Result<bool> {
        let asked = self.text.is_given() || self.chat.chat || self.no_conversation || self.json;
        if asked || self.model.is_embedded() || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(false);
        }
        Ok(self.model.open()?.metadata().str("tokenizer.chat_template")?.is_some())
    }

    /// Before the text, on stdout. An answer is shown alone, since nobody has typed what a template writes around a message.
    fn shows_prompt(&self) -> bool {
        !self.json && !self.no_display_prompt && (self.display_prompt || !self.chat.chat)
    }
}

pub fn run(args: RunArgs) -> Result<()> {
    if args.is_conversation()? {
        let RunArgs { model, context, draft, learned, sampler, chat, stop, .. } = args;
        let engine = EngineArgs { model, context, draft, learned };
        let command = chat::ChatCommand::of(
            engine,
            sampler,
            chat.template,
            stop,
            args.n_predict,
            args.no_context_shift,
        )
        .showing(args.display_prompt);
        #[cfg(feature = "constraints")]
        let command = command.keeping_to(args.constraint);
        return chat::run(command);
    }
    let max_tokens = match args.n_predict {
        n if n >= 0 => Some(n as usize),
        -1 | -2 => None,
        n => {
            return Err(Error::Usage(format!(
                "-n {n}: give a count, -1 (until the text ends) or -2 (context full)"
            )));
        }
    };
    let mut sampler_config = args.sampler.config()?;
    args.context.check()?;
    args.draft.check()?;
    let gguf = args.model.open()?;
    let (tokenizer, model) = common::load(&gguf, &args.context.rope)?;
    args.sampler.complete(&mut sampler_config, &model, &tokenizer, !args.no_escape)?;
    #[cfg(feature = "constraints")]
    let constraint = args.constraint.compile(&tokenizer)?;
    #[cfg(feature = "constraints")]
    if constraint.is_some() && args.ignore_eos {
        return Err(Error::Usage("--ignore-eos: a text that keeps to a grammar ends where it does".into()));
    }
    let drafted = args.draft.sources(&model)?;
    let config = drafted.context(&args.context, &args.learned, &model)?;
    let bytes: u64 = model.weights.iter().map(|weight| weight.bytes).sum();
    let config = ContextConfig { pack_later: bytes > PACKED_AT_ONCE, ..config };
    let device = &args.context.device;
    if device.dry_run(&model, &config, drafted.promised, args.json)? {
        return Ok(());
    }
    let prompt_text = prompt_text(&args, &gguf, &tokenizer)?;
    let prompt = prompt_ids(&prompt_text, &tokenizer, args.chat.chat);
    let mut drafted = drafted;
    drafted.open_draft_model(&args.draft, &args.model, &args.context, (&model, &tokenizer), &config)?;
    let basis = || device.basis(&model, &config, drafted.promised);
    let (mut context, took) = common::open_context(&model, &config, &basis)?;
    let mut sources = if args.draft.off_reason().is_some() { Sources::default() } else { drafted };
    sources.complete(&context)?;
    let mut sampler = Sampler::new(sampler_config)?;
    #[cfg(feature = "constraints")]
    if let Some((vocabulary, constraint)) = constraint {
        sources.forced = Some(Box::new(ForcedTokens::new(&vocabulary, &constraint, prompt.len())));
        sampler.bind(Box::new(constraint));
    }
    let request = Request {
        max_tokens,
        ignore_eos: args.ignore_eos,
        shift_keep: (args.context_shift && !args.no_context_shift && args.n_predict != -2)
            .then(|| kept(&prompt, &tokenizer, args.keep)),
        logprobs: args.logprobs,
        ..Request::new(&prompt)
    };
    request.check(&context)?;
    let interrupted = interrupt::flag();
    note!("{}: {}; {took}", model.name, context.describe());
    let show = !args.json;
    if args.shows_prompt() {
        common::print(&prompt_text)?;
    } else if args.chat.chat && !args.no_display_prompt {
        detail!("the model was given: {prompt_text}");
    }
    let proposers = sources.proposers();
    let look_up = proposers.iter().map(|proposer| proposer.info(&context).looks_up()).collect();
    let mut printer = Printer::new(&args, &tokenizer, look_up);
    let watch = |token: Token| {
        let stopped = printer.add(token)?;
        Ok(if stopped || interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    let ran = match args.draft.off_reason() {
        Some(reason) => {
            let mut watch = watch;
            let watch = |id| watch(Token { id, drafted_by: None });
            let ran = generate(&mut context, &tokenizer, &mut sampler, &request, watch);
            ran.map(|generation| (generation, Report::off(reason)))
        }
        None => {
            let greedy = sampler.config().is_greedy();
            let mut drafting = Drafting::new(&args.draft, &args.learned, proposers, &mut context, greedy)?;
            let (proposers, policy) = drafting.parts();
            let mut speculation = Speculation { proposers, policy };
            let ran = speculate(&mut context, &tokenizer, &mut sampler, &request, &mut speculation, watch);
            if ran.is_ok() {
                drafting.keep();
            }
            ran
        }
    };
    // What is said of a text that could not go on gets a line of its own.
    printer.finish()?;
    let (generation, spec) = ran?;
    common::tell_profile(&context);
    let stop = if printer.stopped { "stop_string" } else { stop_key(generation.stop) };
    if show {
        let seed = match sampler.config().is_greedy() {
            true => "no seed matters (--temp 0)".into(),
            false => format!("seed {}", sampler.seed()),
        };
        note!("{}", told(&generation, prompt.len(), (stop, context.kv().can_shift()), &seed));
        note!("{}", summary(&spec, context.threads()));
        detail!("{}", rates(&generation, prompt.len(), context.bytes_read(None)));
        if args.draft.off_reason().is_none() {
            detail!("{spec}");
        }
        return Ok(());
    }
    let mut out = to_json(&generation, &prompt, &tokenizer, stop);
    let drawn = (!sampler.config().is_greedy()).then(|| sampler.seed());
    out["seed"] = json!(drawn);
    out["spec"] = spec.to_json();
    let mut provenance = common::provenance(&context, &config).text(&prompt);
    provenance.seed = drawn.map(u64::from);
    provenance.interrupted = generation.stop == Stop::Interrupted && !printer.stopped;
    let provenance = provenance.setting("sampler", format!("{:?}", sampler.config()));
    out["provenance"] = provenance.to_json();
    common::print_json(&out)
}

/// Writes the text as it comes, and looks for what should end it.
struct Printer<'t> {
    tokenizer: &'t Tokenizer,
    decoder: StreamDecoder<'t>,
    show: bool,
    color: bool,
    /// By source: whether it looks its tokens up.
    look_up: Vec<bool>,
    stop_strings: Vec<Vec<u8>>,
    /// As much of the text's end as may hold the beginning of a stop string.
    tail: Vec<u8>,
    stopped: bool,
}

impl<'t> Printer<'t> {
    fn new(args: &RunArgs, tokenizer: &'t Tokenizer, look_up: Vec<bool>) -> Self {
        Printer {
            tokenizer,
            decoder: StreamDecoder::new(tokenizer),
            show: !args.json,
            color: args.draft.is_colored(),
            look_up,
            stop_strings: args.stop.texts(!args.no_escape).map(String::into_bytes).collect(),
            tail: Vec::new(),
            stopped: false,
        }
    }

    /// Says whether the text has come to a stop string.
    fn add(&mut self, token: Token) -> Result<bool> {
        if self.show {
            let text = self.decoder.push(token.id);
            match token.drafted_by.filter(|_| self.color && !text.is_empty()) {
                Some(source) => {
                    common::print(format!("{}{text}{PLAIN}", colors::of_drafted(self.look_up[source])))?
                }
                None => common::print(text)?,
            }
        }
        let Some(longest) = self.stop_strings.iter().map(Vec::len).max() else { return Ok(false) };
        self.tail.extend_from_slice(self.tokenizer.piece(token.id));
        let has = |s: &Vec<u8>| self.tail.windows(s.len()).any(|w| w == s);
        self.stopped = self.stop_strings.iter().any(has);
        self.tail.drain(..self.tail.len().saturating_sub(longest - 1));
        Ok(self.stopped)
    }

    fn finish(&mut self) -> Result<()> {
        if self.show { common::print(self.decoder.finish() + "\n") } else { Ok(()) }
    }
}

fn prompt_ids(text: &str, tokenizer: &Tokenizer, chat: bool) -> Vec<u32> {
    if chat {
        return prompt_tokens(text, tokenizer);
    }
    tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: true })
}

/// What a context shift keeps of the prompt; always the BOS, without which the text falls apart.
fn kept(prompt: &[u32], tokenizer: &Tokenizer, keep: i64) -> usize {
    let keep = usize::try_from(keep).map_or(prompt.len(), |keep| keep.min(prompt.len()));
    keep.max(usize::from(tokenizer.bos().is_some() && prompt.first().copied() == tokenizer.bos()))
}

/// The prompt as given, with escapes and the chat template applied.
fn prompt_text(args: &RunArgs, gguf: &Gguf, tokenizer: &Tokenizer) -> Result<String> {
    let given = args.text.read()?;
    let text = match given {
        Some(text) => text,
        None if args.model.is_embedded() => DEFAULT_PROMPT.to_string(),
        None => {
            return Err(Error::Usage(
                "no prompt: give one with -p TEXT, -f FILE or on standard input".into(),
            ));
        }
    };
    let text = if args.no_escape || !args.text.on_command_line() { text } else { common::unescape(&text) };
    if args.chat.chat { args.chat.prompt(&text, gguf, tokenizer) } else { Ok(text) }
}

fn rate(n: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { n as f64 / seconds } else { 0.0 }
}

/// What was generated, how fast, why it ended, and how to have it again.
/// `can_shift`: a part of the text could be dropped when the context is full.
fn told(generation: &Generation, n_prompt: usize, (stop, can_shift): (&str, bool), seed: &str) -> String {
    let why = match stop {
        "end_of_text" => "the text ended",
        "max_tokens" => "stopped by -n",
        "context_full" if can_shift => "the context is full (-c, or --context-shift to go on)",
        "context_full" => {
            "the context is full (-c); states of recurrent layers cannot drop a part of the text"
        }
        "stop_string" => "stopped by -r",
        _ => "interrupted",
    };
    format!(
        "{} in {:.2} s, {:.1} tokens per second; {why}; prompt: {} in {:.2} s; {seed}",
        count(generation.tokens.len(), "token"),
        generation.decode_seconds,
        rate(generation.steps, generation.decode_seconds),
        count(n_prompt, "token"),
        generation.prefill_seconds,
    )
}

fn rates(generation: &Generation, n_prompt: usize, token_bytes: u64) -> String {
    let packing = match generation.packing_seconds {
        0.0 => String::new(),
        seconds => format!("; besides, weights were rearranged for {seconds:.2} s"),
    };
    format!(
        "prompt: {:.1} tokens per second; plain decoding at this speed would read {:.1} GB/s of weights{packing}",
        rate(n_prompt, generation.prefill_seconds),
        rate(generation.steps, generation.decode_seconds) * token_bytes as f64 / 1e9,
    )
}

fn stop_key(stop: Stop) -> &'static str {
    match stop {
        Stop::EndOfText => "end_of_text",
        Stop::MaxTokens => "max_tokens",
        Stop::ContextFull => "context_full",
        Stop::Interrupted => "interrupted",
    }
}

/// As it goes to stdout: behind the prompt, and without control tokens.
fn shown(tokens: &[u32], tokenizer: &Tokenizer) -> String {
    let mut decoder = StreamDecoder::new(tokenizer);
    let mut text: String = tokens.iter().map(|&id| decoder.push(id)).collect();
    text.push_str(&decoder.finish());
    text
}

fn to_json(generation: &Generation, prompt: &[u32], tokenizer: &Tokenizer, stop: &str) -> Value {
    let mut out = json!({
        "text": shown(&generation.tokens, tokenizer),
        "tokens": generation.tokens,
        "prompt_tokens": prompt.len(),
        "generated": generation.tokens.len(),
        "seconds": generation.prefill_seconds + generation.decode_seconds + generation.packing_seconds,
        "repack_seconds": generation.packing_seconds,
        "tok_s": rate(generation.steps, generation.decode_seconds),
        "prefill_tok_s": rate(prompt.len(), generation.prefill_seconds),
        "stop": stop,
    });
    if !generation.logprobs.is_empty() {
        let row = |score: &TokenScore| {
            let likely = score.likely.iter();
            likely.map(|(id, logprob)| json!({"id": id, "logprob": logprob})).collect::<Vec<_>>()
        };
        out["logprobs"] = generation.logprobs.iter().map(row).collect();
    }
    out
}
