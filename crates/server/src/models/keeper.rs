//! The thread that counts, loads and unloads models, one after the other, as the shelf says.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use super::{
    ApiError, Models, Planned, Served, Waiter,
    shelf::{Key, Refusal, Step},
};
use crate::{Error, Result, backend::cpu::available_memory};

/// How often somebody looks whether a model may sleep, or waits for room.
const OFTEN: Duration = Duration::from_millis(200);

/// Whatever goes wrong in a model stays with it.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let broken = |_| Err(Error::Input("it could not be loaded: a defect of this program".into()));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(broken)
}

impl Models {
    /// Loads and unloads models until [`Models::end`] is called, and lets all go then.
    pub fn keep(&self) {
        let inner = &self.0;
        // Of the model that is next.
        let mut plan: Option<(Key, Planned)> = None;
        loop {
            let mut kept = inner.kept();
            if kept.ends {
                break;
            }
            let step = kept.shelf.next(inner.began.elapsed(), available_memory);
            let seen = kept.changes;
            drop(kept);
            match step {
                Step::Plan(key, listed) => match guarded(|| (listed.open)()) {
                    Ok(planned) => {
                        let bytes = planned.bytes;
                        plan = Some((key, planned));
                        let refused = inner.change(|shelf| shelf.planned(key, bytes, available_memory()));
                        if let Some(Refusal { waiters, why }) = refused {
                            self.refuse(key, waiters, &why);
                        }
                    }
                    Err(error) => self.fail(key, &error),
                },
                Step::Load(key) => {
                    inner.tell_status(&inner.id(key), "loading");
                    let own = plan.take().filter(|(of, _)| *of == key);
                    let lost = || Error::Input("it was not planned; ask again".into());
                    match own.ok_or_else(lost).and_then(|(_, planned)| guarded(planned.load)) {
                        Ok(model) => self.loaded(key, Arc::new(model)),
                        Err(error) => self.fail(key, &error),
                    }
                }
                Step::Unload(key, model) => self.let_go(key, model),
                Step::Refuse(key, Refusal { waiters, why }) => self.refuse(key, waiters, &why),
                Step::Rest { waits } => {
                    if !waits {
                        plan = None;
                    }
                    self.rest(waits, seen);
                }
            }
        }
        drop(plan);
        for model in self.here() {
            model.answers.end();
        }
    }

    /// Has [`Models::keep`] come to its end.
    pub fn end(&self) {
        self.0.kept().ends = true;
        self.0.changed.notify_all();
    }

    fn here(&self) -> Vec<Arc<Served>> {
        self.views().into_iter().filter_map(|view| view.here).collect()
    }

    fn loaded(&self, key: Key, model: Arc<Served>) {
        let waiters = self.0.change(|shelf| shelf.loaded(key, model.clone()));
        self.0.tell_status(&self.0.id(key), "loaded");
        for waiter in waiters {
            // Who has gone gives it back.
            _ = waiter.to.send(Ok(self.0.lease(key, model.clone())));
        }
    }

    fn fail(&self, key: Key, error: &Error) {
        let waiters = self.0.change(|shelf| shelf.failed(key, error.to_string()));
        self.refuse(key, waiters, &error.to_string());
    }

    fn refuse(&self, key: Key, waiters: Vec<Waiter>, why: &str) {
        self.0.tell_status(&self.0.id(key), "unloaded");
        for waiter in waiters {
            _ = waiter.to.send(Err(ApiError::server(why)));
        }
    }

    fn let_go(&self, key: Key, model: Arc<Served>) {
        let id = self.0.id(key);
        // What it has learnt may not be kept; it goes all the same.
        _ = guarded(|| {
            model.answers.end();
            Ok(())
        });
        drop(model);
        self.0.change(|shelf| shelf.unloaded(key));
        self.0.tell_status(&id, "unloaded");
    }

    /// Waits for something to do; `seen` are the changes that are known.
    fn rest(&self, waits: bool, seen: u64) {
        // All are asked.
        let sleepers = self.here().iter().filter(|model| model.answers.look()).count();
        let kept = self.0.kept();
        if kept.changes != seen || kept.ends {
            return;
        }
        if sleepers > 0 || waits {
            drop(self.0.changed.wait_timeout(kept, OFTEN));
        } else {
            drop(self.0.changed.wait(kept));
        }
    }
}
