//! `spec-run bench` with llama-bench's flags: tests of prompts and generations, for every combination of settings.

use std::str::FromStr;

use clap::Args;
use indicatif::ProgressBar;

use super::{bench::Side, common, interrupt, llama_line::numbers};
use crate::{
    Context, Error, Result,
    bench::{
        records::{Format, Record, Setup, write},
        throughput::{Test, measure},
    },
    placement::Place,
};

/// llama-bench's.
const DEFAULT_PROMPT: usize = 512;
const DEFAULT_GENERATED: usize = 128;

#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Tests as llama-bench's")]
pub struct TestArgs {
    /// Prompts of N tokens; 0 is none. Lists are 1,2,4 or 1-8 or 1-8+2 or 1-8*2, here and for -t, -b, -ub, -ctk, -ctv
    /// and -ngl, and -m can be repeated: each combination is measured [default, where one of these is used: 512]
    #[arg(short = 'p', long, value_name = "N,..")]
    n_prompt: Vec<Numbers>,
    /// Generations of N tokens; 0 is none [default, where one of these is used: 128]
    #[arg(short = 'n', long, value_name = "N,..")]
    n_gen: Vec<Numbers>,
    /// -pg: a prompt of P tokens, then N generated ones [default: none]
    #[arg(long, value_name = "P,N")]
    n_prompt_gen: Vec<Pair>,
    /// Tokens of context before the test [default: 0]
    #[arg(short = 'd', long, value_name = "N,..")]
    n_depth: Vec<Numbers>,
    /// md, csv, json, jsonl or sql, in llama-bench's columns [default: md]
    #[arg(short = 'o', long = "output", value_name = "FORMAT", conflicts_with = "json")]
    output: Option<Format>,
}

#[derive(Clone, Debug, PartialEq)]
struct Numbers(Vec<usize>);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        numbers(text).map(Numbers)
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Pair(usize, usize);

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match numbers(text)?[..] {
            [prompt, generated] if text.contains(',') => Ok(Pair(prompt, generated)),
            _ => Err("two numbers, as in 512,128".into()),
        }
    }
}

impl TestArgs {
    /// Whether any of its flags is there.
    pub fn given(&self) -> bool {
        *self != TestArgs::default()
    }

    fn tests(&self) -> Result<Vec<Test>> {
        let all = |given: &[Numbers], default: usize| match given {
            [] => vec![default],
            given => given.iter().flat_map(|list| list.0.iter().copied()).collect::<Vec<_>>(),
        };
        let mut tests = Vec::new();
        for depth in all(&self.n_depth, 0) {
            let prompts = all(&self.n_prompt, DEFAULT_PROMPT).into_iter().map(|prompt| (prompt, 0));
            let generations = all(&self.n_gen, DEFAULT_GENERATED).into_iter().map(|generated| (0, generated));
            let both = self.n_prompt_gen.iter().map(|pair| (pair.0, pair.1));
            let wanted =
                prompts.chain(generations).chain(both).filter(|&(prompt, generated)| prompt + generated > 0);
            tests.extend(wanted.map(|(prompt, generated)| Test { prompt, generated, depth }));
        }
        if tests.is_empty() {
            return Err(Error::Usage(
                "-p 0 -n 0: nothing is left to measure; give one of them, or -pg".into(),
            ));
        }
        Ok(tests)
    }
}

/// Measures every test with every side, one after another.
pub fn run(
    sides: Vec<Side>,
    args: &TestArgs,
    repetitions: usize,
    json: bool,
    bar: &ProgressBar,
) -> Result<()> {
    let tests = args.tests()?;
    let cells = tests.iter().map(Test::cells).max().unwrap_or(1);
    bar.set_length((sides.len() * tests.len()) as u64);
    let mut records = Vec::new();
    'sides: for mut side in sides {
        side.config.n_ctx = u32::try_from(cells).unwrap_or(u32::MAX);
        // What lies before a test stays as it is beside the test.
        side.config.sequences = 2;
        let mut context = side.open()?;
        // Not before the first model is loaded: until then there is nothing to keep.
        let interrupted = interrupt::flag();
        let setup = setup(&context, &side, repetitions);
        for &test in &tests {
            bar.set_message(test.to_string());
            let seconds = measure(&mut context, test, repetitions, interrupted)?;
            if seconds.len() < repetitions {
                break 'sides;
            }
            records.push(Record { setup: setup.clone(), test, seconds });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if records.is_empty() {
        return Err(Error::Input("interrupted before the first test was complete".into()));
    }
    let default = if json { Format::Json } else { Format::Markdown };
    common::print(write(&records, args.output.unwrap_or(default)))
}

fn setup(context: &Context, side: &Side, repetitions: usize) -> Setup {
    let (model, config) = (context.model(), &side.config);
    let tensors = model.gguf.tensors();
    Setup {
        device: context.describe(),
        backend: if context.placement().uses(Place::Vram) { "GPU" } else { "CPU" },
        file: model.gguf.name().to_string(),
        model: model.name.clone(),
        bytes: tensors.iter().map(|t| t.bytes).sum(),
        parameters: tensors.iter().map(|t| t.elements()).sum(),
        n_batch: config.n_ubatch,
        n_ubatch: config.n_ubatch,
        threads: context.threads(),
        type_k: config.key_type.to_string(),
        type_v: config.value_type.to_string(),
        gpu_layers: config.placement.gpu_layers.map_or(-1, i64::from),
        provenance: common::provenance(context, config).setting("repetitions", repetitions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_llama_benchs() {
        let names =
            |args: TestArgs| -> Vec<String> { args.tests().unwrap().iter().map(Test::to_string).collect() };
        assert_eq!(names(TestArgs::default()), ["pp512", "tg128"]);
        let args = TestArgs {
            n_prompt: vec!["0".parse().unwrap()],
            n_gen: vec!["1-2".parse().unwrap()],
            n_depth: vec!["0,64".parse().unwrap()],
            n_prompt_gen: vec!["5,6".parse().unwrap()],
            output: None,
        };
        assert_eq!(names(args), ["tg1", "tg2", "pp5+tg6", "tg1 @ d64", "tg2 @ d64", "pp5+tg6 @ d64"]);
        let none: TestArgs = TestArgs {
            n_prompt: vec![Numbers(vec![0])],
            n_gen: vec![Numbers(vec![0])],
            ..Default::default()
        };
        assert!(none.tests().is_err());
        for bad in ["5", "5,6,7", "1-2", "x"] {
            assert!(bad.parse::<Pair>().is_err(), "{bad}");
        }
    }
}
