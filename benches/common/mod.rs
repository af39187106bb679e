//! What benches have in common.
#![allow(dead_code)] // Each bench uses a part of it.

use std::{ops::ControlFlow, process::ExitCode, str::FromStr};

use spec_run::placement::Basis;
use spec_run::{
    Context, Model, Result, Sampler, Tokenizer,
    generate::{Generation, Request, generate},
    sampler::SamplerConfig,
    tokenizer::EncodeOptions,
};
use spec_run_runtime::placement::forecast::Known;
use spec_run_tools::measure::speeds::{of_file as speed_of_file, of_ram as speed_of_ram};

pub const PROMPT: &str = "Once upon a time";

/// The command line of a bench: flags with a value each.
pub struct Flags(Vec<String>);

impl Flags {
    pub fn new() -> Self {
        Flags(std::env::args().skip(1).filter(|arg| arg != "--bench").collect())
    }

    pub fn take(&mut self, flag: &str) -> Option<String> {
        let at = self.0.iter().position(|arg| arg == flag).filter(|at| at + 1 < self.0.len())?;
        self.0.drain(at..at + 2).nth(1)
    }

    pub fn number<T: FromStr>(&mut self, flag: &str) -> Option<T> {
        self.take(flag)?.parse().ok()
    }

    /// What `work` comes to, unless `usage` has to be said: something is missing, or nobody took it.
    pub fn run(self, work: Option<impl FnOnce() -> Result<()>>, usage: &str) -> ExitCode {
        let Some(work) = work.filter(|_| self.0.is_empty()) else {
            eprintln!("{usage}; not {:?}", self.0);
            return ExitCode::from(2);
        };
        match work() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }
}

/// So many greedy tokens after the prompt, whatever they say.
pub fn text(context: &mut Context, tokenizer: &Tokenizer, tokens: usize) -> Result<Generation> {
    let prompt = tokenizer.encode(PROMPT, EncodeOptions { add_special: true, parse_special: false });
    generate(context, tokenizer, &mut greedy()?, &request(&prompt, tokens), |_| Ok(ControlFlow::Continue(())))
}

/// So many tokens, whatever they say.
pub fn request(prompt: &[u32], tokens: usize) -> Request {
    Request { max_tokens: Some(tokens), ignore_eos: true, ..Request::new(prompt) }
}

pub fn greedy() -> Result<Sampler> {
    Sampler::new(SamplerConfig { temp: 0.0, ..SamplerConfig::default() })
}

/// How fast this machine reads what it has in memory and what is in the model's file.
pub fn speeds(model: &Model) -> Result<Basis> {
    Ok(Basis {
        ram: Known::measured(speed_of_ram(num_cpus::get_physical())?),
        file: speed_of_file(&model.gguf).map_or(Basis::default().file, Known::measured),
        ..Basis::default()
    })
}
