//! The settings that all requests may have, by OpenAI's names and llama-server's.

use serde_json::Value;

use super::super::{
    ask::{Biased, Constraint, Defaults, LoraScale, Settings},
    error::ApiError,
    fields::Fields,
};
use crate::sampler::{Allowed, Mirostat, NUMBERS, Stage};

type Result<T> = std::result::Result<T, ApiError>;

/// The most of the likeliest tokens at a place.
const MOST_LOGPROBS: i64 = 1000;
/// Texts in a list, each of which is looked for in every piece or token.
const MOST_TEXTS: usize = 256;
/// Stages of a chain, each of which costs all texts some time.
const MOST_STAGES: usize = 64;
/// Adapters in a list.
const MOST_LORAS: usize = 1024;
/// More than any vocabulary has.
const MOST_BIASES: usize = 1 << 19;
/// Bytes of the texts that have a bias, together: they become tokens before these can be counted.
const MOST_BIASED_BYTES: usize = 1 << 17;

/// Reads the settings of a request; what it does not say is as the server's flags have it.
pub fn settings(fields: Fields, defaults: &Defaults) -> Result<Settings> {
    let mut settings = defaults.settings.clone();
    sampler(fields, &mut settings)?;
    let most = i64::from(i32::MAX);
    if let Some(tokens) = fields.integer(&["n_predict", "max_completion_tokens", "max_tokens"], -1..=most)? {
        settings.max_tokens = usize::try_from(tokens).ok();
    }
    if let Some(n) = fields.integer(&["n_cmpl", "n"], 1..=defaults.most_answers as i64)? {
        settings.n = n as usize;
    }
    let stops = not_more("stop", MOST_TEXTS, fields.texts("stop")?)?;
    settings.stop.extend(stops.into_iter().filter(|stop| !stop.is_empty()));
    if let Some(n) = fields.integer(&["n_probs"], 0..=MOST_LOGPROBS)? {
        settings.logprobs = Some(n as usize).filter(|n| *n > 0);
    }
    if let Some(n) = fields.integer(&["n_keep"], -1..=most)? {
        settings.keep = usize::try_from(n).ok();
    }
    let flags = [
        ("post_sampling_probs", &mut settings.post_sampling),
        ("ignore_eos", &mut settings.ignore_eos),
        ("timings_per_token", &mut settings.timings_per_token),
        ("speculation", &mut settings.speculation),
        ("return_progress", &mut settings.return_progress),
        ("return_tokens", &mut settings.return_tokens),
        ("verbose", &mut settings.verbose),
        ("drafts", &mut settings.drafts),
        ("cache_prompt", &mut settings.reuses),
    ];
    for (name, flag) in flags {
        *flag = fields.bool(name)?.unwrap_or(*flag);
    }
    if let Some(slot) = fields.integer(&["id_slot"], -1..=most)? {
        settings.slot = usize::try_from(slot).ok();
    }
    if let Some(options) = fields.object("stream_options")? {
        settings.include_usage = options.bool("include_usage")?.unwrap_or(settings.include_usage);
    }
    if let Some(seconds) = fields.integer(&["sse_ping_interval"], -1..=most)? {
        settings.ping_seconds = u64::try_from(seconds).unwrap_or(0);
    }
    if fields.get("dry_sequence_breakers").is_some() {
        let breakers = fields.texts("dry_sequence_breakers")?;
        settings.breakers = Some(not_more("dry_sequence_breakers", MOST_TEXTS, breakers)?);
    }
    settings.response_fields = not_more("response_fields", MOST_TEXTS, fields.texts("response_fields")?)?;
    settings.mask = fields.get("mask").cloned();
    if let Some(wanted) = fields.get("lora") {
        settings.loras = lora_scales(wanted)?;
    }
    settings.constraint = constraint(fields)?;
    settings.bias = short(not_more("logit_bias", MOST_BIASES, biases(fields)?)?)?;
    settings.sampler.validate().map_err(ApiError::from)?;
    Ok(settings)
}

/// Adapters by number, as `[{"id": 0, "scale": 0.5}]`.
pub fn lora_scales(wanted: &Value) -> Result<Vec<LoraScale>> {
    let wrong = || ApiError::field("lora", "a list of objects with `id` and `scale` is needed");
    let all = not_more("lora", MOST_LORAS, wanted.as_array().ok_or_else(wrong)?.iter().collect())?;
    let scale = |entry: &Value| {
        let fields = Fields(entry.as_object().ok_or_else(wrong)?);
        let id = fields.integer(&["id"], 0..=i64::from(i32::MAX))?.ok_or_else(wrong)?;
        let scale = fields.number("scale")?.unwrap_or(0.0) as f32;
        match scale.is_finite() {
            true => Ok(LoraScale { id: id as usize, scale }),
            false => Err(ApiError::field("scale", "the number is too large")),
        }
    };
    all.into_iter().map(scale).collect()
}

/// A list that is not longer than this.
fn not_more<T>(name: &str, most: usize, all: Vec<T>) -> Result<Vec<T>> {
    match all.len() {
        n if n > most => Err(ApiError::field(name, format!("{n} entries; {most} are possible"))),
        _ => Ok(all),
    }
}

/// Biases whose texts are not longer than this together.
fn short(biases: Vec<(Biased, f32)>) -> Result<Vec<(Biased, f32)>> {
    let bytes = |(biased, _): &(Biased, f32)| match biased {
        Biased::Token(_) => 0,
        Biased::Text(text) => text.len(),
    };
    match biases.iter().map(bytes).sum::<usize>() {
        n if n > MOST_BIASED_BYTES => {
            let message = format!("its texts have {n} bytes together; {MOST_BIASED_BYTES} are possible");
            Err(ApiError::field("logit_bias", message))
        }
        _ => Ok(biases),
    }
}

fn sampler(fields: Fields, settings: &mut Settings) -> Result<()> {
    let sampler = &mut settings.sampler;
    for number in NUMBERS {
        if let Some(value) = fields.number(number.in_requests)? {
            // llama-server takes the nearest that it can use.
            let most = f64::from(f32::MAX);
            let (low, high) = match number.allowed {
                Allowed::Share => (0.0, 1.0),
                Allowed::AtLeastOne => (1.0, most),
                Allowed::Finite if number.name == "temp" => (0.0, most),
                Allowed::Finite | Allowed::Positive => (-most, most),
            };
            *(number.field)(sampler) = value.clamp(low, high) as f32;
        }
    }
    let most = i64::from(i32::MAX);
    if let Some(k) = fields.integer(&["top_k"], -most..=most)? {
        sampler.top_k = usize::try_from(k).unwrap_or(0);
    }
    if let Some(n) = fields.integer(&["repeat_last_n"], -1..=most)? {
        sampler.repeat_last_n = usize::try_from(n).unwrap_or(usize::MAX);
    }
    if let Some(n) = fields.integer(&["dry_allowed_length"], 0..=most)? {
        sampler.dry.allowed_length = n as usize;
    }
    if let Some(n) = fields.integer(&["dry_penalty_last_n"], -1..=most)? {
        sampler.dry.last_n = usize::try_from(n).unwrap_or(usize::MAX);
    }
    if let Some(version) = fields.integer(&["mirostat"], 0..=2)? {
        sampler.mirostat = match version {
            1 => Some(Mirostat::One),
            2 => Some(Mirostat::Two),
            _ => None,
        };
    }
    match fields.get("samplers") {
        None => (),
        Some(Value::String(letters)) => sampler.samplers = Stage::of_letters(letters)?,
        Some(_) => {
            let names = fields.texts("samplers")?;
            // llama-server leaves out what it does not know.
            sampler.samplers = names.iter().filter_map(|name| Stage::of_name(name).ok()).collect();
        }
    }
    sampler.samplers = not_more("samplers", MOST_STAGES, std::mem::take(&mut sampler.samplers))?;
    if let Some(seed) = fields.integer(&["seed"], -1..=i64::from(u32::MAX))? {
        // llama-server's "any": all bits of its 32, written as -1 too.
        sampler.seed = u32::try_from(seed).ok().filter(|seed| *seed != u32::MAX);
    }
    Ok(())
}

/// What a text has to be, by any of the names for it.
fn constraint(fields: Fields) -> Result<Option<Constraint>> {
    let schema = fields.get("json_schema");
    let grammar = fields.text("grammar")?.filter(|grammar| !grammar.is_empty());
    if schema.is_some() && grammar.is_some() {
        return Err(ApiError::invalid("either `json_schema` or `grammar` is possible, not both"));
    }
    let mut found = grammar.map(|grammar| Constraint::Grammar(grammar.to_owned()));
    if let Some(schema) = schema {
        found = Some(Constraint::Schema(checked("json_schema", schema)?));
    }
    let Some(format) = fields.object("response_format")? else { return Ok(found) };
    let any = Value::Object(serde_json::Map::from_iter([("type".to_owned(), "object".into())]));
    match format.text("type")? {
        Some("json_object") => {
            let schema =
                format.get("schema").map(|schema| checked("response_format.schema", schema)).transpose()?;
            match (schema, &found) {
                (Some(schema), _) => found = Some(Constraint::Schema(schema)),
                (None, Some(_)) => (),
                (None, None) => found = Some(Constraint::Schema(any)),
            }
        }
        Some("json_schema") => {
            // Chat completions have it one level deeper than responses.
            let inner = format.object("json_schema")?.unwrap_or(format);
            let schema =
                inner.get("schema").map(|schema| checked("response_format.json_schema.schema", schema));
            found = Some(Constraint::Schema(schema.transpose()?.unwrap_or(any)));
        }
        Some("text") | None => (),
        Some(other) => {
            let message = format!("{other:?}; `text`, `json_object` and `json_schema` are possible");
            return Err(ApiError::field("response_format.type", message));
        }
    }
    Ok(found)
}

/// A schema is an object, or says yes to all; an empty one means any object.
fn checked(name: &str, schema: &Value) -> Result<Value> {
    match schema {
        Value::Object(fields) if fields.is_empty() => Ok(serde_json::json!({ "type": "object" })),
        Value::Object(_) | Value::Bool(true) => Ok(schema.clone()),
        Value::Null | Value::Bool(false) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(ApiError::field(name, "a JSON schema is needed, which is an object"))
        }
    }
}

/// A list of pairs, or an object from tokens to biases; `false` forbids.
fn biases(fields: Fields) -> Result<Vec<(Biased, f32)>> {
    let wrong = |what: &dyn std::fmt::Display| {
        ApiError::field("logit_bias", format!("{what}: tokens with a number each are needed, or with false"))
    };
    let bias = |value: &Value| match value {
        Value::Bool(false) => Ok(f32::NEG_INFINITY),
        Value::Number(number) => Ok(number.as_f64().unwrap_or(0.0) as f32),
        other => Err(wrong(other)),
    };
    let token = |text: &str| match text.parse() {
        Ok(id) => Biased::Token(id),
        Err(_) => Biased::Text(text.to_owned()),
    };
    match fields.get("logit_bias") {
        None => Ok(Vec::new()),
        Some(Value::Object(all)) => all.iter().map(|(key, value)| Ok((token(key), bias(value)?))).collect(),
        Some(Value::Array(all)) => {
            let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
                Some([Value::String(text), value]) => Ok((Biased::Text(text.clone()), bias(value)?)),
                Some([key, value]) => {
                    let id = key.as_u64().and_then(|id| u32::try_from(id).ok());
                    Ok((Biased::Token(id.ok_or_else(|| wrong(key))?), bias(value)?))
                }
                Some(_) | None => Err(wrong(pair)),
            };
            all.iter().map(pair).collect()
        }
        Some(other) => Err(wrong(other)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<Settings> {
        settings(Fields::of(&body)?, &Defaults::default())
    }

    #[test]
    fn both_dialects_are_read() {
        let openai = read(json!({
            "max_completion_tokens": 64, "temperature": 0, "top_p": 0.9, "frequency_penalty": 0.5, "presence_penalty": null,
            "n": 2, "stop": "END", "seed": 42, "stream_options": { "include_usage": true }, "logit_bias": { "15": -100, " he": 1 },
        }))
        .unwrap();
        assert_eq!((openai.max_tokens, openai.n, openai.sampler.seed), (Some(64), 2, Some(42)));
        assert_eq!(
            (openai.sampler.temp, openai.sampler.top_p, openai.sampler.frequency_penalty),
            (0.0, 0.9, 0.5)
        );
        assert_eq!((openai.stop.as_slice(), openai.include_usage), (&["END".to_owned()][..], true));
        assert_eq!(openai.bias, [(Biased::Token(15), -100.0), (Biased::Text(" he".into()), 1.0)]);
        let llama = read(json!({
            "n_predict": -1, "max_tokens": 5, "top_k": 0, "repeat_last_n": -1, "seed": -1, "n_probs": 3, "n_keep": -1,
            "stop": ["", "a", "b"], "logit_bias": [[15, false], ["x", 0.5]], "mask": [1, 2],
        }))
        .unwrap();
        assert_eq!(
            (llama.max_tokens, llama.sampler.top_k, llama.sampler.repeat_last_n),
            (None, 0, usize::MAX)
        );
        assert_eq!(
            (llama.sampler.seed, llama.logprobs, llama.keep, llama.stop.len()),
            (None, Some(3), None, 2)
        );
        assert_eq!(llama.bias, [(Biased::Token(15), f32::NEG_INFINITY), (Biased::Text("x".into()), 0.5)]);
        assert_eq!(llama.mask, Some(json!([1, 2])));
        assert_eq!(read(json!({ "id_slot": 1 })).unwrap().slot, Some(1));
        assert_eq!(read(json!({ "id_slot": -1 })).unwrap().slot, None);
        assert!(llama.reuses && !read(json!({ "cache_prompt": false })).unwrap().reuses);
        assert_eq!(read(json!({ "temperature": -1, "top_p": 3 })).unwrap().sampler.temp, 0.0);
    }

    #[test]
    fn constraints_have_many_names() {
        let schema = json!({ "const": "42" });
        for body in [
            json!({ "json_schema": schema }),
            json!({ "response_format": { "type": "json_object", "schema": schema } }),
            json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": schema } } }),
            json!({ "response_format": { "type": "json_schema", "name": "x", "schema": schema } }),
        ] {
            assert_eq!(
                read(body.clone()).unwrap().constraint,
                Some(Constraint::Schema(schema.clone())),
                "{body}"
            );
        }
        let any = Some(Constraint::Schema(json!({ "type": "object" })));
        assert_eq!(read(json!({ "response_format": { "type": "json_object" } })).unwrap().constraint, any);
        assert_eq!(read(json!({ "json_schema": {} })).unwrap().constraint, any);
        assert_eq!(
            read(json!({ "response_format": { "type": "text" }, "grammar": "" })).unwrap().constraint,
            None
        );
        let grammar = read(json!({ "grammar": "root ::= \"a\"" })).unwrap();
        assert_eq!(grammar.constraint, Some(Constraint::Grammar("root ::= \"a\"".into())));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (body, name) in [
            (json!({ "n_predict": "8" }), "n_predict"),
            (json!({ "max_tokens": -2 }), "max_tokens"),
            (json!({ "temperature": "hot" }), "temperature"),
            (json!({ "repeat_penalty": 0 }), "repeat_penalty"),
            (json!({ "n": 0 }), "n"),
            (json!({ "stop": 1 }), "stop"),
            (json!({ "stop": vec!["x"; 257] }), "stop"),
            (json!({ "dry_sequence_breakers": vec!["x"; 257] }), "dry_sequence_breakers"),
            (json!({ "samplers": "k".repeat(65) }), "samplers"),
            (json!({ "samplers": vec!["top_k"; 65] }), "samplers"),
            (json!({ "seed": 1.5 }), "seed"),
            (json!({ "lora": { "id": 0 } }), "lora"),
            (json!({ "lora": [0] }), "lora"),
            (json!({ "lora": [{ "scale": 1 }] }), "lora"),
            (json!({ "lora": [{ "id": -1, "scale": 1 }] }), "id"),
            (json!({ "lora": [{ "id": 0, "scale": "1" }] }), "scale"),
            (json!({ "lora": [{ "id": 0, "scale": 1e300 }] }), "scale"),
            (json!({ "response_format": { "type": "sound" } }), "response_format.type"),
            (
                json!({ "response_format": { "type": "json_object", "schema": 123 } }),
                "response_format.schema",
            ),
            (json!({ "json_schema": {}, "grammar": "x" }), "grammar"),
            (json!({ "logit_bias": { "1": "x" } }), "logit_bias"),
            (json!({ "logit_bias": { "x".repeat((1 << 17) + 1): 1 } }), "logit_bias"),
            (json!({ "logit_bias": [["x".repeat(1 << 16), 1], ["y".repeat(1 << 17), 1]] }), "logit_bias"),
            (json!({ "stream_options": 1 }), "stream_options"),
        ] {
            let error = read(body.clone()).unwrap_err();
            assert_eq!(error.status, 400);
            assert!(error.message.contains(&format!("`{name}`")), "{body}: {}", error.message);
        }
    }
}
