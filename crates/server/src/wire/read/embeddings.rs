//! Requests for embeddings and for ranks: OpenAI's, llama-server's, Jina's and TEI's.

use serde_json::Value;

use super::{Result, completions::prompt, model};
use crate::wire::{ask::Part, error::ApiError, fields::Fields};

/// The most texts in one request.
const MOST_TEXTS: usize = 2048;

/// Texts whose embeddings are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    /// Each a text, tokens, or both in turn.
    pub inputs: Vec<Vec<Part>>,
    /// In OpenAI's shape.
    pub openai: bool,
    /// As the bytes of floats, in base64.
    pub base64: bool,
    /// Divided by: see [`crate::embed::normalize`].
    pub normalize: Option<i32>,
    /// So many numbers of each, the first ones.
    pub dimensions: Option<usize>,
    /// What the client calls the model.
    pub model: Option<String>,
}

/// Answers to a question that are to be ranked.
#[derive(Clone, Debug, PartialEq)]
pub struct Rerank {
    /// The question.
    pub query: String,
    /// The answers.
    pub documents: Vec<String>,
    /// So many of the best.
    pub top: usize,
    /// In TEI's shape.
    pub tei: bool,
    /// The answers' texts are wanted too.
    pub texts: bool,
    /// What the client calls the model.
    pub model: Option<String>,
}

/// Reads a request for embeddings; `content` in the place of `input` is llama-server's own.
pub fn embed(body: &Value, openai: bool) -> Result<Embed> {
    let fields = Fields::of(body)?;
    let (name, input) = fields
        .any(&["input", "content"])
        .ok_or_else(|| ApiError::field("input", "a text, or a list of texts, is needed"))?;
    let inputs = match input {
        Value::Array(all) if all.is_empty() => return Err(ApiError::field(name, "the list is empty")),
        Value::Array(all) if !all.iter().any(Value::is_number) => {
            if all.len() > MOST_TEXTS {
                let message = format!("{} texts; {MOST_TEXTS} are possible in one request", all.len());
                return Err(ApiError::field(name, message));
            }
            all.iter().map(|one| text(name, one)).collect::<Result<_>>()?
        }
        other => vec![text(name, other)?],
    };
    let base64 = match fields.text("encoding_format")? {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            let message = format!("{other:?}; there are \"float\" and \"base64\"");
            return Err(ApiError::field("encoding_format", message));
        }
    };
    Ok(Embed {
        inputs,
        openai: openai && name == "input",
        base64,
        normalize: fields.integer(&["embd_normalize"], -1..=100)?.map(|n| n as i32),
        dimensions: fields.integer(&["dimensions"], 1..=i64::from(i32::MAX))?.map(|n| n as usize),
        model: model(fields),
    })
}

/// A prompt, or OpenAI's parts of a content, whose texts are one.
fn text(name: &str, json: &Value) -> Result<Vec<Part>> {
    let Some(content) = json.as_object().and_then(|fields| fields.get("content")) else {
        return prompt(name, json);
    };
    let parts = content.as_array().ok_or_else(|| ApiError::field("content", "a list of parts is needed"))?;
    let mut text = String::new();
    for part in parts {
        match (part.get("type").and_then(Value::as_str), part.get("text").and_then(Value::as_str)) {
            (Some("text"), Some(more)) => text.push_str(more),
            _ => return Err(ApiError::field("content", "only parts of the type \"text\" are possible here")),
        }
    }
    Ok(vec![Part::Text(text)])
}

/// Reads a request for ranks; with `texts` it is TEI's.
pub fn rerank(body: &Value) -> Result<Rerank> {
    let fields = Fields::of(body)?;
    let query = fields.text("query")?.ok_or_else(|| ApiError::field("query", "a text is needed"))?;
    let (name, documents) = fields.any(&["documents", "texts"]).unwrap_or(("documents", &Value::Null));
    let wrong = || ApiError::field(name, "a list of texts is needed, with at least one");
    let documents = documents.as_array().filter(|all| !all.is_empty()).ok_or_else(wrong)?;
    if documents.len() > MOST_TEXTS {
        let message = format!("{} texts; {MOST_TEXTS} are possible in one request", documents.len());
        return Err(ApiError::field(name, message));
    }
    let document = |json: &Value| json.as_str().map(str::to_owned).ok_or_else(wrong);
    let documents: Vec<String> = documents.iter().map(document).collect::<Result<_>>()?;
    let top = fields.integer(&["top_n"], 0..=i64::MAX)?;
    let tei = name == "texts";
    let wants_texts = fields.bool(if tei { "return_text" } else { "return_documents" })?;
    Ok(Rerank {
        query: query.to_owned(),
        top: top.map_or(documents.len(), |top| (top as usize).min(documents.len())),
        documents,
        tei,
        texts: wants_texts.unwrap_or(false),
        model: model(fields),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_have_many_forms() {
        let read = |input: Value| embed(&json!({ "input": input }), true).map(|asked| asked.inputs);
        let text = |text: &str| vec![Part::Text(text.into())];
        let tokens = |ids: &[u32]| ids.iter().copied().map(Part::Token).collect::<Vec<_>>();
        assert_eq!(read(json!("")).unwrap(), [text("")]);
        assert_eq!(read(json!([12, 34])).unwrap(), [tokens(&[12, 34])]);
        assert_eq!(read(json!(["a", [1, 2]])).unwrap(), [text("a"), tokens(&[1, 2])]);
        let parts = json!({ "content": [{ "type": "text", "text": "a " }, { "type": "text", "text": "b" }] });
        assert_eq!(read(parts.clone()).unwrap(), [text("a b")]);
        assert_eq!(
            read(json!(["c", { "prompt_string": "d" }, parts])).unwrap(),
            [text("c"), text("d"), text("a b")]
        );
        for wrong in [
            json!([]),
            json!({ "content": "a" }),
            json!({ "content": [{ "type": "unknown" }] }),
            json!({ "content": [{ "type": "image_url", "image_url": { "url": "data:" } }] }),
            json!(1.5),
        ] {
            assert_eq!(read(wrong.clone()).unwrap_err().status, 400, "{wrong}");
        }
        let format = |format: &str| embed(&json!({ "input": "a", "encoding_format": format }), true);
        assert!(format("base64").unwrap().base64 && !format("float").unwrap().base64);
        assert!(format("hex").unwrap_err().message.contains("base64"));
        assert!(!embed(&json!({ "content": "a" }), true).unwrap().openai);
    }

    #[test]
    fn ranks_are_asked_for_in_two_shapes() {
        let jina = rerank(&json!({ "query": "q", "documents": ["a", "b"], "top_n": 1 })).unwrap();
        assert_eq!((jina.documents.len(), jina.top, jina.tei), (2, 1, false));
        let tei = rerank(&json!({ "query": "q", "texts": ["a"], "top_n": 99, "return_text": true })).unwrap();
        assert!(tei.tei && tei.texts && tei.top == 1);
        for wrong in [json!([]), json!(null), json!(123), json!([1, 2])] {
            let error = rerank(&json!({ "query": "q", "documents": wrong })).unwrap_err();
            assert!(error.status == 400 && error.message.contains("`documents`"), "{error:?}");
        }
        assert!(rerank(&json!({ "documents": ["a"] })).unwrap_err().message.contains("`query`"));
    }
}
