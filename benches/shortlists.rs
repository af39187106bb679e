//! Drafts that choose among the frequent tokens: how many of a text's tokens are on the lists, and what a draft step takes
//! with them: `cargo bench --bench shortlists -- [--vocab FILE --text FILE] [-m FILE] [--rounds N]`.
//!
//! The first is counted on text that people wrote, in pieces as long as a conversation; each token is looked for on the list
//! that was made of those before it. The second is timed on any model, whatever its weights are.

mod common;

use std::{path::Path, process::ExitCode, sync::Arc, time::Instant};

use common::Flags;
use spec_run::speculation::frequent::{Frequent, ONE_OF};
use spec_run::{
    Batch, Context, ContextConfig, Error, Gguf, Model, Result, RunLayers, Tokenizer,
    batch::{Mtp, Row},
    scores::Want,
    shortlist::Shortlist,
    tokenizer::EncodeOptions,
};

/// Tokens of a piece, and how many of them are a prompt, which is not counted.
const PIECE: usize = 1024;
const PROMPT: usize = 128;

fn main() -> ExitCode {
    let mut flags = Flags::new();
    let text = (flags.take("--vocab"), flags.take("--text"));
    let model = flags.take("-m");
    let rounds = flags.number("--rounds").unwrap_or(21);
    let given = model.is_some() || matches!(text, (Some(_), Some(_)));
    let work = given.then_some(move || {
        if let (Some(vocab), Some(text)) = text {
            count(Path::new(&vocab), Path::new(&text))?;
        }
        model.map_or(Ok(()), |model| time(Path::new(&model), rounds))
    });
    flags.run(
        work,
        "give -m FILE, or --vocab FILE and --text FILE, or all of them; and --rounds N if you like",
    )
}

fn count(vocab: &Path, text: &Path) -> Result<()> {
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(vocab)?)?;
    let words =
        std::fs::read_to_string(text).map_err(|e| Error::Input(format!("{}: {e}", text.display())))?;
    let tokens = tokenizer.encode(&words, EncodeOptions { add_special: false, parse_special: false });
    let mut had = [0usize; ONE_OF.len()];
    let mut looked = 0;
    for piece in tokens.chunks_exact(PIECE) {
        let mut frequent = Frequent::of(tokenizer.vocab_size(), 0.0, Vec::new());
        for known in PROMPT..PIECE {
            frequent.read(&piece[..known]);
            looked += 1;
            for (which, had) in had.iter_mut().enumerate() {
                *had += usize::from(frequent.list(which).is_some_and(|list| list.contains(piece[known])));
            }
        }
    }
    let name =
        |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    print!("| {} | {} | {looked} |", name(vocab), name(text));
    had.iter().for_each(|&had| print!(" {:.3} |", had as f64 / looked as f64));
    println!();
    Ok(())
}

/// A draft of half of the layers, and one of the head for one token more, with each list and without.
fn time(path: &Path, rounds: usize) -> Result<()> {
    let model = Arc::new(Model::load(Arc::new(Gguf::open(path)?))?);
    let config = ContextConfig { n_ctx: 512, mtp: true, ..ContextConfig::default() };
    let mut context = Context::new(model.clone(), &config)?;
    let (n_layer, n_vocab) = (model.n_layer(), model.n_vocab());
    println!(
        "{}, {}; the head is {:.3} of a plain step's bytes",
        model.name,
        context.describe(),
        context.head_share()
    );
    let prompt: Vec<u32> = (0..64).map(|i| 7 * i + 3).collect();
    context.decode(&Batch { keep_hidden: Some(n_layer), ..Batch::prompt(&prompt, 0, 0) })?;
    let before = context.hidden(prompt.len() - 1).to_vec();
    let row = Row { token: 5, pos: prompt.len() as u32, seq: 1, logits: true };
    let half =
        Batch { rows: vec![row], run_layers: Some(RunLayers::exit(n_layer, n_layer / 2)), ..Batch::new() };
    let mtp = Some(Mtp { before, after_itself: false });
    let mtp = Batch { rows: vec![row], mtp, ..Batch::new() };
    let plain = Batch { rows: vec![row], ..Batch::new() };
    let drafts = [("half of the layers", Some(half)), ("MTP", context.has_mtp().then_some(mtp))];
    for (name, draft) in drafts.into_iter().filter_map(|(name, draft)| Some((name, draft?))) {
        // Plain steps, drafts with the whole vocabulary, then with the lists.
        let listed = ONE_OF.map(|one_of| Some(Arc::new(Shortlist::first(n_vocab, n_vocab / one_of))));
        let mut batches = vec![plain.clone(), draft.clone()];
        batches.extend(listed.map(|shortlist| Batch { shortlist, ..draft.clone() }));
        let mut times = vec![Vec::new(); batches.len()];
        for round in 0..=rounds {
            for (batch, times) in batches.iter().zip(&mut times) {
                context.fork(0, 1);
                let started = Instant::now();
                context.decode_for(batch, Want::Top(1))?;
                // The first round warms up.
                times.extend((round > 0).then(|| started.elapsed().as_secs_f64()));
                context.remove(1);
            }
        }
        let times: Vec<f64> = times.into_iter().map(median).collect();
        print!("| {name} | {:.2} |", 1e3 * times[0]);
        times[1..].iter().for_each(|time| print!(" {:.3} |", time / times[0]));
        println!();
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
