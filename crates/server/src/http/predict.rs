//! Google's Vertex AI asks for answers at one path: a list of requests, each of which says which kind it is.

use std::sync::Arc;

use axum::{Json, extract::Request};
use serde_json::{Value, json};

use super::{
    App, answering,
    routes::{Read, body, named},
};
use crate::{
    models::Naming,
    wire::{ApiError, Fields, read},
};

/// The most requests in one.
const MOST: usize = 128;
const FORMAT: &str = "@requestFormat";

/// Kinds of requests: how Vertex AI names them, their path, and how they are read.
const KINDS: [(&str, &str, Read); 6] = [
    ("chatCompletions", "/v1/chat/completions", read::chat),
    ("completions", "/v1/completions", read::completions),
    ("completion", "/completion", read::llama),
    ("responses", "/v1/responses", read::responses),
    ("messages", "/v1/messages", read::messages),
    ("infill", "/infill", read::infill),
];

/// Answers all requests of a list, at once. One that cannot be answered has its error in its place.
pub(super) async fn predict(app: Arc<App>, request: Request) -> Result<Json<Value>, ApiError> {
    let instances = instances(&body(&app, request).await?)?;
    let mut answers = tokio::task::JoinSet::new();
    for (index, instance) in instances.into_iter().enumerate() {
        let app = app.clone();
        answers.spawn(async move { (index, one(app, instance).await) });
    }
    let mut predictions = vec![Value::Null; answers.len()];
    while let Some(answer) = answers.join_next().await {
        let (index, prediction) = answer.map_err(|_| ApiError::server("a request could not be answered"))?;
        predictions[index] = prediction;
    }
    Ok(Json(json!({ "predictions": predictions })))
}

fn instances(json: &Value) -> Result<Vec<Value>, ApiError> {
    let instances = Fields::of(json)?.list("instances")?;
    let instances = instances.ok_or_else(|| ApiError::field("instances", "a list is needed"))?;
    if instances.len() > MOST {
        let message = format!("{} requests; {MOST} are possible in one", instances.len());
        return Err(ApiError::field("instances", message));
    }
    Ok(instances.clone())
}

async fn one(app: Arc<App>, mut instance: Value) -> Value {
    let answer = async {
        let format = Fields::of(&instance)?.text(FORMAT)?.map(str::to_owned);
        let format = format.ok_or_else(|| ApiError::field(FORMAT, "the kind of request is needed"))?;
        let kind = KINDS.iter().find(|(name, path, _)| [*name, *path].contains(&format.as_str()));
        let (_, _, read) = kind.ok_or_else(|| {
            let known: Vec<&str> = KINDS.iter().map(|(name, ..)| *name).collect();
            ApiError::field(FORMAT, format!("{format:?}; there are {}", known.join(", ")))
        })?;
        if let Some(fields) = instance.as_object_mut() {
            fields.shift_remove(FORMAT);
            // There is one body for all.
            fields.shift_remove("stream");
        }
        let most_waiting = Some(app.config.most_waiting);
        let naming = Naming { name: named(&instance), most_waiting, ..Naming::default() };
        let model = app.models.wanted(naming)?.lease().await?;
        let ask = read(&instance, &model.defaults)?;
        answering::json(app, model, ask, "predict").await
    };
    answer.await.unwrap_or_else(|error| error.to_json())
}
