//! Completions of texts: OpenAI's, llama-server's own, and what is missing between two texts.

use serde_json::Value;

use super::{Result, model, settings};
use crate::wire::{
    ask::{Ask, Defaults, Input, Part, Shape},
    error::ApiError,
    fields::Fields,
};

/// The most prompts in one request.
const MOST_PROMPTS: usize = 2048;

/// Reads OpenAI's request; `echo` and `logprobs` as evaluation harnesses need them.
pub fn completions(body: &Value, defaults: &Defaults) -> Result<Ask> {
    let fields = Fields::of(body)?;
    let mut ask = llama(body, defaults)?;
    if fields.get("suffix").is_some_and(|suffix| suffix.as_str() != Some("")) {
        return Err(ApiError::field("suffix", "not possible here; /infill fills gaps"));
    }
    if let Some(best) = fields.integer(&["best_of"], 1..=i64::MAX)?
        && best as usize != ask.settings.n
    {
        return Err(ApiError::field("best_of", format!("{best}; only the value of `n` is possible")));
    }
    ask.settings.echo = fields.bool("echo")?.unwrap_or(false);
    ask.settings.logprobs = match fields.get("logprobs") {
        // Some write it as in chat completions.
        Some(Value::Bool(false)) => None,
        Some(Value::Bool(true)) => Some(fields.integer(&["top_logprobs"], 0..=1000)?.unwrap_or(1) as usize),
        Some(_) => fields.integer(&["logprobs"], 0..=1000)?.map(|n| n as usize),
        None => ask.settings.logprobs,
    };
    if ask.stream && ask.settings.echo && ask.settings.logprobs.is_some() {
        let message = "not possible in a stream together with `logprobs`: those of the prompt are known when all is; \
                       leave out `stream`";
        return Err(ApiError::field("echo", message));
    }
    ask.shape = Shape::Completions;
    Ok(ask)
}

/// Reads llama-server's request.
pub fn llama(body: &Value, defaults: &Defaults) -> Result<Ask> {
    let fields = Fields::of(body)?;
    let settings = settings::settings(fields, defaults)?;
    let inputs = inputs(fields.get("prompt").ok_or_else(|| ApiError::field("prompt", "a text is needed"))?)?;
    let answers = inputs.len() * settings.n;
    if answers > MOST_PROMPTS {
        let message = format!("{answers} answers to all prompts; {MOST_PROMPTS} are possible in one request");
        return Err(ApiError::field("n", message));
    }
    let stream = fields.bool("stream")?.unwrap_or(false);
    Ok(Ask { inputs, settings, shape: Shape::Llama, stream, model: model(fields) })
}

/// Reads a request to fill a gap.
pub fn infill(body: &Value, defaults: &Defaults) -> Result<Ask> {
    let fields = Fields::of(body)?;
    let settings = settings::settings(fields, defaults)?;
    let text = |name: &str| -> Result<Option<String>> { Ok(fields.text(name)?.map(str::to_owned)) };
    let needed = |name: &str| text(name)?.ok_or_else(|| ApiError::field(name, "a text is needed"));
    let file = |at: usize, json: &Value| {
        let name = format!("input_extra[{at}]");
        let file =
            json.as_object().map(Fields).ok_or_else(|| ApiError::field(&name, "an object is needed"))?;
        let text = file.text("text")?.ok_or_else(|| ApiError::field(&name, "`text` is needed"))?;
        Ok((file.text("filename")?.unwrap_or("tmp").to_owned(), text.to_owned()))
    };
    let files = fields.list("input_extra")?.map(Vec::as_slice).unwrap_or_default();
    let extra = files.iter().enumerate().map(|(at, json)| file(at, json)).collect::<Result<_>>()?;
    let (prefix, suffix) = (needed("input_prefix")?, needed("input_suffix")?);
    let input = Input::Infill { prefix, suffix, prompt: text("prompt")?.unwrap_or_default(), extra };
    let stream = fields.bool("stream")?.unwrap_or(false);
    Ok(Ask { inputs: vec![input], settings, shape: Shape::Llama, stream, model: model(fields) })
}

/// One prompt, or a list of them. A list with a number in it is one, of tokens and texts.
fn inputs(json: &Value) -> Result<Vec<Input>> {
    let one = |json: &Value| Ok(Input::Prompt(prompt("prompt", json)?));
    match json {
        Value::Array(all) if all.is_empty() => Err(ApiError::field("prompt", "the list is empty")),
        Value::Array(all) if !all.iter().any(Value::is_number) => {
            if all.len() > MOST_PROMPTS {
                let message = format!("{} prompts; {MOST_PROMPTS} are possible in one request", all.len());
                return Err(ApiError::field("prompt", message));
            }
            all.iter().map(one).collect()
        }
        other => Ok(vec![one(other)?]),
    }
}

/// A text, tokens, or both in turn, of a field with this name.
pub fn prompt(name: &str, json: &Value) -> Result<Vec<Part>> {
    let wrong = || ApiError::field(name, "a text, a list of tokens, or a list of these is needed");
    let part = |json: &Value| match json {
        Value::String(text) => Ok(Part::Text(text.clone())),
        Value::Number(number) => {
            let id = number.as_u64().and_then(|id| u32::try_from(id).ok());
            id.map(Part::Token).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    };
    match json {
        Value::Array(parts) => parts.iter().map(part).collect(),
        Value::Object(fields) => {
            if fields.contains_key("multimodal_data") {
                let message = "multimodal data is not supported: models here read text only";
                return Err(ApiError::field(name, message));
            }
            part(fields.get("prompt_string").ok_or_else(wrong)?).map(|part| vec![part])
        }
        other => Ok(vec![part(other)?]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(text: &str) -> Input {
        Input::Prompt(vec![Part::Text(text.into())])
    }

    #[test]
    fn prompts_have_many_forms() {
        let read =
            |prompt: Value| llama(&json!({ "prompt": prompt }), &Defaults::default()).map(|ask| ask.inputs);
        let tokens = |ids: &[u32]| Input::Prompt(ids.iter().copied().map(Part::Token).collect());
        assert_eq!(read(json!("a")).unwrap(), [text("a")]);
        assert_eq!(read(json!(["a", "b"])).unwrap(), [text("a"), text("b")]);
        assert_eq!(read(json!([1, 2])).unwrap(), [tokens(&[1, 2])]);
        assert_eq!(read(json!([[1], [2, 3]])).unwrap(), [tokens(&[1]), tokens(&[2, 3])]);
        assert_eq!(
            read(json!([[1], "a", { "prompt_string": "b" }])).unwrap(),
            [tokens(&[1]), text("a"), text("b")]
        );
        let mixed = [Part::Token(1), Part::Text("a".into()), Part::Token(2)];
        assert_eq!(read(json!([1, "a", 2])).unwrap(), [Input::Prompt(mixed.into())]);
        for wrong in [json!([]), json!(1.5), json!([-1]), json!({}), json!([[["a"]]]), json!(true)] {
            assert_eq!(read(wrong.clone()).unwrap_err().status, 400, "{wrong}");
        }
        let image = json!({ "prompt_string": "x", "multimodal_data": ["x"] });
        assert!(read(image).unwrap_err().message.contains("multimodal"));
    }

    /// As lm-eval's local-completions sends it.
    #[test]
    fn an_evaluation_harness() {
        let body = json!({
            "prompt": [[1, 2, 3], [1, 4]], "model": "x", "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true, "temperature": 0,
        });
        let ask = completions(&body, &Defaults::default()).unwrap();
        assert_eq!((ask.inputs.len(), ask.settings.echo, ask.settings.logprobs), (2, true, Some(1)));
        assert_eq!(ask.shape, Shape::Completions);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (body, what) in [
            (json!({}), "`prompt`"),
            (json!({ "prompt": "a", "suffix": "b" }), "`suffix`"),
            (json!({ "prompt": vec!["a"; 2049] }), "`prompt`: 2049 prompts"),
            (json!({ "prompt": vec!["a"; 1025], "n": 2 }), "`n`: 2050 answers"),
            (json!({ "prompt": "a", "best_of": 2 }), "`best_of`"),
            (json!({ "prompt": "a", "logprobs": "x" }), "`logprobs`"),
            (
                json!({ "prompt": "a", "logprobs": 1, "echo": true, "stream": true }),
                "`echo`: not possible in",
            ),
        ] {
            let error = completions(&body, &Defaults::default()).unwrap_err();
            assert!(error.message.contains(what), "{body}: {}", error.message);
        }
        let error = infill(&json!({ "input_prefix": "a" }), &Defaults::default()).unwrap_err();
        assert!(error.message.contains("`input_suffix`"));
    }
}
