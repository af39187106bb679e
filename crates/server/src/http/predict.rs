//! Google's Vertex AI asks for answers at one path: a list of requests, each of which says which kind it is.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State},
    http::Uri,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{
    App, answering,
    routes::{Read, body, failed, named},
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
pub(super) async fn predict(State(app): State<Arc<App>>, uri: Uri, request: Request) -> Response {
    let asked = async {
        let json = body(&app, request).await?;
        let instances = Fields::of(&json)?.list("instances")?;
        let instances = instances.ok_or_else(|| ApiError::field("instances", "a list is needed"))?;
        if instances.len() > MOST {
            let message = format!("{} requests; {MOST} are possible in one", instances.len());
            return Err(ApiError::field("instances", message));
        }
        Ok(instances.clone())
    };
    let instances = match asked.await {
        Ok(instances) => instances,
        Err(error) => return failed(&error, uri.path()),
    };
    let mut answers = tokio::task::JoinSet::new();
    for (index, instance) in instances.into_iter().enumerate() {
        let app = app.clone();
        answers.spawn(async move { (index, one(app, instance).await) });
    }
    let mut predictions = vec![Value::Null; answers.len()];
    while let Some(answer) = answers.join_next().await {
        match answer {
            Ok((index, prediction)) => predictions[index] = prediction,
            Err(_) => return failed(&ApiError::server("a request could not be answered"), uri.path()),
        }
    }
    Json(json!({ "predictions": predictions })).into_response()
}

async fn one(app: Arc<App>, instance: Value) -> Value {
    let ask = async {
        let mut instance = instance;
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
        Ok((model, ask))
    };
    let answer = match ask.await {
        Ok((model, ask)) => answering::json(app, model, ask, "predict").await,
        Err(error) => Err(error),
    };
    answer.unwrap_or_else(|error| error.to_json())
}
