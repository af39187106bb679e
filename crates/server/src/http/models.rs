//! The models that there are: what is told of them, and which are loaded or let go.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json,
    body::Bytes,
    extract::{Request, State},
    http::Uri,
    response::Response,
};
use serde_json::{Map, Value, json};
use tokio::sync::{broadcast::error::RecvError, mpsc::channel};

use super::{
    App,
    answering::streamed,
    routes::{body, in_query, named},
    run_blocking,
};
use crate::{
    models::View,
    served::{FINGERPRINT, Served},
    wire::ApiError,
};

type Result<T> = std::result::Result<T, ApiError>;

/// For so long nothing is sent to who listens to events.
const SILENCE: Duration = Duration::from_secs(30);
/// Events that may wait for a client that reads slowly.
const MOST_EVENTS: usize = 64;

/// All of them. With `reload` in the address they are looked for again.
pub(super) async fn list(State(app): State<Arc<App>>, uri: Uri) -> Result<Json<Value>> {
    if !app.models.is_many() {
        let model = app.models.only().await?;
        return Ok(Json(only(&model)));
    }
    if in_query(&uri, "reload").is_some_and(|wish| !wish.is_empty()) {
        let app = app.clone();
        run_blocking(move || Ok(app.models.list_again()?)).await?;
    }
    let views = app.models.views();
    let shown = views.iter().filter(|view| !view.listed.hidden);
    Ok(Json(json!({ "object": "list", "data": shown.map(of_many).collect::<Vec<_>>() })))
}

/// What is known of a loaded model.
fn meta(model: &Served) -> Value {
    let facts = &model.facts;
    json!({
        "n_vocab": model.preparer.tokenizer.vocab_size(),
        "n_ctx": model.preparer.n_ctx,
        "n_ctx_train": facts.n_ctx_train,
        "n_embd": facts.n_embd,
        "n_params": facts.n_params,
        "size": facts.size,
    })
}

fn only(model: &Served) -> Value {
    let facts = &model.facts;
    let name = facts.names.first();
    let shown = json!({
        "id": name,
        "aliases": facts.names,
        "tags": facts.tags,
        "object": "model",
        "created": model.metrics.started,
        "owned_by": "spec-run",
        "meta": meta(model),
    });
    let ollama = json!({ "name": name, "model": name, "tags": facts.tags, "capabilities": ["completion"] });
    json!({ "object": "list", "data": [shown], "models": [ollama] })
}

fn of_many(view: &View<Arc<Served>>) -> Value {
    let View { listed, failed, here, .. } = view;
    let is_asleep = here.as_ref().is_some_and(|model| model.answers.is_asleep());
    let mut status = Map::new();
    status.insert("value".into(), if is_asleep { "sleeping" } else { view.status }.into());
    status.insert("args".into(), json!(listed.args));
    status.insert("preset".into(), json!(listed.preset));
    if let (Some(why), true) = (failed, view.status == "unloaded") {
        status.extend([
            ("failed".into(), true.into()),
            ("exit_code".into(), 1.into()),
            ("message".into(), json!(why)),
        ]);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut shown = json!({
        "id": listed.id,
        "aliases": listed.aliases,
        "tags": listed.tags,
        "object": "model",
        "created": now,
        "owned_by": "spec-run",
        "status": status,
        "architecture": { "input_modalities": ["text"], "output_modalities": ["text"] },
        "source": listed.source,
        "can_remove": false,
    });
    if let Some(model) = here {
        shown["meta"] = meta(model);
    }
    shown
}

/// What the page and others ask of a server whose models have to be named.
pub(super) fn props(app: &App) -> Value {
    json!({
        "role": "router",
        "max_instances": app.models.most().unwrap_or(0),
        "models_autoload": app.models.autoloads(),
        "model_alias": "spec-run",
        "model_path": "none",
        "default_generation_settings": { "params": {}, "n_ctx": 0 },
        "modalities": { "vision": false, "audio": false },
        "build_info": FINGERPRINT,
        "endpoint_slots": app.config.slots,
        "endpoint_metrics": app.config.metrics,
        "cors_proxy_enabled": false,
    })
}

fn check_many(app: &App) -> Result<()> {
    if app.models.is_many() {
        return Ok(());
    }
    Err(ApiError::not_supported("the server has one model, which is always there"))
}

async fn changed(
    app: Arc<App>,
    request: Request,
    what: fn(&App, Option<&str>) -> Result<()>,
) -> Result<Json<Value>> {
    check_many(&app)?;
    let asked = body(&app, request).await?;
    what(&app, named(&asked))?;
    Ok(Json(json!({ "success": true })))
}

pub(super) async fn load(State(app): State<Arc<App>>, request: Request) -> Result<Json<Value>> {
    changed(app, request, |app, name| app.models.load(name)).await
}

pub(super) async fn unload(State(app): State<Arc<App>>, request: Request) -> Result<Json<Value>> {
    changed(app, request, |app, name| app.models.unload(name)).await
}

/// What happens to models, as it happens.
pub(super) async fn events(State(app): State<Arc<App>>) -> Result<Response> {
    check_many(&app)?;
    let events = app.models.events();
    let mut events = events.ok_or_else(|| ApiError::unavailable("the server is ending"))?;
    let (pieces, received) = channel(MOST_EVENTS);
    tokio::spawn(async move {
        loop {
            let piece = tokio::select! {
                () = pieces.closed() => return,
                () = tokio::time::sleep(SILENCE) => ": ping\n\n".to_owned(),
                event = events.recv() => match event {
                    Ok(event) => format!("data: {event}\n\n"),
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return,
                },
            };
            if pieces.send(Bytes::from(piece)).await.is_err() {
                return;
            }
        }
    });
    Ok(streamed(received))
}
