//! Batches that a device evaluates one after the other by itself, each with tokens that those before it picked.

use super::{CellAssignment, Chained, Context, views::views};
use crate::{
    Error, Result, backend,
    batch::{ChainBatch, SeqId},
    scores::Top,
};

impl Context {
    /// Evaluates batches one after the other without waiting in between, where the device can; then
    /// [`Context::scores`] has the `k` best of all their outputs in order. `None` where it cannot, or not these
    /// batches, and then the cache is as it was.
    pub fn decode_chain(&mut self, links: &[ChainBatch], k: usize) -> Result<Option<Chained>> {
        let rows = || links.iter().flat_map(|link| &link.batch.rows);
        links.iter().try_for_each(|link| self.check(&link.batch))?;
        check_picks(links)?;
        let longest = links.iter().map(|link| link.batch.rows.len()).max().unwrap_or(0);
        let fits = longest <= self.backend.max_rows() && rows().count() <= self.kv.room();
        let in_parts = links.iter().any(|ChainBatch { batch, .. }| {
            batch.keep_hidden.is_some()
                || batch.resume.is_some()
                || batch.mtp.is_some()
                || !batch.taps.is_empty()
                || !batch.forks.is_empty()
                || batch.inject.is_some()
        });
        if links.is_empty() || in_parts || !fits || !(1..=self.backend.abilities().most_top).contains(&k) {
            return Ok(None);
        }
        let before: Vec<(SeqId, usize)> = rows().map(|r| (r.seq, self.kv.len(r.seq))).collect();
        let result = links
            .iter()
            .map(|link| self.assign_cells(&link.batch, &link.batch.rows, 0))
            .collect::<Result<Vec<_>>>()
            .and_then(|cells| self.evaluate_chain(links, &cells, k));
        if !matches!(result, Ok(Some(_))) {
            self.restore(before);
        }
        result
    }

    fn evaluate_chain(
        &mut self,
        links: &[ChainBatch],
        cells: &[Vec<u32>],
        k: usize,
    ) -> Result<Option<Chained>> {
        let model = self.model.clone();
        let assigned: Vec<_> = std::iter::zip(links, cells)
            .map(|(link, cells)| {
                let rows = &link.batch.rows;
                CellAssignment::new(&self.kv, rows, cells, Vec::new(), self.adapted.of_rows(rows))
            })
            .collect();
        let steps: Vec<_> = links.iter().map(|l| model.plan.steps(l.batch.run_layers.as_ref())).collect();
        let seen: Vec<_> = (0..links.len())
            .map(|i| views(&self.kv, &model.plan, &links[i].batch.rows, &cells[i], &steps[i]))
            .collect();
        let chain: Vec<_> = steps
            .into_iter()
            .enumerate()
            .map(|(i, steps)| backend::ChainPass {
                steps,
                rows: assigned[i].rows(&seen[i].0, &seen[i].1, None),
                picked: &links[i].picked,
            })
            .collect();
        let mut tops = Vec::new();
        tops.resize_with(assigned.iter().map(|cells| cells.outputs.len()).sum(), Top::default);
        let Some(device) = self.backend.whole_passes() else { return Ok(None) };
        let chained = device.run_chain(&chain, k, &mut tops)?;
        if chained.is_some() {
            let mut tops_left = &tops[..];
            for link in links {
                let outputs = link.batch.rows.iter().filter(|row| row.logits).count();
                let (of_link, rest) = tops_left.split_at(outputs);
                self.check_numbers(&link.batch, |i| of_link[i].best[0].1.is_nan())?;
                tops_left = rest;
            }
            self.tops = tops;
        }
        Ok(chained)
    }
}

/// A picked token has been picked by the time its row is evaluated.
fn check_picks(links: &[ChainBatch]) -> Result<()> {
    let mut outputs = 0;
    for ChainBatch { batch, picked } in links {
        if let Some((row, pick)) = picked.iter().find(|(row, p)| *row >= batch.rows.len() || *p >= outputs) {
            return Err(Error::Batch(format!(
                "row {row} of {} waits for output {pick} of a chain, of which {outputs} come before it",
                batch.rows.len()
            )));
        }
        outputs += batch.rows.iter().filter(|r| r.logits).count();
    }
    Ok(())
}
