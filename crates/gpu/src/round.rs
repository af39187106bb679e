//! A chain of passes in one submission with one readback: a greedy speculation round, say, whose draft steps feed
//! each other and then the verification.
//!
//! The row data of all passes are sent to a staging buffer first. Before each pass the encoder copies its row data to where the
//! kernels read them. After it the encoder writes the token that was picked into the row data of the passes that wait for it.

use super::{
    GpuBackend,
    command::{BufferCopy, Command},
    device::Gpu,
    ops::{HeadPiece, Pass, Stage},
    pick, readback,
    record::Recorder,
    rows::{RowData, Sections, Turns},
    usage::PassKind,
    work::OUTPUTS_AT_ONCE,
};
use crate::{
    Result,
    backend::{ChainPass, Chained, Traffic},
    kv::KvLayout,
    plan::{Plan, Step, Unit, WeightId},
    scores::Top,
};

/// The most passes of a chain, and the most rows of all of them.
const MOST_LINKS: usize = 17;
const MOST_ROWS: usize = 33;

/// Bytes of three timestamps.
const STAMP_BYTES: u64 = 24;

/// What rounds need besides what passes need.
pub struct Rounds {
    /// Row data of all passes of a chain.
    staged: wgpu::Buffer,
    /// When the chain began, its last pass, and when it ended; where the device can say.
    stamps: Option<(wgpu::QuerySet, wgpu::Buffer)>,
}

impl Rounds {
    fn staged_bytes(sections: &Sections, turned: usize) -> u64 {
        4 * (MOST_LINKS * sections.words(sections.usual_views()) + 2 * MOST_ROWS * turned) as u64
    }

    pub fn bytes(plan: &Plan, max_rows: usize, layout: &KvLayout) -> u64 {
        let sections = Sections::new(plan, max_rows, layout);
        Self::staged_bytes(&sections, Turns::of(plan).len) + 2 * STAMP_BYTES
    }

    pub fn new(gpu: &Gpu, row_data: &RowData) -> Result<Self> {
        use wgpu::BufferUsages as Usage;
        let both_ways = Usage::COPY_DST | Usage::COPY_SRC;
        let staged = gpu.buffer(
            "row data of a chain",
            Self::staged_bytes(&row_data.sections, row_data.turns.len),
            both_ways,
        )?;
        let resolved = || gpu.buffer("times", STAMP_BYTES, Usage::QUERY_RESOLVE | Usage::COPY_SRC);
        let stamps = gpu.timestamps(3).map(|queries| resolved().map(|resolved| (queries, resolved)));
        Ok(Rounds { staged, stamps: stamps.transpose()? })
    }
}

impl GpuBackend {
    /// See [`crate::backend::WholePasses::run_chain`].
    pub(super) fn chain(
        &mut self,
        links: &[ChainPass],
        k: usize,
        tops: &mut [Top],
    ) -> Result<Option<Chained>> {
        self.gpu.check()?;
        let is_timed = self.is_timed();
        let by_bytes = self.last_share(links);
        let GpuBackend { model, gpu, pipelines, weights, work, cache, rows: row_data, states, ops, .. } =
            self;
        let (Some(rounds), Some(picker)) = (&self.rounds, &mut self.picker) else { return Ok(None) };
        let tops_bytes = tops.len() as u64 * pick::row_bytes(k);
        let fits = |link: &ChainPass| (1..=OUTPUTS_AT_ONCE).contains(&link.rows.outputs.len());
        if !links.iter().all(fits) || tops_bytes + STAMP_BYTES > self.readable.size() {
            return Ok(None);
        }
        let passes = links.iter().map(|link| &link.rows);
        let Some(offsets) = row_data.send_staged(gpu, &model.plan, passes, &rounds.staged)? else {
            return Ok(None);
        };
        let stage = Stage { gpu, model, pipelines, weights, work, cache, rows: row_data, states };
        let passes = links.iter().map(|link| {
            let mut commands = ops.lower(&stage, &Pass::whole(&link.steps, &link.rows), Vec::new());
            let head = HeadPiece { head: head(link), piece: 0, rows: link.rows.outputs.len() };
            commands.extend(ops.lower_head(gpu, head));
            commands
        });
        let passes: Vec<Vec<Command>> = passes.collect();
        picker.prepare(&mut ops.params, k);
        ops.params.flush(gpu);
        // A profile times every kernel, and has no queries left for other times.
        let stamps = rounds.stamps.as_ref().filter(|_| !is_timed && links.len() > 1);
        let mut recorder = Recorder::new(gpu, pipelines, self.profile.as_mut().filter(|_| is_timed));
        let mut done = 0;
        for (i, (link, offset)) in links.iter().zip(&offsets).enumerate() {
            let is_last = i + 1 == links.len();
            let staged = &rounds.staged;
            let (rows, turned) = ((&row_data.rows, 0), (&row_data.turned, 0));
            recorder.copy(&BufferCopy::new((staged, offset.rows_at), rows, offset.rows_bytes));
            recorder.copy(&BufferCopy::new((staged, offset.turns_at), turned, offset.turns_bytes));
            if let Some((queries, _)) = stamps.filter(|_| i == 0 || is_last) {
                recorder.stamp(queries, Some(u32::from(is_last)), None);
            }
            let count = link.rows.outputs.len();
            recorder.run(&passes[i])?;
            if let Some((queries, _)) = stamps.filter(|_| is_last) {
                recorder.stamp(queries, None, Some(2));
            }
            recorder.run(&picker.lower(k, count))?;
            for (later, offset) in links.iter().zip(&offsets).skip(i + 1) {
                let waiting = later.picked.iter().filter(|(_, pick)| (done..done + count).contains(pick));
                for &(row, pick) in waiting {
                    let token = (&picker.best, pick::token_at(k, pick - done));
                    let to = (staged, offset.rows_at + 4 * row as u64);
                    recorder.copy(&BufferCopy::new(token, to, 4));
                }
            }
            let to = (&self.readable, done as u64 * pick::row_bytes(k));
            recorder.copy(&BufferCopy::new((&picker.best, 0), to, count as u64 * pick::row_bytes(k)));
            done += count;
        }
        if let Some((queries, resolved)) = stamps {
            recorder.encoder().resolve_query_set(queries, 0..3, resolved, 0);
            recorder.copy(&BufferCopy::new((resolved, 0), (&self.readable, tops_bytes), STAMP_BYTES));
        }
        recorder.submit();
        let measured = readback::read(gpu, &self.readable, tops_bytes + STAMP_BYTES, |bytes| {
            let (found, times) = bytes.split_at(tops_bytes as usize);
            pick::take(found, k, tops);
            stamps.and_then(|_| last_part(&bytemuck::pod_collect_to_vec(times)))
        })?;
        let pass = Traffic { readbacks: 1, ..recorder.traffic() };
        let recording = recorder.seconds();
        self.used(PassKind::Chain, pass, is_timed, recording)?;
        Ok(Some(Chained { last: measured.unwrap_or(by_bytes) }))
    }

    /// The share of the last pass in the bytes of weights that a chain reads.
    fn last_share(&self, links: &[ChainPass]) -> f64 {
        use crate::backend::Backend;
        let of_step = |step: &Step| {
            self.model.bytes_read(step.op, step.experts, |id: WeightId| self.weight_bytes(id, step.coarse))
        };
        let bytes: Vec<u64> = links.iter().map(|link| link.steps.iter().map(of_step).sum()).collect();
        bytes.last().map_or(1.0, |&last| last as f64 / bytes.iter().sum::<u64>() as f64)
    }
}

/// A pass with outputs ends with the head.
fn head<'a, 'p>(link: &'a ChainPass<'p>) -> &'a Step<'p> {
    let last = link.steps.last().expect("a pass has steps");
    debug_assert!(last.unit == Unit::Head);
    last
}

/// The share of the time after the second stamp; `None` if the times make no sense.
fn last_part(times: &[u64]) -> Option<f64> {
    let [begin, last, end] = *times else { return None };
    (begin < last && last < end).then(|| (end - last) as f64 / (end - begin) as f64)
}

#[cfg(test)]
mod tests {
    use super::last_part;

    #[test]
    fn the_last_pass_has_the_time_from_its_stamp_to_the_end() {
        assert_eq!(last_part(&[100, 130, 140]), Some(0.25));
        // Stamps that a driver never wrote, or wrote in another order.
        for nonsense in [&[0, 0, 0][..], &[140, 130, 100], &[100, 140, 130], &[100, 100, 140], &[1, 2]] {
            assert_eq!(last_part(nonsense), None, "{nonsense:?}");
        }
    }
}
