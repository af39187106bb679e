//! The models that a server has: one that is always there, or many of which some are loaded.
//!
//! ```text
//! request ─ wanted ─ Shelf (what to load, what to let go) ─ keeper: a thread that plans, loads and unloads ─ Lease
//! ```

mod keeper;
mod shelf;
#[cfg(test)]
mod tests;

use std::{
    ops::Deref,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use serde_json::{Value, json};
use tokio::sync::{broadcast, oneshot};

pub(super) use self::shelf::View;
use self::shelf::{GONE, Key, Shelf};
use super::{served::Served, wire::ApiError};
use crate::{Result, quoted::Quoted};

/// Events that may wait for somebody who listens slowly.
const MOST_EVENTS: usize = 256;

/// What loaded models may take together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// So many at once; `None`: any number.
    pub most: Option<usize>,
    /// Bytes of memory; `None`: what is free.
    pub bytes: Option<u64>,
}

/// A model that can be loaded.
pub struct Listed {
    /// Its name.
    pub id: String,
    /// Others that it goes by.
    pub aliases: Vec<String>,
    /// Words for it.
    pub tags: Vec<String>,
    /// Where it was found, by llama-server's names: `preset`, `models_dir` or `cache`.
    pub source: &'static str,
    /// Its settings, as lines of a preset file. One with other settings is another model.
    pub preset: String,
    /// The command line that would serve it alone.
    pub args: Vec<String>,
    /// It is loaded when the server starts.
    pub at_start: bool,
    /// It is not shown; requests may name it.
    pub hidden: bool,
    /// Counts its memory and loads it.
    pub open: Box<dyn Fn() -> Result<Planned> + Send + Sync>,
}

impl Listed {
    fn is_same(&self, other: &Listed) -> bool {
        let of =
            |it: &Listed| (it.id.clone(), it.aliases.clone(), it.tags.clone(), it.args.clone(), it.hidden);
        of(self) == of(other)
    }
}

/// A model whose memory is counted.
pub struct Planned {
    /// Of memory that it will take.
    pub bytes: u64,
    /// Loads it.
    pub load: Box<dyn FnOnce() -> Result<Served> + Send>,
}

/// Finds all models; again when somebody asks for that.
pub type Lister = Box<dyn Fn() -> Result<Vec<Listed>> + Send + Sync>;

/// The models that requests may name.
#[derive(Clone)]
pub struct Models(Arc<Inner>);

struct Inner {
    state: Mutex<Kept>,
    /// Something has changed that the keeper may want to know.
    changed: Condvar,
    /// Finds the models; `None`: there is one, whatever requests call it.
    lister: Option<Lister>,
    limits: Limits,
    /// Loads what a request names, unless it says otherwise.
    autoload: bool,
    began: Instant,
    next_waiter: AtomicU64,
    /// Nobody is told any more once this is gone.
    events: Mutex<Option<broadcast::Sender<Value>>>,
}

struct Kept {
    shelf: Shelf<Arc<Served>, Waiter>,
    /// Counts what the keeper may want to know.
    changes: u64,
    /// The keeper is to end.
    ends: bool,
}

/// A request that waits for a model.
struct Waiter {
    number: u64,
    to: oneshot::Sender<Result<Lease, ApiError>>,
}

/// A model in use: as long as this lives it is not let go.
#[derive(Clone)]
pub struct Lease(Arc<Use>);

struct Use {
    /// Always there, but while this is dropped.
    model: Option<Arc<Served>>,
    key: Key,
    of: Arc<Inner>,
}

impl Deref for Lease {
    type Target = Served;

    fn deref(&self) -> &Served {
        self.0.model.as_ref().expect("a model in use is there")
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        // Before it is said that nobody has it.
        self.model = None;
        if self.of.kept().shelf.give_back(self.key) {
            self.of.change(|_| ());
        }
    }
}

/// A model that a request needs, and may have to wait for.
pub struct Wanted {
    of: Arc<Inner>,
    key: Key,
    state: State,
}

enum State {
    Here(Lease),
    Waits { number: u64, answer: oneshot::Receiver<Result<Lease, ApiError>> },
}

impl Wanted {
    /// Waits for the model. Whoever stops waiting may begin again.
    pub async fn lease(&mut self) -> Result<Lease, ApiError> {
        match &mut self.state {
            State::Here(lease) => Ok(lease.clone()),
            State::Waits { answer, .. } => {
                let gone = |_| Err(ApiError::unavailable("the server is ending"));
                let lease = answer.await.unwrap_or_else(gone)?;
                self.state = State::Here(lease.clone());
                Ok(lease)
            }
        }
    }

    /// What the model is called.
    pub fn name(&self) -> String {
        self.of.id(self.key)
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if let State::Waits { number, .. } = self.state {
            self.of.change(|shelf| shelf.leave(self.key, |waiter| waiter.number == number));
        }
    }
}

/// How a request names a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Naming<'a> {
    /// By one of its names.
    pub name: Option<&'a str>,
    /// Whether it is to be loaded if it is not there; else the server's settings say.
    pub autoload: Option<bool>,
    /// It only looks: this does not make the model one that was used.
    pub looks: bool,
    /// So many may wait for one model.
    pub most_waiting: Option<usize>,
}

impl Inner {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something that the keeper is told of.
    fn change<T>(&self, what: impl FnOnce(&mut Shelf<Arc<Served>, Waiter>) -> T) -> T {
        let mut kept = self.kept();
        kept.changes += 1;
        let done = what(&mut kept.shelf);
        drop(kept);
        self.changed.notify_all();
        done
    }

    fn id(&self, key: Key) -> String {
        self.kept().shelf.listed(key).map(|listed| listed.id.clone()).unwrap_or_default()
    }

    fn lease(self: &Arc<Self>, key: Key, model: Arc<Served>) -> Lease {
        Lease(Arc::new(Use { model: Some(model), key, of: self.clone() }))
    }

    fn events(&self) -> MutexGuard<'_, Option<broadcast::Sender<Value>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells who listens.
    fn tell(&self, model: &str, event: &str, data: Value) {
        if let Some(events) = &*self.events() {
            // Nobody may.
            _ = events.send(json!({ "model": model, "event": event, "data": data }));
        }
    }

    fn tell_status(&self, model: &str, status: &str) {
        self.tell(model, "model_status", json!({ "status": status }));
    }
}

fn not_found(name: &str) -> ApiError {
    let quoted = Quoted(name);
    ApiError::field("model", format!("model {quoted} not found; /v1/models lists those that there are"))
}

impl Models {
    fn new(lister: Option<Lister>, limits: Limits, autoload: bool) -> Self {
        Models(Arc::new(Inner {
            state: Mutex::new(Kept { shelf: Shelf::new(limits), changes: 0, ends: false }),
            changed: Condvar::new(),
            lister,
            limits,
            autoload,
            began: Instant::now(),
            next_waiter: AtomicU64::new(0),
            events: Mutex::new(Some(broadcast::channel(MOST_EVENTS).0)),
        }))
    }

    /// One model, whatever requests call it.
    pub fn one(served: Served) -> Self {
        let models = Self::new(None, Limits::default(), true);
        let listed = Listed {
            id: served.facts.names.first().cloned().unwrap_or_default(),
            aliases: Vec::new(),
            tags: Vec::new(),
            source: "preset",
            preset: String::new(),
            args: Vec::new(),
            at_start: true,
            hidden: false,
            open: Box::new(|| Err(crate::Error::Input("the only model is loaded already".into()))),
        };
        models.0.change(|shelf| shelf.put(Arc::new(listed), Arc::new(served)));
        models
    }

    /// Those that a lister finds, loaded when they are asked for. Without `autoload` only by /models/load.
    pub fn many(lister: Lister, limits: Limits, autoload: bool) -> Result<Self> {
        let models = Self::new(Some(lister), limits, autoload);
        models.list_again()?;
        models.0.change(Shelf::order_at_start);
        Ok(models)
    }

    /// Whether requests have to name a model.
    pub fn is_many(&self) -> bool {
        self.0.lister.is_some()
    }

    /// How many may be loaded at once.
    pub fn most(&self) -> Option<usize> {
        self.0.limits.most
    }

    /// Whether what a request names is loaded.
    pub fn autoloads(&self) -> bool {
        self.0.autoload
    }

    /// Looks which models there are now.
    pub fn list_again(&self) -> Result<()> {
        let Some(lister) = &self.0.lister else { return Ok(()) };
        let found = lister()?.into_iter().map(Arc::new).collect();
        let (left, changed) = self.0.change(|shelf| shelf.list(found));
        for waiter in left {
            _ = waiter.to.send(Err(ApiError::invalid(GONE)));
        }
        if changed {
            self.0.tell("*", "models_reload", Value::Null);
        }
        Ok(())
    }

    /// All that there are.
    pub(super) fn views(&self) -> Vec<View<Arc<Served>>> {
        self.0.kept().shelf.views()
    }

    fn key(&self, shelf: &Shelf<Arc<Served>, Waiter>, name: Option<&str>) -> Result<Key, ApiError> {
        if !self.is_many() {
            return Ok(0);
        }
        let missing = || ApiError::field("model", "model name is missing from the request");
        let name = name.filter(|name| !name.is_empty()).ok_or_else(missing)?;
        shelf.find(name).ok_or_else(|| not_found(name))
    }

    /// The model that a request names: it is there, or the request is in the queue for it.
    pub fn wanted(&self, naming: Naming) -> Result<Wanted, ApiError> {
        let wanted = |key, state| Ok(Wanted { of: self.0.clone(), key, state });
        let mut kept = self.0.kept();
        let key = self.key(&kept.shelf, naming.name)?;
        if let Some(model) = kept.shelf.take(key, !naming.looks) {
            drop(kept);
            return wanted(key, State::Here(self.0.lease(key, model)));
        }
        self.check_waits(&kept.shelf, key, naming)?;
        let (to, answer) = oneshot::channel();
        let number = self.0.next_waiter.fetch_add(1, Ordering::Relaxed);
        kept.shelf.wait(key, Waiter { number, to });
        drop(kept);
        self.0.change(|_| ());
        wanted(key, State::Waits { number, answer })
    }

    fn check_waits(
        &self,
        shelf: &Shelf<Arc<Served>, Waiter>,
        key: Key,
        naming: Naming,
    ) -> Result<(), ApiError> {
        if !naming.autoload.unwrap_or(self.0.autoload) && !shelf.is_running(key) {
            return Err(ApiError::field("model", "model is not loaded; /models/load loads it"));
        }
        match naming.most_waiting.filter(|&most| shelf.waiting(key) >= most) {
            Some(most) => Err(ApiError::busy(most)),
            None => Ok(()),
        }
    }

    /// The only one.
    pub(super) async fn only(&self) -> Result<Lease, ApiError> {
        self.wanted(Naming { looks: true, ..Naming::default() })?.lease().await
    }

    /// Loads a model; nobody waits for it.
    pub(super) fn load(&self, name: Option<&str>) -> Result<(), ApiError> {
        self.0.change(|shelf| {
            let key = self.key(shelf, name)?;
            if shelf.is_running(key) {
                return Err(ApiError::invalid("model is already running"));
            }
            shelf.order(key);
            Ok(())
        })
    }

    /// Lets a model go when nobody uses it any more.
    pub(super) fn unload(&self, name: Option<&str>) -> Result<(), ApiError> {
        self.0.change(|shelf| {
            let key = self.key(shelf, name)?;
            if shelf.unload(key) { Ok(()) } else { Err(ApiError::invalid("model is not running")) }
        })
    }

    /// What happens to models from now on; `None` when the server is ending.
    pub(super) fn events(&self) -> Option<broadcast::Receiver<Value>> {
        self.0.events().as_ref().map(broadcast::Sender::subscribe)
    }

    /// Every listener has received all events.
    pub(super) fn stop_events(&self) {
        *self.0.events() = None;
    }
}
