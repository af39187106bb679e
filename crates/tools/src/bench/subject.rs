//! One configuration under measurement.

use std::{sync::Arc, time::Instant};

use super::{BenchSettings, Case};
use crate::{
    Batch, Context, Result, RunLayers,
    batch::SeqId,
    measure::memory::{ReadBuffer, ReadProbe},
    rng::Rng,
    scores::Want,
};

/// Holds the deepest prefix; every case starts from a fork of it.
const BASE: SeqId = 0;
const WORK: SeqId = 1;
/// Passes that one sample may take together.
const MOST_PASSES: usize = 256;
/// Of the reads of the memory in a sample the best one counts, so there must be some.
const LEAST_READS: usize = 3;

pub(super) struct Subject<'a> {
    context: &'a mut Context,
    mask: Option<RunLayers>,
    settings: &'a BenchSettings,
    tokens: Vec<u32>,
    memory: Option<ReadProbe>,
    /// How often a sample repeats each case.
    passes: Vec<(Case, usize)>,
}

impl<'a> Subject<'a> {
    pub fn new(
        context: &'a mut Context,
        mask: Option<RunLayers>,
        settings: &'a BenchSettings,
    ) -> Result<Self> {
        let tokens = random_tokens(settings.cells(), context.model().plan.dims.n_vocab);
        context.remove(BASE);
        if settings.prefix() > 0 {
            let mut prefix = Batch::prompt(&tokens[..settings.prefix()], 0, BASE);
            prefix.rows.iter_mut().for_each(|row| row.logits = false);
            context.decode(&prefix)?;
        }
        Ok(Subject { context, mask, settings, tokens, memory: None, passes: Vec::new() })
    }

    /// Runs the case until everything that it needs is in place, and finds out how long it takes.
    pub fn warm_up(&mut self, case: Case) -> Result<()> {
        let Some(mut seconds) = self.pass(case)? else { return Ok(()) };
        if 2.0 * seconds < self.settings.sample_seconds {
            seconds = self.pass(case)?.unwrap_or(seconds);
        }
        let passes = (self.settings.sample_seconds / seconds / self.steps(case) as f64).ceil() as usize;
        self.passes.push((case, passes.clamp(1, MOST_PASSES)));
        Ok(())
    }

    pub fn add_memory(&mut self, buffer: Arc<ReadBuffer>) -> Result<()> {
        let probe = ReadProbe::new(buffer, self.context.threads())?;
        let reads = (self.settings.sample_seconds / probe.pass()).ceil() as usize;
        self.memory = Some(probe);
        self.passes.push((Case::Memory, reads.max(LEAST_READS)));
        Ok(())
    }

    /// Seconds for the case once: a batch, a step, or a read of the memory. `None` for a draft without a mask.
    pub fn sample(&mut self, case: Case) -> Result<Option<f64>> {
        let Some(&(_, passes)) = self.passes.iter().find(|(c, _)| *c == case) else { return Ok(None) };
        if let (Case::Memory, Some(probe)) = (case, &self.memory) {
            return Ok(Some((0..passes).map(|_| probe.pass()).fold(f64::INFINITY, f64::min)));
        }
        if passes > 1 {
            // What ran before has filled the caches with other things.
            self.pass(case)?;
        }
        let mut seconds = 0.0;
        for _ in 0..passes {
            seconds += self.pass(case)?.unwrap_or(0.0);
        }
        Ok(Some(seconds / passes as f64))
    }

    /// Bytes that one read of the memory moves.
    pub fn finish(self) -> usize {
        self.memory.map_or(0, |probe| probe.bytes())
    }

    fn steps(&self, case: Case) -> usize {
        match case {
            Case::Decode { .. } => self.settings.decode_steps,
            Case::Draft => self.settings.draft_steps,
            Case::Memory | Case::Rows { .. } | Case::Prefill { .. } => 1,
        }
    }

    fn pass(&mut self, case: Case) -> Result<Option<f64>> {
        let (depth, rows) = match case {
            Case::Memory => return Ok(None),
            Case::Draft if self.mask.is_none() => return Ok(None),
            Case::Decode { depth } => (depth, 1),
            Case::Draft => (self.settings.rows_depth, 1),
            Case::Rows { n } => (self.settings.rows_depth, n),
            Case::Prefill { n } => (0, n),
        };
        let steps = self.steps(case);
        let batches: Vec<Batch> = (depth..depth + steps).map(|pos| self.batch(case, pos, rows)).collect();
        self.context.fork(BASE, WORK);
        self.context.truncate(WORK, depth)?;
        let started = Instant::now();
        for batch in &batches {
            // A greedy token needs no more.
            self.context.decode_for(batch, Want::Top(1))?;
        }
        let seconds = started.elapsed().as_secs_f64();
        self.context.remove(WORK);
        Ok(Some(seconds / steps as f64))
    }

    fn batch(&self, case: Case, pos: usize, rows: usize) -> Batch {
        let mut batch = Batch::prompt(&self.tokens[pos..][..rows], pos as u32, WORK);
        if let Case::Rows { .. } = case {
            batch.rows.iter_mut().for_each(|row| row.logits = true);
        }
        if case == Case::Draft {
            batch.run_layers = self.mask.clone();
        }
        batch
    }
}

/// Speed depends on no token's meaning; different ones keep the embedding rows from all being the same one.
pub(super) fn random_tokens(n: usize, n_vocab: usize) -> Vec<u32> {
    let mut rng = Rng::new(0);
    (0..n).map(|_| (rng.next_u64() % n_vocab as u64) as u32).collect()
}
