//! What there is at which path.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderName, HeaderValue, Method, Uri, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodRouter, any, get, post},
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{
    App,
    answering::{self, Asked},
    embeddings, errors, guard, log, models, predict, run_blocking, slots,
};
use crate::{
    engine::Status,
    hash::fnv1a,
    models::{Lease, Naming},
    prepare::Preparer,
    served::Served,
    tokenizer::EncodeOptions,
    wire::{ApiError, Ask, Defaults, Fields, Input, Part, read, settings_json},
};

/// Where the page's worker asks which page it is.
const VERSION: &str = "/_app/version.json";
/// Texts that become tokens without an engine, at a time: a large one takes many times its size meanwhile.
static TOKENIZED: Semaphore = Semaphore::const_new(4);

type Result<T> = std::result::Result<T, ApiError>;
pub(super) type Read = fn(&Value, &Defaults) -> Result<Ask>;

pub(super) fn router(app: Arc<App>) -> Router {
    let mut routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/slots", get(slots::list))
        .route("/slots/{id}", post(slots::act))
        .route("/lora-adapters", get(adapters).post(set_adapters))
        .route("/cors-proxy", any(no_proxy))
        .route("/tokenizer_info", get(tokenizer_info))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/apply-template", post(apply_template));
    for prefix in ["", "/v1"] {
        let at = |path: &str| format!("{prefix}{path}");
        routes = routes
            .route(&at("/health"), get(health))
            .route(&at("/props"), get(props))
            .route(&at("/models"), get(models::list))
            .route(&at("/models/load"), post(models::load))
            .route(&at("/models/unload"), post(models::unload))
            .route(&at("/models/sse"), get(models::events))
            .route(&at("/chat/completions"), asks(read::chat))
            .route(&at("/chat/completions/input_tokens"), counts(read::chat))
            .route(&at("/responses"), asks(read::responses))
            .route(&at("/responses/input_tokens"), counts(read::responses))
            .route(&at("/messages"), asks(read::messages))
            .route(&at("/messages/count_tokens"), counts(read::messages))
            .route(&at("/infill"), asks(read::infill))
            .route(&at("/completion"), asks(read::llama))
            .route(&at("/embeddings"), embeddings::embeds(prefix == "/v1"))
            .route(&at("/rerank"), embeddings::reranks())
            .route(&at("/reranking"), embeddings::reranks());
    }
    routes
        .route("/completions", asks(read::llama))
        .route("/embedding", embeddings::embeds(false))
        .route("/v1/completions", asks(read::completions))
        .method_not_allowed_fallback(wrong_method)
        .fallback(other)
        .layer(DefaultBodyLimit::max(app.config.most_body))
        .layer(middleware::from_fn_with_state(app.clone(), guard::keys))
        .layer(middleware::from_fn(errors::shapes))
        .layer(middleware::from_fn_with_state(app.clone(), guard::origins))
        .layer(middleware::from_fn_with_state(app.clone(), log::refusals))
        .with_state(app)
}

/// A route whose body is a request for answers.
fn asks(read: Read) -> MethodRouter<Arc<App>> {
    post(move |State(app): State<Arc<App>>, uri: Uri, request: Request| async move {
        let body = body(&app, request).await?;
        let wanted = app.models.wanted(naming(&app, &uri, named(&body)))?;
        let path = uri.path().to_owned();
        answering::answer(app, wanted, Asked { body, read, path }).await
    })
}

/// A route that says how many tokens such a request has.
fn counts(read: Read) -> MethodRouter<Arc<App>> {
    post(move |State(app): State<Arc<App>>, uri: Uri, request: Request| async move {
        let (model, ask) = ask(&app, &uri, request, read).await?;
        let prepared = run_blocking(move || model.preparer.jobs(&ask)).await?;
        let tokens = prepared.first().map_or(0, |one| one.source.tokens.len());
        Result::Ok(Json(json!({ "input_tokens": tokens, "object": "response.input_tokens" })))
    })
}

/// Which model is asked, and what for.
async fn ask(app: &Arc<App>, uri: &Uri, request: Request, read: Read) -> Result<(Lease, Ask)> {
    let (model, asked) = asked(app, uri, request).await?;
    let ask = read(&asked, &model.defaults)?;
    Ok((model, ask))
}

/// Which model a body names, and the body.
pub(super) async fn asked(app: &Arc<App>, uri: &Uri, request: Request) -> Result<(Lease, Value)> {
    let asked = body(app, request).await?;
    let model = app.models.wanted(naming(app, uri, named(&asked)))?.lease().await?;
    Ok((model, asked))
}

/// How a request names a model: `autoload` may stand in its address.
pub(super) fn naming<'a>(app: &App, uri: &Uri, name: Option<&'a str>) -> Naming<'a> {
    let autoload = in_query(uri, "autoload").map(|wish| ["true", "1"].contains(&wish.as_str()));
    Naming { name, autoload, looks: false, most_waiting: Some(app.config.most_waiting) }
}

/// What a body calls the model.
pub(super) fn named(body: &Value) -> Option<&str> {
    body.get("model").and_then(Value::as_str)
}

/// The model that stands behind the question mark.
pub(super) async fn model_of(app: &App, uri: &Uri) -> Result<Lease> {
    let name = in_query(uri, "model");
    let naming = Naming { looks: true, ..naming(app, uri, name.as_deref()) };
    app.models.wanted(naming)?.lease().await
}

/// What stands behind the question mark under a name.
pub(super) fn in_query(uri: &Uri, name: &str) -> Option<String> {
    let pairs = uri.query()?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.into_iter().find(|(known, _)| *known == name).map(|(_, value)| plain(value))
}

/// Without the signs by which addresses spell others.
fn plain(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let spelt = (first == b'%').then(|| after.get(..2)).flatten();
        let spelt = spelt.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        rest = if spelt.is_some() { &after[2..] } else { after };
        bytes.push(spelt.unwrap_or(if first == b'+' { b' ' } else { first }));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The JSON of a request.
pub(super) async fn body(app: &Arc<App>, request: Request) -> Result<Value> {
    let most = app.config.most_body;
    let came =
        tokio::time::timeout(app.config.timeout, axum::body::to_bytes(request.into_body(), most)).await;
    let late = |_| ApiError { status: 408, ..ApiError::invalid("the body did not come in time") };
    let bytes: Bytes = came.map_err(late)?.map_err(|_| {
        let message =
            format!("the body did not come whole, or has more than {most} bytes, which is the limit");
        ApiError { status: 413, ..ApiError::invalid(message) }
    })?;
    serde_json::from_slice(&bytes).map_err(|e| ApiError::invalid(format!("the body is not JSON: {e}")))
}

/// llama-server can fetch any address for its page's tools. Whoever reaches the server could then reach all that it reaches.
async fn no_proxy() -> ApiError {
    ApiError { status: 403, ..ApiError::not_supported("this server does not fetch other addresses") }
}

async fn health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Asked of the engine between its passes.
pub(super) async fn status(model: &Lease) -> Result<Status> {
    let model = model.clone();
    run_blocking(move || Ok(model.answers.status()?)).await
}

async fn metrics(State(app): State<Arc<App>>, uri: Uri) -> Result<impl IntoResponse> {
    if !app.config.metrics {
        return Err(ApiError::not_supported(
            "metrics are off: the server was started without its setting `metrics`",
        ));
    }
    let model = model_of(&app, &uri).await?;
    let text = model.metrics.text(&status(&model).await?);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4")),
        (HeaderName::from_static("process-start-time-unix"), model.metrics.started.into()),
    ];
    Ok((headers, text))
}

async fn props(State(app): State<Arc<App>>, uri: Uri) -> Result<Json<Value>> {
    if app.models.is_many() && in_query(&uri, "model").is_none_or(|name| name.is_empty()) {
        return Ok(Json(models::props(&app)));
    }
    let model = model_of(&app, &uri).await?;
    Ok(Json(props_of(&app, &model)))
}

fn props_of(app: &App, model: &Served) -> Value {
    let Served { defaults, facts, preparer, answers, .. } = model;
    let seed = defaults.settings.sampler.seed.unwrap_or(u32::MAX);
    let template = preparer.template.as_ref();
    json!({
        "default_generation_settings": {
            "id": 0,
            "n_ctx": preparer.n_ctx,
            "is_processing": false,
            "params": settings_json(&defaults.settings, seed.into()),
        },
        "total_slots": facts.texts,
        "model_alias": facts.names.first(),
        "model_name": facts.model_name,
        "model_path": facts.path,
        "modalities": { "vision": false, "audio": false },
        "chat_template": template.map(|template| &template.text),
        "chat_template_from": facts.template_from.name(),
        "chat_template_caps": facts.caps,
        "bos_token": template.map(|template| &template.bos_token),
        "eos_token": template.map(|template| &template.eos_token),
        "build_info": facts.fingerprint,
        "endpoint_slots": app.config.slots,
        "endpoint_metrics": app.config.metrics,
        "cors_proxy_enabled": false,
        "is_sleeping": answers.is_asleep(),
        "masks": facts.masks,
        "sources": facts.sources,
    })
}

async fn adapters(State(app): State<Arc<App>>, uri: Uri) -> Result<Json<Value>> {
    Ok(Json(model_of(&app, &uri).await?.preparer.adapters.to_json()))
}

async fn set_adapters(State(app): State<Arc<App>>, uri: Uri, request: Request) -> Result<Json<Value>> {
    let (model, wanted) = asked(&app, &uri, request).await?;
    model.preparer.adapters.set(&read::lora_scales(&wanted)?)?;
    Ok(Json(json!({ "success": true })))
}

/// In the words of vLLM, which lm-eval speaks.
async fn tokenizer_info(State(app): State<Arc<App>>, uri: Uri) -> Result<Json<Value>> {
    let model = model_of(&app, &uri).await?;
    let Preparer { template, tokenizer, .. } = &model.preparer;
    let text = |id: Option<u32>| id.map(|id| tokenizer.token_text(id).to_owned());
    Ok(Json(json!({
        "tokenizer_class": "spec-run",
        "bos_token": text(tokenizer.bos()),
        "eos_token": text(tokenizer.eos()),
        "add_bos_token": tokenizer.adds_bos(),
        "chat_template": template.as_ref().map(|template| &template.text),
    })))
}

async fn tokenize(State(app): State<Arc<App>>, uri: Uri, request: Request) -> Result<impl IntoResponse> {
    let (model, asked) = asked(&app, &uri, request).await?;
    let turn = TOKENIZED.acquire().await;
    let json = run_blocking(move || {
        // Who has gone leaves the work behind, and the turn lasts as long as that.
        let _turn = turn;
        tokens_of(&model.preparer, &asked)
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], json.await?))
}

/// Written without a tree of JSON, which takes many times as much as the tokens.
#[derive(Serialize)]
struct Tokens<'a> {
    tokens: Ids<'a>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    counted: Option<Counted>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Ids<'a> {
    Alone(Vec<u32>),
    WithPieces(Vec<Piece<'a>>),
}

#[derive(Serialize)]
struct Piece<'a> {
    id: u32,
    piece: PieceText<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PieceText<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// What vLLM says besides.
#[derive(Serialize)]
struct Counted {
    count: usize,
    max_model_len: usize,
}

fn tokens_of(preparer: &Preparer, json: &Value) -> Result<Vec<u8>> {
    let fields = Fields::of(json)?;
    // `prompt` is vLLM's word, whose texts begin as prompts do.
    let (name, content) =
        fields.any(&["content", "prompt"]).ok_or_else(|| ApiError::field("content", "a text is needed"))?;
    let vllm = name == "prompt";
    let special = ["add_special", "add_special_tokens"].map(|name| fields.bool(name));
    let special = special.into_iter().find_map(Result::transpose).transpose()?.unwrap_or(vllm);
    let parse = fields.bool("parse_special")?.unwrap_or(true);
    let mut tokens = Vec::new();
    for (n, part) in read::prompt(name, content)?.iter().enumerate() {
        match part {
            Part::Token(id) => tokens.push(*id),
            Part::Text(text) => {
                let options = EncodeOptions { add_special: special && n == 0, parse_special: parse };
                tokens.extend(preparer.tokenizer.encode(text, options));
            }
        }
    }
    let counted = vllm.then_some(Counted { count: tokens.len(), max_model_len: preparer.n_ctx });
    let piece = |id: u32| {
        let bytes = preparer.tokenizer.piece(id);
        let piece = std::str::from_utf8(bytes).map_or(PieceText::Bytes(bytes), PieceText::Text);
        Piece { id, piece }
    };
    let tokens = match fields.bool("with_pieces")? {
        Some(true) => Ids::WithPieces(tokens.into_iter().map(piece).collect()),
        Some(false) | None => Ids::Alone(tokens),
    };
    serde_json::to_vec(&Tokens { tokens, counted }).map_err(|e| ApiError::server(e.to_string()))
}

async fn detokenize(State(app): State<Arc<App>>, uri: Uri, request: Request) -> Result<Json<Value>> {
    let (model, asked) = asked(&app, &uri, request).await?;
    run_blocking(move || text_of(&model.preparer, &asked)).await.map(Json)
}

fn text_of(preparer: &Preparer, json: &Value) -> Result<Value> {
    let ids = json.get("tokens").ok_or_else(|| ApiError::field("tokens", "a list of tokens is needed"))?;
    let mut tokens = Vec::new();
    let most = preparer.tokenizer.vocab_size();
    for part in read::prompt("tokens", ids)? {
        match part {
            Part::Token(id) if (id as usize) < most => tokens.push(id),
            Part::Token(id) => {
                let message = format!("{id}: no such token; the vocabulary has {most}");
                return Err(ApiError::field("tokens", message));
            }
            Part::Text(_) => return Err(ApiError::field("tokens", "a list of tokens is needed")),
        }
    }
    let text = preparer.text(&tokens);
    Ok(json!({ "content": text, "prompt": text }))
}

async fn apply_template(State(app): State<Arc<App>>, uri: Uri, request: Request) -> Result<Json<Value>> {
    let (model, ask) = ask(&app, &uri, request, read::chat).await?;
    let rendered = run_blocking(move || match &ask.inputs[..] {
        [Input::Chat(chat)] => model.preparer.prompt(chat),
        _ => Err(ApiError::invalid("a conversation is needed")),
    });
    Ok(Json(json!({ "prompt": rendered.await?.text })))
}

pub(super) fn is_public(app: &App, path: &str) -> bool {
    ["/health", "/v1/health", VERSION].contains(&path)
        || is_vertex_health(app, path)
        || find(app, path).is_some()
}

fn is_vertex_health(app: &App, path: &str) -> bool {
    app.config.predict.as_ref().is_some_and(|predict| predict.health.as_deref() == Some(path))
}

fn find(app: &App, path: &str) -> Option<&'static super::Asset> {
    let name = path.strip_prefix('/').unwrap_or(path);
    let name = if name.is_empty() { "index.html" } else { name };
    app.assets.iter().find(|(known, ..)| *known == name)
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::method(method.as_str(), uri.path())
}

/// Paths that are settings, and the page.
async fn other(State(app): State<Arc<App>>, method: Method, uri: Uri, request: Request) -> Result<Response> {
    let path = uri.path();
    if app.config.predict.as_ref().is_some_and(|predict| predict.path == path) && method == Method::POST {
        return Ok(predict::predict(app, request).await?.into_response());
    }
    if is_vertex_health(&app, path) {
        return Ok(health().await.into_response());
    }
    if path == VERSION && !app.assets.is_empty() {
        return Ok(Json(version(&app)).into_response());
    }
    match find(&app, path) {
        Some(_) if method != Method::GET && method != Method::HEAD => Err(wrong_method(method, uri).await),
        Some(found) => Ok(asset(&app, found)),
        None => Err(ApiError::not_found(path)),
    }
}

/// Which page it is, and what belongs to it: the page's worker keeps these files for times without the server.
fn version(app: &App) -> Value {
    let bytes = app
        .assets
        .iter()
        .flat_map(|(path, kind, bytes)| path.bytes().chain(kind.bytes()).chain(bytes.iter().copied()));
    let files: Vec<&str> = std::iter::once("./").chain(app.assets.iter().map(|(path, ..)| *path)).collect();
    json!({ "version": format!("{:016x}", fnv1a(bytes)), "files": files })
}

fn asset(app: &App, (_, kind, bytes): &'static super::Asset) -> Response {
    let headers = [
        (header::CONTENT_TYPE, *kind),
        (header::CONTENT_SECURITY_POLICY, app.policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Bytes::from_static(bytes)).into_response()
}
