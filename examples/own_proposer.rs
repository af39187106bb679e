//! A proposer of your own: whatever guesses tokens can draft, and cannot change the text, because the model verifies.
//! This one guesses that a story goes on as a list of sentences that it knows. `cargo run --release --example own_proposer -- [MODEL.gguf]`

use std::{ops::ControlFlow, path::Path, sync::Arc};

use spec_run::{
    Context, ContextConfig, Gguf, Model, Result, Sampler, Tokenizer, embedded,
    generate::{Request, Speculation, speculate},
    sampler::SamplerConfig,
    speculation::{Fixed, Proposer, SourceInfo, SourceKind, Supply},
    tokenizer::EncodeOptions,
};

/// Sentences as tokens; after a sentence's first two it proposes the rest.
struct Phrases(Vec<Vec<u32>>);

impl Phrases {
    fn after(&self, text: &[u32]) -> Option<&[u32]> {
        let ends = |phrase: &&Vec<u32>, n: usize| text.ends_with(&phrase[..n]);
        self.0.iter().find_map(|phrase| {
            let longest = (2..phrase.len()).rev().find(|&n| ends(&phrase, n))?;
            Some(&phrase[longest..])
        })
    }
}

impl Proposer for Phrases {
    fn info(&self, _: &Context) -> SourceInfo {
        SourceInfo { name: "phrases".into(), kind: SourceKind::Other, cost: 0.0, chance: 0.6, prefix: None }
    }

    fn supply(&mut self, text: &[u32]) -> Supply {
        match self.after(text) {
            Some(_) => Supply::Any,
            None => Supply::Nothing,
        }
    }

    fn tokens(&mut self, text: &[u32]) -> Vec<u32> {
        self.after(text).map(<[u32]>::to_vec).unwrap_or_default()
    }
}

fn main() -> Result<()> {
    let gguf = Arc::new(match std::env::args().nth(1) {
        Some(path) => Gguf::open(Path::new(&path))?,
        None => embedded::open()?,
    });
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let model = Arc::new(Model::load(gguf)?);
    let mut context = Context::new(model, &ContextConfig { n_ctx: 256, ..Default::default() })?;
    let ids =
        |text: &str, add_special| tokenizer.encode(text, EncodeOptions { add_special, parse_special: false });

    // The first word of a text is tokenized as if a space came before it.
    let known =
        ["there was a little girl named Lily", "She loved to play", "wanted to play with", "was very happy"];
    let mut proposers: Vec<Box<dyn Proposer>> =
        vec![Box::new(Phrases(known.iter().map(|phrase| ids(phrase, false)).collect()))];
    let mut policy = Fixed { max: 8, ..Fixed::default() };
    let mut speculation = Speculation { proposers: &mut proposers, policy: &mut policy };
    let prompt = ids("Once upon a time, there", true);
    let request = Request { max_tokens: Some(80), ..Request::new(&prompt) };
    let mut sampler = Sampler::new(SamplerConfig::greedy())?;
    // What was proposed and stood is in brackets.
    let (_, report) =
        speculate(&mut context, &tokenizer, &mut sampler, &request, &mut speculation, |token| {
            let piece = String::from_utf8_lossy(tokenizer.piece(token.id)).into_owned();
            match token.drafted_by {
                Some(_) => print!("[{piece}]"),
                None => print!("{piece}"),
            }
            Ok(ControlFlow::Continue(()))
        })?;
    let drafts = report.drafting;
    println!("\n{} of {} proposed tokens stood", drafts.accepted, drafts.drafted);
    Ok(())
}
