//! Embeddings, and how well answers fit a question.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{Request, State},
    http::{Uri, header},
    response::{IntoResponse, Response},
    routing::{MethodRouter, post},
};
use serde::Serialize;
use serde_json::Value;

use super::{App, routes::asked, run_blocking};
use crate::{
    embed::{Embedding, Pooling, normalize},
    embeds::Embeds,
    models::Lease,
    wire::{
        ApiError, Reason, Timings,
        read::{self, Embed, Rerank},
        write::{Embeddings, Plain, Rank, Ranks},
    },
};

type Result<T> = std::result::Result<T, ApiError>;

/// OpenAI's route, or llama-server's own.
pub(super) fn embeds(openai: bool) -> MethodRouter<Arc<App>> {
    post(move |State(app): State<Arc<App>>, uri: Uri, request: Request| async move {
        answered(&app, &uri, request, |json| read::embed(json, openai), embed).await
    })
}

/// The route of ranks.
pub(super) fn reranks() -> MethodRouter<Arc<App>> {
    post(|State(app): State<Arc<App>>, uri: Uri, request: Request| async move {
        answered(&app, &uri, request, read::rerank, rerank).await
    })
}

/// A request that an embedder answers.
struct Asking {
    app: Arc<App>,
    model: Lease,
    path: String,
}

async fn answered<T>(
    app: &Arc<App>,
    uri: &Uri,
    request: Request,
    read: impl Fn(&Value) -> Result<T>,
    answer: impl AsyncFn(&Asking, T) -> Result<Vec<u8>>,
) -> Result<Response> {
    let (model, json) = asked(app, uri, request).await?;
    let asking = Asking { app: app.clone(), model, path: uri.path().to_owned() };
    let json = answer(&asking, read(&json)?).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

impl Asking {
    fn embeds(&self) -> Result<&Arc<Embeds>> {
        self.model.embeds.as_ref().ok_or_else(|| {
            ApiError::not_supported(
                "this server makes text, not embeddings: start it with its setting `embeddings`",
            )
        })
    }

    /// Of texts that become tokens where no other request waits for it.
    async fn made(
        &self,
        texts: impl FnOnce(&Lease) -> Result<Vec<Vec<u32>>> + Send + 'static,
    ) -> Result<Vec<Embedding>> {
        let embeds = self.embeds()?.clone();
        let began = Instant::now();
        let model = self.model.clone();
        let texts = run_blocking(move || texts(&model)).await?;
        let made = embeds.of(texts, self.app.config.most_waiting).await?;
        let prompt_ms = began.elapsed().as_secs_f64() * 1e3;
        let timings = Timings { prompt: tokens_of(&made), prompt_ms, ..Timings::default() };
        self.app.has_answered(&self.model, embeds.next_id(), &self.path, Some(&Reason::End), &timings);
        Ok(made)
    }

    /// What the client calls the model, or its own name.
    fn name<'a>(&'a self, given: &'a Option<String>) -> &'a str {
        given.as_deref().or(self.model.facts.names.first().map(String::as_str)).unwrap_or_default()
    }
}

fn tokens_of(made: &[Embedding]) -> usize {
    made.iter().map(|made| made.tokens).sum()
}

async fn embed(asking: &Asking, asked: Embed) -> Result<Vec<u8>> {
    let embeds = asking.embeds()?.clone();
    if asked.openai && embeds.pooling == Pooling::None {
        let message =
            "OpenAI's shape has one embedding for each text, and pooling is none: ask at /embedding";
        return Err(ApiError::invalid(message));
    }
    if let Some(dimensions) = asked.dimensions.filter(|&dimensions| dimensions > embeds.width) {
        let message = format!("{dimensions}; an embedding has {} numbers", embeds.width);
        return Err(ApiError::field("dimensions", message));
    }
    let Embed { inputs, openai, base64, normalize: given, dimensions, model } = asked;
    let tokens = move |model: &Lease| inputs.iter().map(|parts| model.preparer.tokens(parts)).collect();
    let mut made = asking.made(tokens).await?;
    let by = given.unwrap_or(embeds.normalize);
    for vector in made.iter_mut().flat_map(|made| &mut made.vectors) {
        vector.truncate(dimensions.unwrap_or(embeds.width));
        // As llama-server has it: vectors of tokens, and ranks, are as they are.
        if !matches!(embeds.pooling, Pooling::None | Pooling::Rank) {
            normalize(vector, by);
        }
    }
    if openai {
        let vectors: Vec<&[f32]> = made.iter().map(|made| &*made.vectors[0]).collect();
        return json(&Embeddings::new(asking.name(&model), &vectors, tokens_of(&made), base64));
    }
    let mut plain = Vec::with_capacity(made.len());
    plain.extend(made.iter().enumerate().map(|(index, made)| Plain { index, embedding: &made.vectors }));
    json(&plain)
}

async fn rerank(asking: &Asking, asked: Rerank) -> Result<Vec<u8>> {
    let embeds = asking.embeds()?.clone();
    if embeds.pooling != Pooling::Rank {
        return Err(ApiError::not_supported(
            "this server does not rank: start it with its setting `rerank`, and a model that was made for that",
        ));
    }
    let (query, documents) = (asked.query.clone(), asked.documents.clone());
    let tokens = move |model: &Lease| {
        let tokenizer = &model.preparer.tokenizer;
        Ok(documents.iter().map(|document| embeds.pairs.encode(tokenizer, &query, document)).collect())
    };
    let made = asking.made(tokens).await?;
    let score = |made: &Embedding| made.vectors[0][0];
    let text = |index: usize| asked.texts.then(|| asked.documents[index].as_str());
    let mut order: Vec<usize> = (0..made.len()).collect();
    order.sort_by(|&a, &b| score(&made[b]).total_cmp(&score(&made[a])));
    let rank = |index: usize| Rank::new(index, score(&made[index]), text(index), asked.tei);
    let ranks: Vec<Rank> = order.into_iter().take(asked.top).map(rank).collect();
    match asked.tei {
        true => json(&ranks),
        false => json(&Ranks::new(asking.name(&asked.model), &ranks, tokens_of(&made))),
    }
}

fn json(answer: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(answer).map_err(|e| ApiError::server(e.to_string()))
}
