//! `perplexity --kl-divergence-base`: what a model says of each token, kept in a file, and other models held against it.

use std::{io::BufWriter, ops::ControlFlow, path::Path, sync::Arc};

use serde_json::{Value, json};

use super::{
    common::{self, ContextArgs},
    interrupt,
    output::note,
    progress::count_bar,
};
use crate::{
    Context, Error, Model, Result,
    eval::{
        base::{BaseReader, BaseText, BaseWriter},
        divergence::{Divergence, Estimate},
        perplexity::{PerplexitySettings, Tally, count_chunks, perplexity_seeing},
    },
    files::Replacement,
    provenance::Chunks,
    words::count,
};

/// Shares of the positions whose values are told, besides the least and the most.
const SHARES: [f64; 9] = [0.001, 0.01, 0.05, 0.10, 0.50, 0.90, 0.95, 0.99, 0.999];

/// Scores a text and keeps what the model says in a file, which is there whole or not at all.
pub fn keep(
    path: &Path,
    context: &mut Context,
    tokens: &[u32],
    settings: &PerplexitySettings,
    on_chunk: impl FnMut(&Tally) -> Result<ControlFlow<()>>,
) -> Result<Tally> {
    let chunks = count_chunks(tokens.len(), settings)?;
    let text = BaseText {
        n_ctx: settings.n_ctx,
        n_vocab: context.model().n_vocab(),
        tokens: tokens[..chunks * settings.n_ctx].to_vec(),
    };
    let io = |e| Error::io(path, e);
    let new = Replacement::of(path)?;
    let mut writer = BaseWriter::new(BufWriter::new(new.file()), &text).map_err(io)?;
    let see = |logits: &[f32], _| writer.add(logits).map_err(io);
    let tally = perplexity_seeing(context, tokens, settings, Tally::default(), see, on_chunk)?;
    if tally.chunks < chunks {
        note!("{}: not written, because not all of the text was scored", path.display());
        return Ok(tally);
    }
    writer.finish().map_err(io)?;
    new.put_in_place()?;
    Ok(tally)
}

/// Scores the text of such a file, and holds what the model says against what the file has.
pub fn compare(
    base: &Path,
    args: &ContextArgs,
    (model, bos): (&Arc<Model>, Option<u32>),
    max_chunks: Option<usize>,
    json: bool,
) -> Result<()> {
    let mut reader = BaseReader::open(base)?;
    let BaseText { n_ctx, n_vocab, tokens } = reader.text().clone();
    if n_vocab != model.n_vocab() {
        return Err(Error::Input(format!(
            "{}: of a model with {n_vocab} tokens, where {} has {}: compare models of one vocabulary",
            base.display(),
            model.name,
            model.n_vocab()
        )));
    }
    if args.ctx_size().is_some_and(|n| n != 0 && n as usize != n_ctx) {
        return Err(Error::Usage(format!(
            "-c: {} has chunks of {n_ctx} tokens, which are compared as they are: leave -c out",
            base.display()
        )));
    }
    let settings = PerplexitySettings { n_ctx, bos, draft: None, max_chunks };
    let chunks = count_chunks(tokens.len(), &settings)?;
    let mut config = args.config(model)?;
    config.n_ctx = settings.cells() as u32;
    if args.device.dry_run(model, &config, None, json)? {
        return Ok(());
    }
    let basis = || args.device.basis(model, &config, None);
    let (mut context, took) = common::open_context(model, &config, &basis)?;
    note!("{}: {}; {took}; {} of {n_ctx}", model.name, context.describe(), count(chunks, "chunk"));
    let mut found = Divergence::default();
    let interrupted = interrupt::flag();
    let bar = count_bar(chunks, 0, "chunks");
    let see = |logits: &[f32], next| {
        found.add(logits, &reader.next_row()?, next);
        Ok(())
    };
    let tally = perplexity_seeing(&mut context, &tokens, &settings, Tally::default(), see, |tally| {
        bar.set_position(tally.chunks as u64);
        bar.set_message(format!(", ppl {:.4}", tally.ppl()));
        Ok(if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    bar.finish_and_clear();
    if tally.chunks < chunks {
        note!("{}", common::interrupted(tally.chunks, chunks, false));
    }
    if !json {
        return common::print(text_of(&found, tally.chunks));
    }
    let mut provenance = common::provenance(&context, &config).text(&tokens).setting("chunk_tokens", n_ctx);
    provenance = provenance.setting("base", base.display().to_string());
    provenance.chunks = Some(Chunks { done: tally.chunks, of: chunks });
    provenance.interrupted = tally.chunks < chunks;
    let mut out = json_of(&found, tally.chunks);
    out["provenance"] = provenance.to_json();
    common::print_json(&out)
}

fn text_of(found: &Divergence, chunks: usize) -> String {
    let pair =
        |Estimate { value, error }: Estimate, digits: usize| format!("{value:.digits$} +/- {error:.digits$}");
    let percent =
        |Estimate { value, error }: Estimate| format!("{:.3} +/- {:.3} %", 100.0 * value, 100.0 * error);
    let [own, base] = found.perplexities();
    let ratio = found.log_ratio();
    let quantiles = |of: &dyn Fn(f64) -> String| {
        let named = |share: f64| match share {
            0.5 => format!("median {}", of(share)),
            _ => format!("{} % {}", 100.0 * share, of(share)),
        };
        let inner: Vec<String> = SHARES.into_iter().map(named).collect();
        format!("least {}; {}; most {}", of(0.0), inner.join("; "), of(1.0))
    };
    let mut text = format!(
        "perplexity {} ({}, {} tokens); of the base {}\n",
        pair(own, 6),
        count(chunks, "chunk"),
        found.positions(),
        pair(base, 6)
    );
    text += &format!(
        "ln(perplexity / base's) {}; correlation {:.2} %\n",
        pair(ratio, 6),
        100.0 * found.correlation()
    );
    text += &format!("KL divergence from the base, in nats: {}\n", pair(found.kl(), 6));
    text += &format!("  {}\n", quantiles(&|share| format!("{:.6}", found.kl_quantile(share))));
    text += &format!(
        "change of the next token's probability: {}; root mean square {}\n",
        percent(found.change()),
        percent(found.change_rms())
    );
    text += &format!("  {}\n", quantiles(&|share| format!("{:.3} %", 100.0 * found.change_quantile(share))));
    text += &format!("same first choice {}\n", percent(found.same_first()));
    text
}

fn json_of(found: &Divergence, chunks: usize) -> Value {
    let pair = |Estimate { value, error }: Estimate| json!({"value": value, "stderr": error});
    let quantiles = |of: &dyn Fn(f64) -> f64| {
        let all = [0.0].into_iter().chain(SHARES).chain([1.0]);
        all.map(|share| json!({"share": share, "value": of(share)})).collect::<Vec<_>>()
    };
    let [own, base] = found.perplexities();
    json!({
        "chunks": chunks,
        "tokens": found.positions(),
        "ppl": pair(own),
        "base_ppl": pair(base),
        "ln_ratio": pair(found.log_ratio()),
        "correlation": found.correlation(),
        "kl": pair(found.kl()),
        "kl_quantiles": quantiles(&|share| found.kl_quantile(share)),
        "change": pair(found.change()),
        "change_rms": pair(found.change_rms()),
        "change_quantiles": quantiles(&|share| found.change_quantile(share)),
        "same_first": pair(found.same_first()),
    })
}
