//! Copying with small changes, as when a program is asked to edit a file: plain decoding against drafts that are
//! looked up in the prompt. `cargo bench --bench editing -- [MODEL.gguf] [PAIRS]`.
//!
//! The text is forced, so any model will do, one of random weights too: each pass is computed in full and then the
//! file with its changes is taken for what the model said. What this measures is the lookup, the controller and
//! T(n); whether a model copies well is another question.

use std::{ops::ControlFlow, process::ExitCode, sync::Arc};

use spec_run::{
    Context, ContextConfig, Gguf, Model, Result, Sampler, Tokenizer, embedded,
    generate::{Request, Speculation, generate, speculate},
    sampler::SamplerConfig,
    speculation::{
        NgramProposer, Proposer, Report, TARGET,
        learned::{Learned, prepare},
    },
    tokenizer::EncodeOptions,
};
use spec_run_tools::measure::stats::Spread;

/// The file to edit: one of this program's own.
const FILE: &str = include_str!("../crates/gguf/src/rng.rs");
const CHANGES: [(&str, &str); 4] =
    [("state", "words"), ("0x9e37_79b9_7f4a_7c15", "GOLDEN"), ("next_f64", "uniform"), ("-> u64", "-> Word")];
/// Tokens of the edited file that are made.
const TOKENS: usize = 384;
/// What is promised.
const PROMISE: f64 = 2.5;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("editing: below {PROMISE} times plain decoding");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("editing: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let gguf = match args.next() {
        Some(path) if path != "embedded" => Gguf::open(path.as_ref())?,
        _ => embedded::open()?,
    };
    let pairs: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(3);
    let gguf = Arc::new(gguf);
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let model = Arc::new(Model::load(gguf)?);
    let case = Case::new(&tokenizer);
    let config = ContextConfig { n_ctx: case.script.len() as u32 + 64, ..ContextConfig::default() };
    let mut context = Context::new(model.clone(), &config)?;
    println!(
        "{}: {}; a file of {} tokens, {} made of it with {} changes",
        model.name,
        context.describe(),
        case.prompt,
        TOKENS.min(case.script.len() - case.prompt),
        case.changed
    );
    let (mut ratios, mut learned) = (Vec::new(), None);
    for pair in 0..pairs.max(1) {
        // Who goes first changes.
        let early = if pair % 2 == 0 { Some(case.plain(&mut context, &tokenizer)?) } else { None };
        let (drafting, report) = case.drafting(&mut context, &tokenizer, &mut learned)?;
        let plain = match early {
            Some(seconds) => seconds,
            None => case.plain(&mut context, &tokenizer)?,
        };
        let rate = |seconds: f64| (TOKENS - 1) as f64 / seconds;
        println!(
            "plain {:.1} tok/s, looked up {:.1} tok/s: {:.2} times; {} rounds of {:.1} tokens, {} plain steps, {:.0} % of {} accepted",
            rate(plain),
            rate(drafting),
            plain / drafting,
            report.drafting.rounds,
            report.drafting.tokens_per_round().unwrap_or(1.0),
            report.plain_steps,
            100.0 * report.drafting.acceptance().unwrap_or(0.0),
            report.drafting.drafted,
        );
        ratios.push(plain / drafting);
    }
    let Spread { median, min, max, .. } = Spread::of(&ratios);
    println!("{median:.2} times plain decoding ({min:.2} to {max:.2})");
    Ok(median >= PROMISE)
}

struct Case {
    /// The prompt and the edited file.
    script: Vec<u32>,
    /// Length of the prompt.
    prompt: usize,
    /// Places where something was replaced, in the part that is made.
    changed: usize,
}

impl Case {
    fn new(tokenizer: &Tokenizer) -> Self {
        let file = FILE.split("#[cfg(test)]").next().unwrap_or_default();
        let text = format!("{file}\n// The same file with shorter names:\n\n");
        let mut script = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false });
        let prompt = script.len();
        let edited = CHANGES.iter().fold(file.to_string(), |file, (from, to)| file.replace(from, to));
        let mut edited =
            tokenizer.encode(&edited, EncodeOptions { add_special: false, parse_special: false });
        edited.truncate(TOKENS);
        let made = String::from_utf8_lossy(&tokenizer.decode(&edited)).into_owned();
        let changed = CHANGES.iter().map(|(_, to)| made.matches(to).count()).sum();
        script.extend(edited);
        Case { script, prompt, changed }
    }

    fn request(&self) -> Request {
        Request { max_tokens: Some(TOKENS), ignore_eos: true, ..Request::new(&self.script[..self.prompt]) }
    }

    fn sampler(&self) -> Result<Sampler> {
        let mut sampler = Sampler::new(SamplerConfig::greedy())?;
        sampler.follow(self.script.clone());
        Ok(sampler)
    }

    fn check(&self, made: &[u32]) {
        let expected = &self.script[self.prompt..];
        assert!(made.starts_with(&expected[..expected.len().min(made.len())]), "the text is not the file's");
    }

    /// Seconds.
    fn plain(&self, context: &mut Context, tokenizer: &Tokenizer) -> Result<f64> {
        let on_token = |_| Ok(ControlFlow::Continue(()));
        let done = generate(context, tokenizer, &mut self.sampler()?, &self.request(), on_token)?;
        self.check(&done.tokens);
        Ok(done.decode_seconds)
    }

    /// With what the program would look up, and what it has learnt in earlier runs.
    fn drafting(
        &self,
        context: &mut Context,
        tokenizer: &Tokenizer,
        learned: &mut Option<Learned>,
    ) -> Result<(f64, Report)> {
        let mut proposers: [Box<dyn Proposer>; 1] = [Box::new(NgramProposer::default())];
        let sources = [proposers[0].info(context)];
        context.remove(TARGET);
        let mut controller = prepare(context, TARGET, &sources, &[None], learned.take())?;
        let mut speculation = Speculation { proposers: &mut proposers, policy: &mut controller };
        let on_token = |_| Ok(ControlFlow::Continue(()));
        let (done, report) =
            speculate(context, tokenizer, &mut self.sampler()?, &self.request(), &mut speculation, on_token)?;
        self.check(&done.tokens);
        *learned = Some(Learned::of(&controller));
        Ok((done.decode_seconds, report))
    }
}
