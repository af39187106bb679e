//! Slots: numbers for texts that are made at the same time. Texts that stay in the cache belong to the slot where they were made.
//! The last text of a slot can be saved, and restored in any slot of an engine for the same model.

use std::ops::ControlFlow;

use super::{Engine, Job, JobId, Maker, Request, Running, SavedCells, SavedText};
use crate::{Error, Result};

/// What a slot is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotStatus {
    /// The job that is being done.
    pub job: Option<JobId>,
    /// Whether its text may be drafted.
    pub drafts: bool,
    /// Tokens of its prompt, and how many of them are evaluated.
    pub prompt: usize,
    /// Tokens that are in the cache, of the last text if nothing is being done.
    pub cached: usize,
    /// Tokens that were made.
    pub made: usize,
    /// How many more may come, if there is a limit.
    pub left: Option<usize>,
}

impl Engine {
    /// Saves the text that a slot made last, if it is still in the cache.
    pub fn save_slot(&mut self, slot: usize) -> Result<SavedText> {
        self.check_idle(slot)?;
        let Some(kept) = self.prefixes.last_of(slot) else {
            return Ok(SavedText { tokens: Vec::new(), cells: None });
        };
        if kept.maker.mask.is_some() {
            return Err(Error::Input(format!(
                "slot {slot}: its text was made under a mask; only texts of the whole model can be saved"
            )));
        }
        // Keys and values that were made with adapters are not saved. They are computed again.
        let saved = match kept.maker.scales {
            None => self.context.save(kept.seq)?,
            Some(_) => None,
        };
        let cells = self.form().zip(saved).map(|(form, bytes)| SavedCells { form, bytes });
        Ok(SavedText { tokens: kept.tokens.clone(), cells })
    }

    /// Replaces all texts of a slot by a saved one, and returns its number of tokens. If the saved text has no keys and values, a job
    /// computes them, and the slot is busy until it ends.
    pub fn restore_slot(&mut self, slot: usize, saved: SavedText) -> Result<usize> {
        self.check_idle(slot)?;
        let SavedText { tokens, cells } = saved;
        let count = tokens.len();
        if count == 0 {
            self.erase_slot(slot)?;
            return Ok(0);
        }
        let request = Request { max_tokens: Some(0), ..Request::new(&tokens) };
        let job = Job { slot: Some(slot), ..Job::new(request) };
        self.check(&job)?;
        let Some(cells) = cells else {
            self.erase_slot(slot)?;
            self.submit(job, Box::new(|_| ControlFlow::Continue(())))?;
            return Ok(count);
        };
        if self.form().is_none_or(|form| form != cells.form) {
            return Err(Error::Input(
                "the saved text is of another model, or its keys and values are stored in another way here"
                    .into(),
            ));
        }
        self.erase_slot(slot)?;
        while !self.has_room(count, 1) && self.evict() {}
        let seq = self.sequences();
        self.context.adapt(seq, None)?;
        self.context.load(seq, count, &cells.bytes)?;
        let dropped = self.prefixes.keep(seq, Maker::default(), job.request.prompt, slot);
        dropped.into_iter().for_each(|seq| self.context.remove(seq));
        Ok(count)
    }

    /// Removes all texts of a slot from the cache, and returns how many tokens the last one had.
    pub fn erase_slot(&mut self, slot: usize) -> Result<usize> {
        self.check_idle(slot)?;
        let tokens = self.prefixes.last_of(slot).map_or(0, |kept| kept.tokens.len());
        self.prefixes.drop_of(slot).into_iter().for_each(|seq| self.context.remove(seq));
        Ok(tokens)
    }

    /// What each slot is doing.
    pub(super) fn slots(&self) -> Vec<SlotStatus> {
        let status = |slot: usize| match self.running.iter().find(|job| job.slot == slot) {
            Some(job) => SlotStatus {
                job: Some(job.id),
                drafts: !job.proposers.is_empty(),
                prompt: job.text.spec.request.prompt.len(),
                cached: self.context.kv().len(job.text.spec.seq),
                made: job.text.out.tokens.len(),
                left: job.text.left(),
            },
            None => {
                let cached = self.prefixes.last_of(slot).map_or(0, |kept| kept.tokens.len());
                SlotStatus { cached, ..SlotStatus::default() }
            }
        };
        (0..self.config.texts).map(status).collect()
    }

    /// An error if there is no such slot.
    pub(super) fn check_slot(&self, slot: usize) -> Result<()> {
        match self.config.texts {
            slots if slot < slots => Ok(()),
            slots => Err(Error::Input(format!("slot {slot}: there are {slots}, and the first one is 0"))),
        }
    }

    fn check_idle(&self, slot: usize) -> Result<()> {
        self.check_slot(slot)?;
        match self.is_free(slot) {
            true => Ok(()),
            false => Err(Error::Input(format!("slot {slot} is making a text; wait for its end"))),
        }
    }

    fn is_free(&self, slot: usize) -> bool {
        self.running.iter().all(|job| job.slot != slot)
    }

    /// Whether there is a free slot for a waiting job.
    pub(super) fn has_slot(&self, job: &Running) -> bool {
        job.wanted.is_none_or(|slot| self.is_free(slot))
    }

    /// A free slot for a job: the one whose text it begins with, or else the one that was not used for the longest time.
    pub(super) fn slot_for(&self, wanted: Option<usize>, of_source: Option<usize>) -> usize {
        if let Some(slot) = wanted {
            return slot;
        }
        let free = (0..self.config.texts).filter(|&slot| self.is_free(slot));
        let oldest = || free.min_by_key(|&slot| self.prefixes.last_use(slot)).unwrap_or(0);
        of_source.filter(|&slot| self.is_free(slot)).unwrap_or_else(oldest)
    }

    /// Identifies the model of keys and values, and how they are stored.
    fn form(&self) -> Option<String> {
        Some(format!("{} {}", self.context.model().fingerprint(), self.context.kv_form()?))
    }
}
