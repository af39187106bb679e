//! Which models are loaded, which are wanted and which have to go. Nothing here loads, waits or looks at a clock.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{Limits, Listed};

/// A model that is wanted waits so long for others to have nothing to do; then the one longest unused takes no further requests.
const PATIENCE: Duration = Duration::from_secs(10);

/// Of a model that was listed when a request came.
pub const GONE: &str = "the model is no longer there";

/// Which entry. A model that is listed anew has another one.
pub type Key = u64;

/// How far a model is.
enum Stage<T> {
    Away,
    Loading,
    Here(T),
    /// It takes no further requests, and goes when those that use it have ended.
    Leaving(T),
}

struct Entry<T> {
    key: Key,
    listed: Arc<Listed>,
    stage: Stage<T>,
    /// Requests that use it.
    users: usize,
    /// When it was asked for last: a number that grows.
    used: u64,
    /// Of memory, as far as that is known.
    bytes: u64,
    /// Why it could not be loaded the last time.
    failed: Option<String>,
    /// Somebody asked for it to go while it was loading.
    unwanted: bool,
    /// It is no longer listed.
    gone: bool,
}

/// A model that is wanted and not there.
struct Wish<W> {
    key: Key,
    /// Requests that wait for it.
    waiters: Vec<W>,
    /// Wanted also without any.
    ordered: bool,
    /// The memory that it needs, once that is counted.
    bytes: Option<u64>,
    /// Since when there is no room for it.
    since: Option<Duration>,
}

/// What is to be done next.
pub enum Step<T, W> {
    /// Count the memory that it needs.
    Plan(Key, Arc<Listed>),
    /// Load what was counted.
    Load(Key),
    /// Let it go.
    Unload(Key, T),
    /// There is no room for it.
    Refuse(Key, Refusal<W>),
    /// Nothing, until something changes. Where a model `waits`, time is a change too.
    Rest { waits: bool },
}

/// Why a model is not loaded, and who is to be told.
pub struct Refusal<W> {
    pub waiters: Vec<W>,
    pub why: String,
}

/// What is known of a model.
pub struct View<T> {
    pub listed: Arc<Listed>,
    /// As llama-server calls it.
    pub status: &'static str,
    pub failed: Option<String>,
    pub here: Option<T>,
}

/// All models: `T` is a loaded one, `W` a request that waits.
pub struct Shelf<T, W> {
    limits: Limits,
    entries: Vec<Entry<T>>,
    wishes: VecDeque<Wish<W>>,
    next_key: Key,
    uses: u64,
}

fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

impl<T: Clone, W> Shelf<T, W> {
    pub fn new(limits: Limits) -> Self {
        Shelf { limits, entries: Vec::new(), wishes: VecDeque::new(), next_key: 0, uses: 0 }
    }

    /// Adds a model that is loaded already.
    pub fn put(&mut self, listed: Arc<Listed>, model: T) -> Key {
        self.add(listed, Stage::Here(model))
    }

    fn add(&mut self, listed: Arc<Listed>, stage: Stage<T>) -> Key {
        let key = self.next_key;
        self.next_key += 1;
        let (users, used, bytes, failed) = (0, 0, 0, None);
        self.entries.push(Entry {
            key,
            listed,
            stage,
            users,
            used,
            bytes,
            failed,
            unwanted: false,
            gone: false,
        });
        key
    }

    /// Takes a new list: what is the same stays, what is loaded and is not goes when nobody uses it. Gives back who waited for
    /// what is no longer there, and whether anything changed.
    pub fn list(&mut self, listed: Vec<Arc<Listed>>) -> (Vec<W>, bool) {
        let mut changed = false;
        for entry in self.entries.iter_mut().filter(|entry| !entry.gone) {
            entry.gone = !listed.iter().any(|new| entry.listed.is_same(new));
            changed |= entry.gone;
        }
        for new in listed {
            if !self.entries.iter().any(|entry| !entry.gone && entry.listed.id == new.id) {
                self.add(new, Stage::Away);
                changed = true;
            }
        }
        let gone: Vec<Key> = self.entries.iter().filter(|entry| entry.gone).map(|entry| entry.key).collect();
        let mut left = Vec::new();
        for key in gone {
            self.unload(key);
            let is_away = self.entry(key).is_some_and(|entry| matches!(entry.stage, Stage::Away));
            if is_away {
                left.extend(self.take_wish(key).map(|wish| wish.waiters).unwrap_or_default());
                self.entries.retain(|entry| entry.key != key);
            }
        }
        self.entries.sort_by(|a, b| a.listed.id.cmp(&b.listed.id));
        (left, changed)
    }

    fn entry(&self, key: Key) -> Option<&Entry<T>> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn entry_mut(&mut self, key: Key) -> Option<&mut Entry<T>> {
        self.entries.iter_mut().find(|entry| entry.key == key)
    }

    /// The model of that name, or by one of its other names.
    pub fn find(&self, name: &str) -> Option<Key> {
        let mut listed = self.entries.iter().filter(|entry| !entry.gone);
        let by_id = listed.clone().find(|entry| entry.listed.id == name);
        let has_name = |entry: &&Entry<T>| entry.listed.aliases.iter().any(|alias| alias == name);
        by_id.or_else(|| listed.find(has_name)).map(|entry| entry.key)
    }

    pub fn listed(&self, key: Key) -> Option<Arc<Listed>> {
        self.entry(key).map(|entry| entry.listed.clone())
    }

    /// A model for one request more, if it is there. Only `use` of it counts for who is longest unused.
    pub fn take(&mut self, key: Key, counts: bool) -> Option<T> {
        self.uses += u64::from(counts);
        let uses = self.uses;
        let entry = self.entry_mut(key)?;
        let Stage::Here(model) = &entry.stage else { return None };
        let model = model.clone();
        entry.users += 1;
        entry.used = if counts { uses } else { entry.used };
        Some(model)
    }

    /// A request has ended; says whether somebody has waited for that.
    pub fn give_back(&mut self, key: Key) -> bool {
        let waits = !self.wishes.is_empty();
        let Some(entry) = self.entry_mut(key) else { return false };
        entry.users -= 1;
        entry.users == 0 && (waits || matches!(entry.stage, Stage::Leaving(_)))
    }

    /// Whether it is loading, or loaded and not on its way out.
    pub fn is_running(&self, key: Key) -> bool {
        self.entry(key).is_some_and(|entry| !matches!(entry.stage, Stage::Away))
    }

    fn wish(&mut self, key: Key) -> &mut Wish<W> {
        let at = self.wishes.iter().position(|wish| wish.key == key).unwrap_or_else(|| {
            let (waiters, ordered, bytes, since) = (Vec::new(), false, None, None);
            self.wishes.push_back(Wish { key, waiters, ordered, bytes, since });
            self.wishes.len() - 1
        });
        &mut self.wishes[at]
    }

    fn take_wish(&mut self, key: Key) -> Option<Wish<W>> {
        let at = self.wishes.iter().position(|wish| wish.key == key)?;
        self.wishes.remove(at)
    }

    /// A request waits for a model.
    pub fn wait(&mut self, key: Key, waiter: W) {
        self.wish(key).waiters.push(waiter);
    }

    /// How many wait for it.
    pub fn waiting(&self, key: Key) -> usize {
        self.wishes.iter().find(|wish| wish.key == key).map_or(0, |wish| wish.waiters.len())
    }

    /// Some wait no longer.
    pub fn leave(&mut self, key: Key, has_left: impl Fn(&W) -> bool) {
        let Some(at) = self.wishes.iter().position(|wish| wish.key == key) else { return };
        let is_loading = self.entry(key).is_some_and(|entry| matches!(entry.stage, Stage::Loading));
        let wish = &mut self.wishes[at];
        wish.waiters.retain(|waiter| !has_left(waiter));
        if wish.waiters.is_empty() && !wish.ordered && !is_loading {
            self.wishes.remove(at);
        }
    }

    /// Wants those that are to be there from the start.
    pub fn order_at_start(&mut self) {
        let at_start = self.entries.iter().filter(|entry| entry.listed.at_start);
        for key in at_start.map(|entry| entry.key).collect::<Vec<_>>() {
            self.order(key);
        }
    }

    /// Wants a model, whether somebody waits for it or not.
    pub fn order(&mut self, key: Key) {
        self.wish(key).ordered = true;
    }

    /// Has a model go when nobody uses it any more; says whether it was there or coming.
    pub fn unload(&mut self, key: Key) -> bool {
        let Some(entry) = self.entry_mut(key) else { return false };
        entry.stage = match std::mem::replace(&mut entry.stage, Stage::Away) {
            Stage::Away => return false,
            Stage::Loading => {
                entry.unwanted = true;
                Stage::Loading
            }
            Stage::Here(model) | Stage::Leaving(model) => Stage::Leaving(model),
        };
        true
    }

    /// So much memory it needs. It is refused if that can never be had.
    pub fn planned(&mut self, key: Key, bytes: u64, free: Option<u64>) -> Option<Refusal<W>> {
        // Nobody may want it any more.
        let wish = self.wishes.iter_mut().find(|wish| wish.key == key)?;
        wish.bytes = Some(bytes);
        let held: u64 = self.held().map(|entry| entry.bytes).sum();
        let most = self.limits.bytes.or(free.map(|free| free.saturating_add(held)));
        let most = most.filter(|&most| bytes > most)?;
        Some(self.refused(key, bytes, most))
    }

    fn refused(&mut self, key: Key, bytes: u64, most: u64) -> Refusal<W> {
        let id = self.entry(key).map_or("", |entry| entry.listed.id.as_str());
        let from = if self.limits.bytes.is_some() { "models may have" } else { "are free" };
        let why = format!(
            "model {id:?} needs {} of memory and {} {from}: a shorter context (`n_ctx`), fewer layers in memory, or a larger \
             `models_memory`",
            mib(bytes),
            mib(most)
        );
        Refusal { waiters: self.failed(key, why.clone()), why }
    }

    /// It could not be loaded; gives back who waited.
    pub fn failed(&mut self, key: Key, why: String) -> Vec<W> {
        if let Some(entry) = self.entry_mut(key) {
            if matches!(entry.stage, Stage::Loading) {
                entry.stage = Stage::Away;
            }
            (entry.failed, entry.unwanted) = (Some(why), false);
        }
        self.drop_if_gone(key);
        self.take_wish(key).map(|wish| wish.waiters).unwrap_or_default()
    }

    /// It is loaded; gives back who waited: all of them use it now.
    pub fn loaded(&mut self, key: Key, model: T) -> Vec<W> {
        let wish = self.take_wish(key);
        let waiters = wish.map(|wish| wish.waiters).unwrap_or_default();
        self.uses += 1;
        let uses = self.uses;
        if let Some(entry) = self.entry_mut(key) {
            entry.users += waiters.len();
            (entry.used, entry.failed) = (uses, None);
            let goes = std::mem::take(&mut entry.unwanted) || entry.gone;
            entry.stage = if goes { Stage::Leaving(model) } else { Stage::Here(model) };
        }
        waiters
    }

    /// It has gone.
    pub fn unloaded(&mut self, key: Key) {
        if let Some(entry) = self.entry_mut(key) {
            (entry.stage, entry.bytes) = (Stage::Away, 0);
        }
        self.drop_if_gone(key);
    }

    fn drop_if_gone(&mut self, key: Key) {
        let is_over = |entry: &Entry<T>| entry.key == key && entry.gone && matches!(entry.stage, Stage::Away);
        self.entries.retain(|entry| !is_over(entry));
    }

    /// Those that have memory.
    fn held(&self) -> impl Iterator<Item = &Entry<T>> {
        self.entries.iter().filter(|entry| !matches!(entry.stage, Stage::Away))
    }

    fn has_room(&self, bytes: u64, free: impl Fn() -> Option<u64>) -> bool {
        let held: u64 = self.held().map(|entry| entry.bytes).sum();
        let fits = match self.limits.bytes {
            Some(most) => held.saturating_add(bytes) <= most,
            None => free().is_none_or(|free| bytes <= free),
        };
        fits && self.limits.most.is_none_or(|most| self.held().count() < most)
    }

    /// The longest unused of those that are there, of the idle ones alone or of all.
    fn longest_unused(&self, idle: bool) -> Option<Key> {
        let here =
            self.entries.iter().filter(|e| matches!(e.stage, Stage::Here(_)) && (e.users == 0 || !idle));
        here.min_by_key(|entry| entry.used).map(|entry| entry.key)
    }

    /// What is to be done; `now` is the time since anything, `free` asks for the memory that is.
    pub fn next(&mut self, now: Duration, free: impl Fn() -> Option<u64>) -> Step<T, W> {
        for entry in self.entries.iter().filter(|entry| entry.users == 0) {
            if let Stage::Leaving(model) = &entry.stage {
                return Step::Unload(entry.key, model.clone());
            }
        }
        let Some(front) = self.wishes.front() else { return Step::Rest { waits: false } };
        let (key, planned, since) = (front.key, front.bytes, front.since);
        let Some(listed) = self.listed(key) else {
            let waiters = self.take_wish(key).map(|wish| wish.waiters).unwrap_or_default();
            return Step::Refuse(key, Refusal { waiters, why: GONE.into() });
        };
        let Some(bytes) = planned else { return Step::Plan(key, listed) };
        if self.is_running(key) {
            // The same model is on its way out.
            return Step::Rest { waits: true };
        }
        if self.has_room(bytes, &free) {
            if let Some(entry) = self.entry_mut(key) {
                (entry.stage, entry.bytes) = (Stage::Loading, bytes);
            }
            return Step::Load(key);
        }
        if let Some(victim) = self.longest_unused(true) {
            self.unload(victim);
            return self.next(now, free);
        }
        if self.held().next().is_none() {
            let most = self.limits.bytes.or_else(&free).unwrap_or(0);
            return Step::Refuse(key, self.refused(key, bytes, most));
        }
        let since = since.unwrap_or(now);
        self.wish(key).since = Some(since);
        let leaves = self.entries.iter().any(|entry| matches!(entry.stage, Stage::Leaving(_)));
        if now.saturating_sub(since) >= PATIENCE && !leaves {
            self.longest_unused(false).map(|victim| self.unload(victim));
        }
        Step::Rest { waits: true }
    }

    /// All that are listed.
    pub fn views(&self) -> Vec<View<T>> {
        let view = |entry: &Entry<T>| View {
            listed: entry.listed.clone(),
            status: match entry.stage {
                Stage::Away => "unloaded",
                Stage::Loading => "loading",
                Stage::Here(_) | Stage::Leaving(_) => "loaded",
            },
            failed: entry.failed.clone(),
            here: match &entry.stage {
                Stage::Here(model) | Stage::Leaving(model) => Some(model.clone()),
                Stage::Away | Stage::Loading => None,
            },
        };
        self.entries.iter().filter(|entry| !entry.gone).map(view).collect()
    }
}
