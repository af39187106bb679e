//! llama-server's own completions.

use serde_json::{Map, Value, json};

use crate::{
    sampler::NUMBERS,
    wire::{
        answer::{Frame, Header, Likely, More, Progress, Reason, Whole},
        ask::{Biased, LoraScale, Settings},
    },
};

fn probabilities(likely: &[Likely], post: bool) -> Value {
    likely.iter().map(|one| one.to_json(post)).collect()
}

pub(super) fn progress(index: usize, progress: &Progress) -> Frame {
    let mut body = json!({ "index": index, "content": "", "tokens": [], "stop": false });
    progress.add_to(&mut body);
    Frame::plain(body)
}

pub(super) fn more(index: usize, more: &More, post: bool) -> Frame {
    let mut body = json!({ "index": index, "content": more.text, "tokens": more.tokens, "stop": false, "id_slot": more.slot });
    if !more.likely.is_empty() {
        body["completion_probabilities"] = probabilities(&more.likely, post);
    }
    if !more.drafted.is_empty() {
        body["drafted"] = json!(more.drafted);
    }
    if let Some(timings) = &more.timings {
        body["timings"] = timings.to_json();
    }
    Frame::plain(body)
}

pub(super) fn whole(
    header: &Header,
    index: usize,
    whole: &Whole,
    settings: &Settings,
    streamed: bool,
) -> Value {
    let (stop, word) = match &whole.reason {
        Reason::End => ("eos", ""),
        Reason::Stop(word) => ("word", word.as_str()),
        Reason::Limit => ("limit", ""),
    };
    let content = if streamed { "" } else { whole.text.as_str() };
    let tokens: &[u32] = if settings.return_tokens && !streamed { &whole.tokens } else { &[] };
    let mut body = json!({
        "index": index,
        "content": content,
        "tokens": tokens,
        "id_slot": whole.slot,
        "stop": true,
        "model": header.model,
        "tokens_predicted": whole.timings.predicted,
        "tokens_evaluated": whole.prompt_tokens,
        "generation_settings": whole.settings,
        "prompt": whole.prompt,
        "has_new_line": whole.text.contains('\n'),
        "truncated": whole.truncated,
        "stop_type": stop,
        "stopping_word": word,
        "tokens_cached": whole.prompt_tokens + whole.timings.predicted.saturating_sub(1),
    });
    whole.add_report(&mut body);
    if !streamed && settings.logprobs.is_some() {
        body["completion_probabilities"] = probabilities(&whole.likely, settings.post_sampling);
    }
    if settings.response_fields.is_empty() { body } else { chosen(&body, &settings.response_fields) }
}

/// Only these fields; a slash leads into an object, and the path is the name.
fn chosen(body: &Value, fields: &[String]) -> Value {
    let pairs = fields.iter().filter_map(|field| {
        let value = body.pointer(&format!("/{field}"))?;
        Some((field.clone(), value.clone()))
    });
    pairs.collect::<Map<String, Value>>().into()
}

/// JSON has no infinity: a token that is forbidden has no number.
fn bias_json((biased, bias): &(Biased, f32)) -> Value {
    let bias = bias.is_finite().then_some(*bias);
    match biased {
        Biased::Token(id) => json!({ "token": id, "bias": bias }),
        Biased::Text(text) => json!({ "token": text, "bias": bias }),
    }
}

fn lora_json(LoraScale { id, scale }: &LoraScale) -> Value {
    json!({ "id": id, "scale": scale })
}

/// Settings as llama-server shows them.
pub fn settings_json(settings: &Settings, seed: u64) -> Value {
    let sampler = &settings.sampler;
    let mut shown = json!({
        "seed": seed,
        "top_k": sampler.top_k,
        "repeat_last_n": i64::try_from(sampler.repeat_last_n).unwrap_or(-1),
        "dry_allowed_length": sampler.dry.allowed_length,
        // Off: it is not known here.
        "adaptive_target": -1.0,
        "adaptive_decay": 0.9,
        "samplers": sampler.samplers.iter().map(|stage| stage.name()).collect::<Vec<_>>(),
        "stop": settings.stop,
        "max_tokens": settings.max_tokens.map_or(-1, |n| n as i64),
        "n_predict": settings.max_tokens.map_or(-1, |n| n as i64),
        "n_keep": settings.keep.map_or(-1, |n| n as i64),
        "ignore_eos": settings.ignore_eos,
        "logit_bias": settings.bias.iter().map(bias_json).collect::<Vec<_>>(),
        "n_probs": settings.logprobs.unwrap_or(0),
        "post_sampling_probs": settings.post_sampling,
        "timings_per_token": settings.timings_per_token,
        "mask": settings.mask,
        "lora": settings.loras.iter().map(lora_json).collect::<Vec<_>>(),
        "drafts": settings.drafts,
    });
    for number in NUMBERS {
        shown[number.in_requests] = json!((number.get)(sampler));
    }
    shown
}
