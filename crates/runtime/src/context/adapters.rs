//! The scales of LoRA adapters, by sequence.

use std::collections::HashMap;

use super::Context;
use crate::{
    Batch, Error, Result,
    batch::{Row, SeqId},
    lora::{Lora, Scales},
};

/// The adapters' scales of sequences. A fork has those of its sequence.
pub(super) struct Adapted {
    /// The scales of sequences that were given none.
    pub by_default: Option<Scales>,
    of: HashMap<SeqId, Option<Scales>>,
}

impl Adapted {
    pub fn new(by_default: Option<Scales>) -> Self {
        Adapted { by_default, of: HashMap::new() }
    }

    fn of(&self, seq: SeqId) -> Option<&Scales> {
        self.of.get(&seq).unwrap_or(&self.by_default).as_ref()
    }

    /// Only scales that differ from the default are stored.
    fn set(&mut self, seq: SeqId, scales: Option<Scales>) {
        match scales == self.by_default {
            true => self.remove(seq),
            false => _ = self.of.insert(seq, scales),
        }
    }

    pub fn fork(&mut self, src: SeqId, dst: SeqId) {
        match self.of.get(&src).cloned() {
            Some(scales) => _ = self.of.insert(dst, scales),
            None => self.remove(dst),
        }
    }

    pub fn remove(&mut self, seq: SeqId) {
        self.of.remove(&seq);
    }

    pub fn remove_all(&mut self) {
        self.of.clear();
    }

    /// Sequences that fork within a batch get the scales of those that they fork from.
    pub fn part(&mut self, batch: &Batch) {
        batch.forks.iter().for_each(|fork| self.fork(batch.rows[fork.after].seq, fork.to));
    }

    /// The scales of each row; nothing where no row has any.
    pub fn of_rows(&self, rows: &[Row]) -> Vec<Option<Scales>> {
        match rows.iter().any(|row| self.of(row.seq).is_some()) {
            true => rows.iter().map(|row| self.of(row.seq).cloned()).collect(),
            false => Vec::new(),
        }
    }
}

impl Context {
    /// The adapters that texts may have, in the order of the configuration.
    pub fn loras(&self) -> &[Lora] {
        self.loras.all()
    }

    /// The scales of sequences that were given none.
    pub fn default_scales(&self) -> Option<&Scales> {
        self.adapted.by_default.as_ref()
    }

    /// The scales of a sequence.
    pub fn scales(&self, seq: SeqId) -> Option<&Scales> {
        self.adapted.of(seq)
    }

    /// Sets the scales of an empty sequence until it is removed. Its forks get the same.
    pub fn adapt(&mut self, seq: SeqId, scales: Option<Scales>) -> Result<()> {
        let count = self.loras().len();
        if let Some(scales) = scales.as_ref().filter(|scales| scales.count() > count) {
            return Err(Error::Input(format!("scales of {} adapters: `loras` has {count}", scales.count())));
        }
        if !self.kv.is_empty(seq) && scales.as_ref() != self.scales(seq) {
            return Err(Error::Input(format!(
                "sequence {seq} has keys and values of other adapters: remove it first"
            )));
        }
        self.adapted.set(seq, scales);
        Ok(())
    }

    /// Identifies the model with its adapters and control vectors, as a name for stored data.
    pub fn fingerprint(&self) -> String {
        let name = |lora: &Lora| format!(" +{}:{}", lora.fingerprint, lora.scale);
        self.model.fingerprint() + &self.loras().iter().map(name).collect::<String>()
    }
}
