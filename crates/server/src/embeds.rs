//! A model's embeddings: how requests ask its embedder's thread, and what is said to those that want text of it.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::oneshot;

use super::{answers::Answers, served::Counted, wire::ApiError};
use crate::{
    Error, Result,
    embed::{Asked, Embedder, Embedding, Handle, Limits, Listener, Pairs, Pooling, Worker},
    engine::{self, Job, JobId, SavedText, Status, TextRule},
};

/// An embedder that requests share.
pub struct Embeds {
    /// Gone when the model is let go.
    thread: Mutex<Option<(Worker, Handle)>>,
    limits: Limits,
    /// How rows become embeddings.
    pub pooling: Pooling,
    /// Numbers of an embedding.
    pub width: usize,
    /// Reads a question and an answer as one text.
    pub pairs: Pairs,
    /// What embeddings are divided by, where a request does not say: see [`crate::embed::normalize`].
    pub normalize: i32,
    /// Requests that are not answered yet.
    asked: AtomicUsize,
    next_id: AtomicU64,
}

/// Tells a request, if it is still there.
struct Reply(oneshot::Sender<Result<Vec<Embedding>>>);

impl Listener for Reply {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    fn tell(self: Box<Self>, made: Result<Vec<Embedding>>) {
        _ = self.0.send(made);
    }
}

impl Embeds {
    /// Gives an embedder a thread.
    pub fn start(embedder: Embedder, pairs: Pairs, normalize: i32) -> Self {
        let (limits, pooling, width) = (embedder.limits(), embedder.pooling(), embedder.width());
        Embeds {
            thread: Mutex::new(Some(Worker::start(embedder))),
            limits,
            pooling,
            width,
            pairs,
            normalize,
            asked: AtomicUsize::new(0),
            next_id: AtomicU64::new(0),
        }
    }

    /// A number for a request.
    pub(super) fn next_id(&self) -> JobId {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The embeddings of texts. Where so many requests wait already, this one is refused.
    pub(super) async fn of(
        &self,
        texts: Vec<Vec<u32>>,
        most_waiting: usize,
    ) -> Result<Vec<Embedding>, ApiError> {
        texts.iter().try_for_each(|text| self.limits.check(text))?;
        let (_counted, before) = Counted::among(&self.asked);
        if before > most_waiting {
            return Err(ApiError::busy(most_waiting));
        }
        let (to, made) = oneshot::channel();
        let ended = || ApiError::unavailable("the model is let go; try again later");
        let handle = self.thread().as_ref().map(|(_, handle)| handle.clone());
        handle.ok_or_else(ended)?.ask(Asked { texts, listener: Box::new(Reply(to)) })?;
        Ok(made.await.map_err(|_| ended())??)
    }

    fn thread(&self) -> MutexGuard<'_, Option<(Worker, Handle)>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What answers those that want text: nobody.
pub struct NoText(pub std::sync::Arc<Embeds>);

/// What they are told.
pub(super) fn no_text() -> ApiError {
    ApiError::not_supported(
        "this model makes embeddings, not text: ask at /v1/embeddings, or start the server without `embeddings`",
    )
}

fn refused() -> Error {
    Error::Usage(no_text().message)
}

impl Answers for NoText {
    fn submit(&self, _: Job, _: TextRule, _: engine::Listener) -> Result<JobId> {
        Err(refused())
    }

    fn cancel(&self, _: JobId) {}

    fn status(&self) -> Result<Status> {
        Ok(Status { running: self.0.asked.load(Ordering::Relaxed), ..Status::default() })
    }

    fn end(&self) {
        let thread = self.0.thread().take();
        if let Some((worker, handle)) = thread {
            // With the last handle the thread ends.
            drop(handle);
            worker.join();
        }
    }

    fn save(&self, _: usize) -> Result<SavedText> {
        Err(refused())
    }

    fn restore(&self, _: usize, _: SavedText) -> Result<usize> {
        Err(refused())
    }

    fn erase(&self, _: usize) -> Result<usize> {
        Err(refused())
    }
}
