//! From a request to its answer: jobs are submitted, and their events are sent as it comes or all at once.

use std::{
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json,
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use http_body::Frame as BodyFrame;
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, channel, unbounded_channel};

use super::{App, errors::is_messages, routes::Read, run_blocking};
use crate::engine::{Ended, Event, JobId};
use crate::quoted::one_line;
use crate::{
    choice::{Choice, random},
    embeds::no_text,
    models::{Lease, Wanted},
    prepare::Prepared,
    served::Facts,
    wire::{ApiError, Ask, Frame, Header, Whole, Writer},
};

/// Pieces that may wait for a client that reads slowly; then the answer waits.
const MOST_PIECES: usize = 256;
/// For so long nothing is sent, so that what is refused has a status of its own.
const FIRST: Duration = Duration::from_millis(500);
/// How often whoever waits for a model is told.
const WAITING: Duration = Duration::from_secs(5);

/// The answers to one request.
struct Answering {
    app: Arc<App>,
    model: Lease,
    /// Where it was asked.
    path: String,
    ask: Ask,
    writer: Writer,
    event: UnboundedReceiver<(usize, Event)>,
    choices: Vec<Option<Choice>>,
    ids: Vec<JobId>,
    wholes: Vec<Option<Whole>>,
}

/// A request for answers as it came.
pub(super) struct Asked {
    pub body: Value,
    pub read: Read,
    pub path: String,
}

impl Asked {
    fn wants_stream(&self) -> bool {
        self.body.get("stream").and_then(Value::as_bool).unwrap_or(false)
    }
}

/// Answers a request as soon as its model is there. A stream begins before that, so that whoever waits is told.
pub(super) async fn answer(app: Arc<App>, mut wanted: Wanted, asked: Asked) -> Result<Response, ApiError> {
    let model = match asked.wants_stream() {
        false => wanted.lease().await?,
        true => match tokio::time::timeout(FIRST, wanted.lease()).await {
            Ok(model) => model?,
            Err(_) => return Ok(stream_of_wanted(app, wanted, asked)),
        },
    };
    let ask = (asked.read)(&asked.body, &model.defaults)?;
    if ask.stream {
        begin(app, model, ask, &asked.path).await?.stream().await
    } else {
        Ok(Json(json(app, model, ask, &asked.path).await?).into_response())
    }
}

/// The stream of a request whose model is not there yet: comments until it is.
fn stream_of_wanted(app: Arc<App>, mut wanted: Wanted, asked: Asked) -> Response {
    let (pieces, received) = channel(MOST_PIECES);
    tokio::spawn(async move {
        let name = one_line(&wanted.name(), 200);
        let model = loop {
            let word = Bytes::from(format!(": model {name} is being loaded\n\n"));
            if pieces.send(word).await.is_err() {
                return;
            }
            tokio::select! {
                model = wanted.lease() => break model,
                () = pieces.closed() => return,
                () = tokio::time::sleep(WAITING) => (),
            }
        };
        let begun = async {
            let model = model?;
            let ask = (asked.read)(&asked.body, &model.defaults)?;
            begin(app, model, ask, &asked.path).await
        };
        match begun.await {
            Ok(answering) => answering.sends(Vec::new(), pieces).await,
            Err(error) => {
                // The client may have gone.
                let _ = pieces.send(error_piece(&error, &asked.path)).await;
            }
        }
    });
    streamed(received)
}

/// An error as a piece of a stream, whose status is sent already.
fn error_piece(error: &ApiError, path: &str) -> Bytes {
    joined(vec![match is_messages(path) {
        true => Frame { event: Some("error"), data: error.to_messages_json() },
        false => Frame { event: None, data: error.to_json() },
    }])
}

fn joined(frames: Vec<Frame>) -> Bytes {
    Bytes::from(frames.iter().map(Frame::text).collect::<String>())
}

/// The whole answer to a request.
pub(super) async fn json(app: Arc<App>, model: Lease, ask: Ask, path: &str) -> Result<Value, ApiError> {
    begin(app, model, ask, path).await?.whole().await
}

/// Prepares the jobs and hands them to the engine, which may be in the middle of a pass: other requests do not wait for it.
async fn begin(app: Arc<App>, model: Lease, ask: Ask, path: &str) -> Result<Answering, ApiError> {
    let path = path.to_owned();
    run_blocking(move || {
        let (gate, most) = (model.clone(), app.config.most_waiting);
        let _counted = gate.admit(most).ok_or_else(|| ApiError::busy(most))?;
        if model.embeds.is_some() {
            return Err(no_text());
        }
        let prepared = model.preparer.jobs(&ask)?;
        let (to, event) = unbounded_channel();
        let mut answering = Answering {
            writer: Writer::new(ask.shape, header(&model.facts), ask.settings.clone()),
            app,
            model,
            path,
            ask,
            event,
            choices: Vec::new(),
            ids: Vec::new(),
            wholes: Vec::new(),
        };
        for (index, Prepared { job, bound, settings, source }) in prepared.into_iter().enumerate() {
            let to = to.clone();
            // Where nobody listens to a job any more it ends.
            let listener = move |event| match to.send((index, event)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            // Jobs before one that is refused end with the request.
            let id = answering.model.answers.submit(job, bound, Box::new(listener))?;
            answering.model.remember_asked(id, &settings);
            answering.ids.push(id);
            let tokenizer = answering.model.preparer.tokenizer.clone();
            answering.choices.push(Some(Choice::new(tokenizer, settings, source)));
            answering.wholes.push(None);
        }
        Ok(answering)
    })
    .await
}

/// Who asked has gone, or there was an error: what is still being made ends.
impl Drop for Answering {
    fn drop(&mut self) {
        for (id, choice) in self.ids.iter().zip(&self.choices) {
            if let Some(choice) = choice {
                self.model.answers.cancel(*id);
                self.app.has_answered(&self.model, *id, &self.path, None, &choice.timings());
            }
        }
    }
}

fn header(facts: &Facts) -> Header {
    Header {
        id: random(24),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        model: facts.names.first().cloned().unwrap_or_default(),
        fingerprint: facts.fingerprint.clone(),
    }
}

impl Answering {
    fn is_done(&self) -> bool {
        self.choices.iter().all(Option::is_none)
    }

    /// What an event gives to be sent.
    fn hears(&mut self, index: usize, event: Event) -> Result<Vec<Frame>, ApiError> {
        let Some(choice) = &mut self.choices[index] else { return Ok(Vec::new()) };
        match event {
            Event::Begun { cached, slot } => {
                let Some(progress) = choice.begins(cached, slot) else { return Ok(Vec::new()) };
                let sources = &self.model.facts.sources;
                let mut frames = self.writer.begins(index, &progress, choice.prompt(), sources);
                if self.ask.settings.return_progress {
                    frames.extend(self.writer.progress(index, &progress));
                }
                Ok(frames)
            }
            Event::Evaluated(tokens) => Ok(match choice.evaluated(tokens) {
                Some(progress) if self.ask.settings.return_progress => self.writer.progress(index, &progress),
                Some(_) | None => Vec::new(),
            }),
            // The engine was further than the stop string when it was told to end.
            Event::Token { .. } if choice.is_stopped() => Ok(Vec::new()),
            Event::Token { token, score } => {
                let more = choice.token(token, score.as_ref());
                if choice.is_stopped() {
                    self.model.answers.cancel(self.ids[index]);
                }
                let says_more = !more.text.is_empty() || !more.deltas.is_empty() || !more.likely.is_empty();
                Ok(if says_more { self.writer.more(index, &more) } else { Vec::new() })
            }
            Event::Ended(Ok(ended)) => Ok(self.ends(index, &ended)),
            Event::Ended(Err(error)) => Err(error.into()),
        }
    }

    fn ends(&mut self, index: usize, ended: &Ended) -> Vec<Frame> {
        let Some(choice) = self.choices[index].take() else { return Vec::new() };
        let (more, whole) = choice.ends(ended);
        let mut frames = Vec::new();
        if !more.text.is_empty() || !more.deltas.is_empty() {
            frames.extend(self.writer.more(index, &more));
        }
        self.app.has_answered(&self.model, self.ids[index], &self.path, Some(&whole.reason), &whole.timings);
        frames.extend(self.writer.ended(index, &whole));
        self.wholes[index] = Some(whole);
        frames
    }

    /// The next event and what it gives; nothing when all has been said.
    async fn next(&mut self) -> Option<Result<Vec<Frame>, ApiError>> {
        if self.is_done() {
            return None;
        }
        match self.event.recv().await {
            Some((index, event)) => Some(self.hears(index, event)),
            None => Some(Err(ApiError::server("the engine has stopped"))),
        }
    }

    fn all(&self) -> Vec<Whole> {
        self.wholes.iter().flatten().cloned().collect()
    }

    async fn whole(mut self) -> Result<Value, ApiError> {
        while let Some(frames) = self.next().await {
            frames?;
        }
        Ok(self.writer.whole(&self.all()))
    }

    async fn stream(mut self) -> Result<Response, ApiError> {
        let first = match tokio::time::timeout(FIRST, self.next()).await {
            Ok(Some(frames)) => frames?,
            Ok(None) | Err(_) => Vec::new(),
        };
        let (pieces, received) = channel(MOST_PIECES);
        tokio::spawn(async move { self.sends(first, pieces).await });
        Ok(streamed(received))
    }

    /// Sends until all has been said or nobody receives any more; then what else comes is dropped, and the jobs end.
    async fn sends(mut self, first: Vec<Frame>, pieces: tokio::sync::mpsc::Sender<Bytes>) {
        if !first.is_empty() && pieces.send(joined(first)).await.is_err() {
            return;
        }
        let seconds = self.ask.settings.ping_seconds;
        // A comment now and then, so that nobody takes the connection for dead.
        let silence = Duration::from_secs(if seconds == 0 { u64::from(u32::MAX) } else { seconds });
        loop {
            let event = tokio::select! {
                event = self.next() => event,
                () = pieces.closed() => return,
                () = tokio::time::sleep(silence) => {
                    if pieces.send(Bytes::from_static(b": ping\n\n")).await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            let frames = match event {
                None => break,
                Some(Ok(frames)) => frames,
                Some(Err(error)) => {
                    let _ = pieces.send(error_piece(&error, &self.path)).await;
                    return;
                }
            };
            if !frames.is_empty() && pieces.send(joined(frames)).await.is_err() {
                return;
            }
        }
        let (frames, word) = self.writer.done(&self.all());
        let rest = [joined(frames), Bytes::from_static(word.unwrap_or_default().as_bytes())].concat();
        if !rest.is_empty() {
            let _ = pieces.send(Bytes::from(rest)).await;
        }
    }
}

/// What is received, piece by piece, as a reply.
pub(super) fn streamed(received: Receiver<Bytes>) -> Response {
    let mut response = Body::new(Pieces(received)).into_response();
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // Proxies would wait for more.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    response.headers_mut().extend(headers.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

/// What is sent, as a body.
struct Pieces(Receiver<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(BodyFrame::data(piece))))
    }
}
