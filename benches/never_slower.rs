//! What speculation costs where it can only lose: `cargo bench --bench never_slower -- [MODEL.gguf] [PAIRS] [WHICH..]`.
//!
//! Plain decoding and speculation take turns, 16 tokens each, until both have made the same 512; with proposers that
//! are wrong and do not say so: a draft by the last half of the layers, a lookup that claims long matches, and both at once
//! (and without any, for what the loop itself costs). Shown is speculation's speed over that of the plain run beside it: median, standard error and range over the pairs. Ends with 1 if a median is below 0.97 by more than two
//! standard errors.

use std::{
    ops::ControlFlow,
    process::ExitCode,
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Instant,
};

use spec_run::{
    Context, ContextConfig, Error, Gguf, Model, Result, RunLayers, Sampler, Tokenizer, embedded,
    generate::{Request, Speculation, generate, speculate},
    sampler::SamplerConfig,
    speculation::{
        MaskProposer, Proposer, Ready, SourceInfo, SourceKind, Supply, TARGET,
        learned::{Learned, prepare},
    },
    tokenizer::EncodeOptions,
};

const TOKENS: usize = 512;
const PROMISE: f64 = 0.97;
const PROMPT: &str = "Once upon a time";

/// Half the layers for each token, the last ones: they make nothing of what the first should have made.
fn contrary(n_layer: usize) -> MaskProposer {
    let skip = |mask: RunLayers, layer| mask.skip_attn(layer).skip_mlp(layer);
    MaskProposer::new("contrary", (0..n_layer / 2).fold(RunLayers::all(n_layer), skip))
}

/// Always has a long match, and it always misleads.
struct Liar;

impl Proposer for Liar {
    fn info(&self, _: &Context) -> SourceInfo {
        SourceInfo { name: "liar".into(), kind: SourceKind::Ngram, cost: 0.0, chance: 0.3, prefix: None }
    }

    fn supply(&mut self, _: &[u32]) -> Supply {
        Supply::Found(Ready { tokens: 16, match_len: 32 })
    }

    /// The unknown token, which no text contains.
    fn tokens(&mut self, _: &[u32]) -> Vec<u32> {
        vec![0; 16]
    }
}

fn proposers(which: &str, n_layer: usize) -> Vec<Box<dyn Proposer>> {
    match which {
        "nothing" => Vec::new(),
        "contrary" => vec![Box::new(contrary(n_layer))],
        "liar" => vec![Box::new(Liar)],
        _ => vec![Box::new(contrary(n_layer)), Box::new(Liar)],
    }
}

/// Two runs take turns of a few tokens each, so that what the machine does besides meets both alike.
struct Turns {
    whose: Mutex<Option<usize>>,
    changed: Condvar,
}

const TURN: usize = 16;

/// One of two runs that take turns, and the time that it had.
struct Runner<'a> {
    turns: &'a Turns,
    me: usize,
    since: Instant,
    seconds: f64,
    tokens: usize,
}

impl<'a> Runner<'a> {
    fn begin(turns: &'a Turns, me: usize) -> Self {
        let mut runner = Runner { turns, me, since: Instant::now(), seconds: 0.0, tokens: 0 };
        runner.wait();
        runner
    }

    fn wait(&mut self) {
        let whose = self.turns.whose.lock().unwrap();
        // `None`: the other one is done.
        drop(self.turns.changed.wait_while(whose, |whose| whose.is_some_and(|who| who != self.me)).unwrap());
        self.since = Instant::now();
    }

    fn pass(&mut self) {
        self.seconds += self.since.elapsed().as_secs_f64();
        let mut whose = self.turns.whose.lock().unwrap();
        if whose.is_some() {
            *whose = Some(1 - self.me);
        }
        self.turns.changed.notify_all();
    }

    fn token(&mut self) {
        self.tokens += 1;
        // The first token comes from the prompt's logits: from here on decoding is timed.
        if self.tokens == 1 {
            self.seconds = 0.0;
            self.since = Instant::now();
        }
        if self.tokens.is_multiple_of(TURN) {
            self.pass();
            self.wait();
        }
    }

    fn finish(mut self) -> f64 {
        self.pass();
        *self.turns.whose.lock().unwrap() = None;
        self.turns.changed.notify_all();
        self.seconds
    }
}

/// A run of either kind needs a context of its own.
struct Lane {
    context: Context,
    text: Vec<u32>,
    seconds: f64,
}

struct Bench {
    tokenizer: Tokenizer,
    prompt: Vec<u32>,
}

impl Bench {
    fn request(&self) -> Request {
        let prompt = &self.prompt;
        Request { max_tokens: Some(TOKENS), ignore_eos: true, ..Request::new(prompt) }
    }

    fn plain(&self, lane: &mut Lane, mut runner: Runner) -> Result<()> {
        let mut sampler = greedy()?;
        let done = generate(&mut lane.context, &self.tokenizer, &mut sampler, &self.request(), |_| {
            runner.token();
            Ok(ControlFlow::Continue(()))
        })?;
        (lane.text, lane.seconds) = (done.tokens, runner.finish());
        Ok(())
    }

    /// What is remembered from run to run is in `learned`. Gives the seconds to get ready.
    fn speculative(
        &self,
        lane: &mut Lane,
        mut runner: Runner,
        which: &str,
        learned: &mut Option<Learned>,
    ) -> Result<f64> {
        let model = lane.context.model().clone();
        let mut proposers = proposers(which, model.n_layer());
        let sources: Vec<SourceInfo> = proposers.iter().map(|p| p.info(&lane.context)).collect();
        let mask = contrary(model.n_layer()).layers().clone();
        let drafts: Vec<_> =
            sources.iter().map(|s| (s.kind == SourceKind::Mask).then(|| mask.clone())).collect();
        lane.context.remove(TARGET);
        let started = Instant::now();
        let mut controller = prepare(&mut lane.context, TARGET, &sources, &drafts, learned.take())?;
        let ready = started.elapsed().as_secs_f64();
        let mut speculation = Speculation { proposers: &mut proposers, policy: &mut controller };
        let mut sampler = greedy()?;
        let (context, request) = (&mut lane.context, self.request());
        let (done, _) =
            speculate(context, &self.tokenizer, &mut sampler, &request, &mut speculation, |_| {
                runner.token();
                Ok(ControlFlow::Continue(()))
            })?;
        (lane.text, lane.seconds) = (done.tokens, runner.finish());
        *learned = Some(Learned::of(&controller));
        Ok(ready)
    }
}

fn greedy() -> Result<Sampler> {
    Sampler::new(SamplerConfig { temp: 0.0, ..SamplerConfig::default() })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Of the median, if the values scatter normally: 1.25 times that of the mean.
fn standard_error(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    1.25 * (variance / n).sqrt()
}

fn run() -> Result<bool> {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let gguf = match args.next() {
        Some(path) if path != "embedded" => Gguf::open(path.as_ref())?,
        _ => embedded::open()?,
    };
    let pairs: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(31);
    let gguf = Arc::new(gguf);
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let model = Arc::new(Model::load(gguf)?);
    let prompt = tokenizer.encode(PROMPT, EncodeOptions { add_special: true, parse_special: false });
    let bench = Bench { tokenizer, prompt };
    let lane = || -> Result<Lane> {
        let config = ContextConfig { n_ctx: 1024, ..ContextConfig::default() };
        Ok(Lane { context: Context::new(model.clone(), &config)?, text: Vec::new(), seconds: 0.0 })
    };
    let (mut plain, mut speculative) = (lane()?, lane()?);
    println!("{}: {}; {TOKENS} tokens, {pairs} pairs", model.name, plain.context.describe());
    let mut kept = true;
    const ALL: [&str; 4] = ["nothing", "contrary", "liar", "both"];
    let named: Vec<String> = args.collect();
    if let Some(unknown) = named.iter().find(|name| !ALL.contains(&name.as_str())) {
        return Err(Error::Usage(format!("{unknown}: one or several of {}", ALL.join(", "))));
    }
    for which in ALL.into_iter().filter(|&which| named.is_empty() || named.iter().any(|name| name == which)) {
        for remembers in [false, true] {
            let (mut ratios, mut ready, mut seconds) = (Vec::new(), Vec::new(), 0.0);
            let mut learned = None;
            for pair in 0..pairs {
                if !remembers {
                    learned = None;
                }
                let turns = Turns { whose: Mutex::new(Some(pair % 2)), changed: Condvar::new() };
                let getting_ready = thread::scope(|scope| -> Result<f64> {
                    let (bench, turns, lane) = (&bench, &turns, &mut plain);
                    let other = scope.spawn(move || bench.plain(lane, Runner::begin(turns, 0)));
                    let ready =
                        bench.speculative(&mut speculative, Runner::begin(turns, 1), which, &mut learned)?;
                    other.join().expect("the plain run ends")?;
                    Ok(ready)
                })?;
                assert_eq!(plain.text, speculative.text, "speculation changed the text");
                ratios.push(plain.seconds / speculative.seconds);
                ready.push(getting_ready);
                seconds += speculative.seconds;
            }
            let (middle, error) = (median(&mut ratios), standard_error(&ratios));
            kept &= middle + 2.0 * error >= PROMISE;
            println!(
                "{which:8} {:11} {middle:.3} ± {error:.3} of plain ({:.3} to {:.3}; {:.1} tok/s); ready after {:.1} ms",
                if remembers { "remembering" } else { "first run" },
                ratios[0],
                ratios[ratios.len() - 1],
                (pairs * (TOKENS - 1)) as f64 / seconds,
                1e3 * median(&mut ready),
            );
        }
    }
    Ok(kept)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("never_slower: below {PROMISE} of plain");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("never_slower: {error}");
            ExitCode::FAILURE
        }
    }
}
