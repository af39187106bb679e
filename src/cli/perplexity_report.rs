//! What `spec-run perplexity` prints of a text: for people, and as JSON.

use serde_json::{Value, json};

use crate::{eval::perplexity::Tally, provenance::Provenance, quoted::one_line, words::count};

/// What was scored beside the full model.
pub struct Scored<'a> {
    pub name: &'a str,
    /// Those of a mask.
    pub layers: Option<String>,
    /// Of the bytes that the full model reads for a token.
    pub cost: f64,
}

pub fn json_of(tally: &Tally, scored: Option<&Scored>, provenance: &Provenance) -> Value {
    let n = tally.tokens;
    let mut out = json!({"ppl": tally.ppl(), "stderr": tally.stderr(), "chunks": tally.chunks, "tokens": n});
    if let (Some(against), Some(scored)) = (&tally.against_full, scored) {
        out[if scored.layers.is_some() { "mask" } else { "draft" }] = json!(scored.name);
        out["base_ppl"] = json!(against.full.perplexity(n));
        out["agreement"] = json!(against.sums.agreement(n));
        out["overlap"] = json!(against.sums.overlap(n));
        out["kl"] = json!(against.sums.kl(n));
        out["cost"] = json!(scored.cost);
    }
    out["provenance"] = provenance.to_json();
    out
}

pub fn text_of(tally: &Tally, scored: Option<&Scored>) -> String {
    let n = tally.tokens;
    let mut text = match scored {
        None => String::new(),
        Some(Scored { layers: None, .. }) => "the head for one token more (mtp)\n".into(),
        Some(Scored { name, layers: Some(layers), .. }) => mask_line(name, layers),
    };
    text += &format!(
        "perplexity {:.4} +/- {:.5} ({}, {n} tokens)\n",
        tally.ppl(),
        tally.stderr(),
        count(tally.chunks, "chunk")
    );
    if let (Some(against), Some(scored)) = (&tally.against_full, scored) {
        text += &format!(
            "full model {:.4}; same first choice {:.2} %, overlap {:.4}, KL {:.4}, bytes read {:.2} %\n",
            against.full.perplexity(n),
            100.0 * against.sums.agreement(n),
            against.sums.overlap(n),
            against.sums.kl(n),
            100.0 * scored.cost
        );
    }
    text
}

/// A mask's name, and its layers if these are not the name.
pub fn mask_line(name: &str, layers: &str) -> String {
    let layers = if name == layers { String::new() } else { format!(": {layers}") };
    format!("mask `{}`{layers}\n", one_line(name, 60))
}
