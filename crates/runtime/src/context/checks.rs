//! What a batch has to be, before anything of it is evaluated. A batch that is refused changes nothing.

use super::Context;
use crate::{
    Batch, Error, Result,
    batch::{Fork, Mtp, Resume, Row},
    mask::RunLayers,
    plan::{Op, Visit},
};

fn refused<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::Batch(what.into()))
}

/// Each row has a row of so many numbers.
fn check_width(rows: &[Row], numbers: &[f32], width: usize, what: &str) -> Result<()> {
    let (found, rows) = (numbers.len(), rows.len());
    if found == rows * width {
        return Ok(());
    }
    refused(format!("{found} {what} for {rows} rows of {width}: hand over one row for each token"))
}

impl Context {
    pub(super) fn check(&self, batch: &Batch) -> Result<()> {
        self.check_rows(batch)?;
        self.check_taps(batch)?;
        self.check_forks(batch)?;
        self.check_inject(batch)?;
        if let Some(mtp) = &batch.mtp {
            return self.check_mtp(batch, mtp);
        }
        if batch.resume.is_none() {
            if batch.rows.len() > self.kv.free_cells() {
                return Err(self.kv.full(batch.rows.len()));
            }
            self.kv.check_positions(&batch.rows)?;
        }
        self.check_whole(batch)?;
        self.check_parts(batch)
    }

    /// What does not depend on the cache.
    pub fn check_rows(&self, batch: &Batch) -> Result<()> {
        if batch.rows.is_empty() {
            return refused("an empty batch: nothing to decode");
        }
        let (n_vocab, n_tokens) = (self.model.plan.dims.n_vocab, self.model.plan.n_tokens);
        if let Some(list) = batch.shortlist.as_ref().filter(|list| list.n_vocab() != n_vocab) {
            return refused(format!(
                "a shortlist of a vocabulary of {}, where {} has {n_vocab} tokens",
                list.n_vocab(),
                self.model.name
            ));
        }
        for &Row { token, pos, seq, .. } in &batch.rows {
            if token as usize >= n_tokens {
                return refused(format!("token {token} is not in the vocabulary of {n_tokens}"));
            }
            if let Some(most) = self.model.plan.most_positions.filter(|&most| pos as usize >= most) {
                return refused(format!(
                    "position {pos} of sequence {seq}: {} has places for {most} tokens and no more",
                    self.model.name
                ));
            }
            if pos > i32::MAX as u32 {
                return refused(format!("position {pos} of sequence {seq} is beyond {}", i32::MAX));
            }
        }
        if let Some(mask) = &batch.run_layers {
            let n_layer = self.model.plan.dims.n_layer;
            if mask.n_layer() != n_layer {
                return Err(Error::Mask(format!(
                    "a mask for {} layers cannot be used on {}, which has {n_layer}",
                    mask.n_layer(),
                    self.model.name
                )));
            }
            let repeated = || {
                let steps = self.model.plan.steps(Some(mask));
                steps
                    .iter()
                    .find(|s| matches!(s.op, Op::Convolve(_)) && s.visit.repetition > 0)
                    .map(|s| s.visit.layer)
            };
            if let Some(layer) = (mask.extra_repetitions() > 0).then(repeated).flatten() {
                return Err(Error::Mask(format!(
                    "the mask repeats layer {layer}, which is recurrent: its state goes on by one step for each token"
                )));
            }
            if mask.extra_repetitions() > self.extra_slots {
                return Err(Error::Mask(format!(
                    "the mask repeats layers {} times and the context has K/V room for {}: set extra_slots",
                    mask.extra_repetitions(),
                    self.extra_slots
                )));
            }
        }
        Ok(())
    }

    /// Of a batch that takes rows out between layers.
    fn check_taps(&self, batch: &Batch) -> Result<()> {
        let taps = &batch.taps;
        if taps.is_empty() {
            return Ok(());
        }
        if !self.has_taps() {
            return refused(format!(
                "rows cannot be taken out between the layers of {}: more goes from layer to layer than one row of each token",
                self.model.name
            ));
        }
        let masked = batch.run_layers.as_ref().is_some_and(|mask| !mask.is_full());
        if masked || batch.keep_hidden.is_some() || batch.resume.is_some() || batch.mtp.is_some() {
            return refused(
                "rows are taken out between the layers of full passes only: no mask, and nothing kept or resumed",
            );
        }
        let n_layer = self.model.plan.dims.n_layer;
        if !taps.is_sorted_by(|a, b| a < b) || taps.iter().any(|tap| !(1..=n_layer).contains(tap)) {
            return refused(format!(
                "rows are to be taken out at layers {taps:?}: give layers 1 to {n_layer}, ascending"
            ));
        }
        Ok(())
    }

    /// Of a batch in which sequences part from others.
    fn check_forks(&self, batch: &Batch) -> Result<()> {
        if batch.forks.is_empty() {
            return Ok(());
        }
        if batch.resume.is_some() || batch.mtp.is_some() || !self.model.plan.mixers.is_empty() {
            return refused(
                "sequences part within batches of new rows only, of a model without recurrent layers",
            );
        }
        if !batch.forks.is_sorted_by_key(|fork| fork.after) {
            return refused("sequences part in the order of the rows: sort the forks");
        }
        for (i, &Fork { after, to }) in batch.forks.iter().enumerate() {
            let Some(row) = batch.rows.get(after) else {
                return refused(format!("sequence {to} parts after row {after} of {}", batch.rows.len()));
            };
            let is_known = self.kv.len(to) > 0 || batch.forks[..i].iter().any(|other| other.to == to);
            let earlier = batch.rows[..=after].iter().any(|row| row.seq == to);
            let is_behind = |other: &&Row| other.seq == to && other.pos <= row.pos;
            if is_known || earlier || batch.rows.iter().any(|other| is_behind(&other)) {
                return refused(format!(
                    "sequence {to} parts after row {after}: it has to be empty before, and its rows come behind that one"
                ));
            }
        }
        Ok(())
    }

    /// Of a batch that makes keys and values of what another model left.
    fn check_inject(&self, batch: &Batch) -> Result<()> {
        let Some(rows) = &batch.inject else { return Ok(()) };
        let plan = &self.model.plan;
        let Some(inject) = &plan.inject else {
            return refused(format!("{} makes keys and values of its own tokens alone", self.model.name));
        };
        let only_that = batch.run_layers.is_none()
            && batch.keep_hidden.is_none()
            && batch.resume.is_none()
            && batch.mtp.is_none()
            && batch.taps.is_empty()
            && batch.forks.is_empty()
            && batch.rows.iter().all(|row| !row.logits);
        if !only_that {
            return refused("a batch of keys and values from another model's rows has nothing else");
        }
        check_width(&batch.rows, rows, plan.width(inject.reads), "numbers")
    }

    /// Of a batch for the head that predicts one token more.
    fn check_mtp(&self, batch: &Batch, mtp: &Mtp) -> Result<()> {
        if !self.has_mtp() {
            return refused(format!(
                "{} has no head for one token more here: open it with `mtp`, in one place",
                self.model.name
            ));
        }
        if batch.run_layers.is_some() || batch.keep_hidden.is_some() || batch.resume.is_some() {
            return refused(
                "a batch for the head that predicts one token more has no mask, and keeps and resumes nothing",
            );
        }
        let width = self.model.plan.width(self.model.plan.mtp_reads(mtp.after_itself));
        check_width(&batch.rows, &mtp.before, width, "hidden numbers")?;
        let new: Vec<Row> =
            batch.rows.iter().filter(|row| self.kv.cell_at(row.seq, row.pos).is_none()).copied().collect();
        if new.len() > self.kv.free_cells() {
            return Err(self.kv.full(new.len()));
        }
        self.kv.check_positions(&new)
    }

    /// Where rows see what comes behind them, a text is evaluated in one pass; and not every model gives logits.
    fn check_whole(&self, batch: &Batch) -> Result<()> {
        let (plan, name) = (&self.model.plan, &self.model.name);
        if plan.head.is_none() && batch.rows.iter().any(|row| row.logits) {
            return refused(format!("{name} gives no logits: it makes embeddings, which `Embedder` gives"));
        }
        // Blocks that are drafted follow a text that is known already.
        if !plan.bidirectional || plan.inject.is_some() {
            return Ok(());
        }
        let (rows, most) = (batch.rows.len(), self.backend.max_rows());
        if rows > most {
            return refused(format!(
                "{rows} tokens at once, and {name} sees a text both ways, in one pass of at most {most}: a larger `n_ubatch`"
            ));
        }
        match batch.rows.iter().map(|row| row.seq).find(|&seq| !self.kv.is_empty(seq)) {
            Some(seq) => refused(format!(
                "sequence {seq} has begun, and {name} sees a text both ways: evaluate it whole"
            )),
            None => Ok(()),
        }
    }

    /// Of a batch that runs a part of a pass.
    fn check_parts(&self, batch: &Batch) -> Result<()> {
        let Batch { rows, run_layers, keep_hidden, resume, .. } = batch;
        let from = resume.as_ref().map(|resume| resume.layer);
        let mut layers = from.into_iter().chain(*keep_hidden).peekable();
        if layers.peek().is_none() {
            return Ok(());
        }
        let n_layer = self.model.plan.dims.n_layer;
        let only_after_last = from.is_none() && *keep_hidden == Some(n_layer);
        let abilities = self.backend.abilities();
        if !(abilities.keeps_hidden || only_after_last && abilities.gives_last_rows) {
            return refused(format!(
                "hidden rows stay on the device ({}): run all layers in one pass, or `device` cpu",
                self.describe()
            ));
        }
        let in_full = run_layers.as_ref().map_or(n_layer, RunLayers::full_prefix);
        if let Some(layer) = layers.find(|layer| !(1..=in_full).contains(layer)) {
            return refused(format!(
                "hidden rows at layer {layer}: they can rest where all layers before have run in full, at 1 or later; here the first {in_full} do"
            ));
        }
        if let (Some(from), Some(keep)) = (from, *keep_hidden)
            && (keep < from || keep == from && from < n_layer)
        {
            return refused(format!(
                "rows that go on from layer {from} do not come to layer {keep} again: keep them at a later one"
            ));
        }
        let Some(Resume { layer, hidden }) = resume else { return Ok(()) };
        check_width(rows, hidden, self.model.plan.dims.dim, "hidden numbers")?;
        let mut cells = Vec::with_capacity(rows.len());
        for Row { pos, seq, .. } in rows {
            let holds = |cell: &u32| (0..*layer).all(|slot| self.kv.holds(*cell, slot, Visit::first(slot)));
            let Some(cell) = self.kv.cell_at(*seq, *pos).filter(holds) else {
                return refused(format!(
                    "position {pos} of sequence {seq} has not been through the first {layer} layers: nothing to resume"
                ));
            };
            if !self.kv.sees_all(*seq, *pos) {
                return Err(self.kv.lost(format!("position {pos} of sequence {seq} cannot be resumed")));
            }
            cells.push(cell);
        }
        cells.sort_unstable();
        match cells.windows(2).any(|pair| pair[0] == pair[1]) {
            true => refused("a row is to be resumed twice in one batch: name it once"),
            false => Ok(()),
        }
    }
}
