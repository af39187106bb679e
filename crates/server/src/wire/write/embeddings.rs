//! Embeddings and ranks, in the shapes that clients look for.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;

/// OpenAI's answer.
#[derive(Serialize)]
pub struct Embeddings<'a> {
    model: &'a str,
    object: &'static str,
    usage: Usage,
    data: Vec<OfText<'a>>,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl Usage {
    fn new(tokens: usize) -> Self {
        Usage { prompt_tokens: tokens, total_tokens: tokens }
    }
}

#[derive(Serialize)]
struct OfText<'a> {
    object: &'static str,
    index: usize,
    embedding: Numbers<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding_format: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Numbers<'a> {
    Floats(&'a [f32]),
    Base64(String),
}

impl<'a> Embeddings<'a> {
    /// Of texts that have so many tokens together.
    pub fn new(model: &'a str, vectors: &'a [&'a [f32]], tokens: usize, base64: bool) -> Self {
        let spelled = |vector: &'a [f32]| match base64 {
            false => Numbers::Floats(vector),
            true => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                Numbers::Base64(STANDARD.encode(bytes))
            }
        };
        let of_text = |(index, vector): (usize, &&'a [f32])| OfText {
            object: "embedding",
            index,
            embedding: spelled(vector),
            encoding_format: base64.then_some("base64"),
        };
        let data = vectors.iter().enumerate().map(of_text).collect();
        Embeddings { model, object: "list", usage: Usage::new(tokens), data }
    }
}

/// llama-server's own, of one text: a vector, or one for each token.
#[derive(Serialize)]
pub struct Plain<'a> {
    /// The text's place in the request.
    pub index: usize,
    /// What was made of it.
    pub embedding: &'a [Vec<f32>],
}

/// How well an answer fits, in Jina's words or in TEI's.
#[derive(Serialize)]
pub struct Rank<'a> {
    /// The answer's place in the request.
    pub index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    relevance_score: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Document<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

#[derive(Serialize)]
struct Document<'a> {
    text: &'a str,
}

impl<'a> Rank<'a> {
    /// With its text, if that is wanted.
    pub fn new(index: usize, score: f32, text: Option<&'a str>, tei: bool) -> Self {
        Rank {
            index,
            relevance_score: (!tei).then_some(score),
            score: tei.then_some(score),
            document: text.filter(|_| !tei).map(|text| Document { text }),
            text: text.filter(|_| tei),
        }
    }
}

/// Jina's answer.
#[derive(Serialize)]
pub struct Ranks<'a> {
    model: &'a str,
    object: &'static str,
    usage: Usage,
    results: &'a [Rank<'a>],
}

impl<'a> Ranks<'a> {
    /// Of pairs that have so many tokens together.
    pub fn new(model: &'a str, results: &'a [Rank<'a>], tokens: usize) -> Self {
        Ranks { model, object: "list", usage: Usage::new(tokens), results }
    }
}
