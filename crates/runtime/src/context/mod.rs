//! A model, its K/V cache and a backend: batches in, logits out. No device code here.

mod adapters;
mod cell_assignment;
mod chain;
mod checks;
mod costs;
mod mtp;
mod parts;
mod saved;
mod taps;
mod views;

use std::{sync::Arc, time::Duration};

use crate::{
    Batch, Error, Model, Result,
    backend::{Backend, Output, SmallJob, watch::Watch},
    batch::SeqId,
    control,
    kv::WrittenSlots,
    lora::Loras,
    mask::RunLayers,
    open::{Opened, open},
    placement::{Place, Placement},
    plan::{Buf, CacheUse, Dims, Op, Plan, Step, Unit},
    scores::{Scores, Top, Want},
};
use adapters::Adapted;
use cell_assignment::CellAssignment;
use parts::Given;
use taps::Tapped;
use views::views;

pub use crate::{
    backend::{
        Chained, Speeds, Spent, Traffic,
        cpu::{matmul::Planes, simd::Isa},
        gpu::{GpuVariant, GpuWidths},
    },
    config::{ContextConfig, Streaming},
    kv::{KvCache, TAKEN_BACK},
    kv_type::KvType,
    open::{Device, Loading},
};

/// A model on a device, with a cache of keys and values.
pub struct Context {
    model: Arc<Model>,
    kv: KvCache,
    backend: Box<dyn Backend>,
    placement: Placement,
    notes: Vec<String>,
    speeds: Option<Speeds>,
    extra_slots: usize,
    shortlists: bool,
    loras: Arc<Loras>,
    adapted: Adapted,
    /// `[outputs, n_vocab]` of the last decode.
    logits: Vec<f32>,
    /// `[rows, dim]` of the last decode that kept them.
    hidden: Vec<f32>,
    has_taps: bool,
    /// Of the last decode that took rows out.
    tapped: Tapped,
    /// Of each output, if the last decode had this instead.
    tops: Vec<Top>,
}

impl Context {
    /// Opens the model on the device that the configuration names.
    pub fn new(model: Arc<Model>, config: &ContextConfig) -> Result<Self> {
        Self::open_with(model, config, &())
    }

    /// `loading` is told of the plan and of how far it is.
    pub fn open_with(model: Arc<Model>, config: &ContextConfig, loading: &dyn Loading) -> Result<Self> {
        if config.n_ctx == 0 || config.n_ctx > i32::MAX as u32 {
            return Err(Error::Usage(format!(
                "a context of {} tokens: `n_ctx` takes 1 to {}",
                config.n_ctx,
                i32::MAX
            )));
        }
        let model = model.for_context(config.n_ctx as usize);
        let model = control::steered(&model, &config.control_vectors, config.control_layers.as_ref())?;
        let n_layer = model.plan.dims.n_layer;
        let loras = Arc::new(Loras::open(&config.loras, &model)?);
        let Opened { model, backend, placement, notes, speeds } = open(model, config, &loras, loading)?;
        let kv = KvCache::new(&config.kv_layout(&model.plan), n_layer);
        Ok(Context {
            has_taps: model.plan.rests_between_layers(),
            model,
            kv,
            extra_slots: config.extra_slots,
            shortlists: config.shortlists && backend.abilities().takes_shortlists,
            backend,
            placement,
            notes: [loras.notes(), notes].concat(),
            speeds,
            adapted: Adapted::new(loras.default_scales()),
            loras,
            logits: Vec::new(),
            hidden: Vec::new(),
            tapped: Tapped::default(),
            tops: Vec::new(),
        })
    }

    /// The same with the backend wrapped into another one: one that counts passes, or waits as a slower machine would.
    pub fn around_backend(self, around: impl FnOnce(Box<dyn Backend>) -> Box<dyn Backend>) -> Self {
        Context { backend: around(self.backend), ..self }
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// From here on `watch` is told of every product. Only the CPU can tell, where all of the model is in main memory.
    pub fn watch(&mut self, watch: Arc<dyn Watch>) -> Result<()> {
        match self.backend.watch(watch) {
            true => Ok(()),
            false => Err(Error::Device("only a model that runs on the CPU alone can be watched".into())),
        }
    }

    /// Which tokens are in the cache.
    pub fn kv(&self) -> &KvCache {
        &self.kv
    }

    /// One line for the banner.
    pub fn describe(&self) -> String {
        self.backend.describe()
    }

    /// The same without what may change between runs on the same machine, as a name for stored data.
    pub fn identity(&self) -> String {
        self.backend.identity()
    }

    /// Threads of the CPU that share the work.
    pub fn threads(&self) -> usize {
        self.backend.threads()
    }

    /// Runs a small job on the threads that share the work of passes.
    pub fn together(&mut self, job: SmallJob) {
        self.backend.together(job);
    }

    /// The share of the CPU's time in which some threads were left out because other programs used their cores: 0 on an idle
    /// machine.
    pub fn crowded(&self) -> f64 {
        self.backend.account().crowded
    }

    /// Whether all weights are in their final arrangement.
    pub fn is_packed(&self) -> bool {
        self.backend.is_packed()
    }

    /// Rearranges weights that [`ContextConfig::pack_later`] has left as they are in the file, for about so long. Passes
    /// become faster by it, and give the same bits.
    pub fn pack_more(&mut self, time: Duration) -> Result<()> {
        self.backend.pack_more(time)
    }

    /// Which part of the model is where.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Whether the model lies in more than one place.
    pub fn is_divided(&self) -> bool {
        self.placement.is_divided()
    }

    /// What differs from the plan.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Time by kernel, if the configuration asked for it.
    pub fn profile(&self) -> Option<String> {
        self.backend.profile()
    }

    /// Where the time of all passes so far went.
    pub fn spent(&self) -> Spent {
        self.backend.account().spent
    }

    /// How fast the GPU is, where one is used and was measured.
    pub fn speeds(&self) -> Option<Speeds> {
        self.speeds
    }

    /// Bytes that the GPU reads of its memory in a second, where all weights lie there and it was measured.
    pub fn weights_read_speed(&self) -> Option<f64> {
        let is_there = self.placement.parts.iter().all(|(_, place)| *place == Place::Vram);
        self.speeds.filter(|_| is_there).map(|speeds| speeds.read)
    }

    /// Rows that one pass takes.
    pub fn rows_at_once(&self) -> usize {
        self.backend.max_rows()
    }

    /// Transfers to and from a GPU.
    pub fn traffic(&self) -> Option<Traffic> {
        self.backend.account().traffic
    }

    /// Whether a batch may keep hidden rows and resume from them.
    pub fn keeps_hidden(&self) -> bool {
        self.backend.abilities().keeps_hidden
    }

    /// Evaluates the batch; afterwards [`Context::logits`] has the rows that asked. On an error the cache is
    /// as it was, with two exceptions: cells which the batch resumed have lost what they held from there on, and a sequence
    /// of which windows have forgotten too much to come back to is empty. A batch that is refused changes nothing and also
    /// leaves the logits of the one before.
    pub fn decode(&mut self, batch: &Batch) -> Result<()> {
        self.decode_for(batch, Want::Logits)
    }

    /// As [`Context::decode`]; afterwards [`Context::scores`] has what is wanted of the rows that asked.
    pub fn decode_for(&mut self, batch: &Batch, want: Want) -> Result<()> {
        self.check(batch)?;
        if let Some(resume) = &batch.resume {
            return self.decode_resumed(batch, resume, want);
        }
        let forked = batch.forks.iter().map(|fork| (fork.to, 0));
        let before = batch.rows.iter().map(|r| (r.seq, self.kv.len(r.seq))).chain(forked).collect();
        self.adapted.part(batch);
        // The head that predicts one token more has no states.
        let goes_on = batch.mtp.is_none();
        if goes_on {
            self.kv.begin_states(&batch.rows);
        }
        let result = self.evaluate(batch, want);
        if goes_on {
            self.kv.end_states(&batch.rows);
        }
        if result.is_err() {
            self.restore(before);
        }
        result
    }

    /// The logits of the `i`-th row that asked for them in the last decode.
    ///
    /// # Panics
    /// If something else was wanted of it.
    pub fn logits(&self, i: usize) -> &[f32] {
        let n = self.model.plan.dims.n_vocab;
        &self.logits[i * n..][..n]
    }

    /// All logits of the last decode, `[outputs, n_vocab]`, given away: the context has none of them any more.
    pub fn take_logits(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.logits)
    }

    /// The `i`-th row of the last decode as it came to the layer where the batch wanted rows kept, or out of the last one.
    pub fn hidden(&self, i: usize) -> &[f32] {
        let n = self.model.plan.dims.dim;
        &self.hidden[i * n..][..n]
    }

    /// What the last decode says of the `i`-th row that asked: at least what was wanted.
    pub fn scores(&self, i: usize) -> Scores<'_> {
        if self.tops.is_empty() { Scores::All(self.logits(i)) } else { Scores::Top(&self.tops[i]) }
    }

    /// Makes `dst` the same as `src`; nothing is copied.
    pub fn fork(&mut self, src: SeqId, dst: SeqId) {
        self.kv.fork(src, dst);
        self.adapted.fork(src, dst);
    }

    /// Keeps the first `len` tokens of a sequence. Where layers have a sliding window this is an error, and changes nothing, if
    /// they have forgotten what the next token would see: see [`KvCache::can_truncate`]. A sequence can always be cut to nothing,
    /// and to up to [`TAKEN_BACK`] positions before the longest that it has been.
    pub fn truncate(&mut self, seq: SeqId, len: usize) -> Result<()> {
        if !self.kv.can_truncate(seq, len) {
            return Err(self.kv.lost(format!("cannot cut sequence {seq} to {len} tokens")));
        }
        self.cut(seq, len);
        Ok(())
    }

    /// Forgets a sequence.
    pub fn remove(&mut self, seq: SeqId) {
        self.kv.remove(seq);
        self.adapted.remove(seq);
    }

    /// Forgets everything.
    pub fn remove_all(&mut self) {
        self.kv.sequences().for_each(|seq| self.kv.remove(seq));
        self.adapted.remove_all();
    }

    /// Context shift: drops `count` tokens after the first `keep` and closes the gap. An error where layers with a sliding window
    /// would then see some of the first tokens, which they have forgotten.
    pub fn shift(&mut self, seq: SeqId, keep: usize, count: usize) -> Result<()> {
        let (moves, delta) = self.kv.shift(seq, keep, count)?;
        self.backend.shift_keys(&moves, delta)
    }

    /// Cuts sequences back to their lengths before, or to nothing.
    fn restore(&mut self, before: Vec<(SeqId, usize)>) {
        for (seq, len) in before {
            let len = if self.kv.can_truncate(seq, len) { len } else { 0 };
            self.cut(seq, len);
        }
    }

    fn cut(&mut self, seq: SeqId, len: usize) {
        if let Some(replay) = self.kv.truncate(seq, len) {
            self.backend.replay_states(&replay);
        }
    }

    /// Which slots a pass under `mask` writes; `None` if exactly the layers' own.
    fn written_slots(&self, mask: &RunLayers) -> Option<WrittenSlots> {
        let n_layer = self.model.plan.dims.n_layer;
        let mut written = vec![None; self.model.plan.own_slots() + self.extra_slots];
        for step in self.model.plan.steps(Some(mask)) {
            if self.model.plan.operands(step.op).cache == CacheUse::Writes {
                written[step.slot] = Some(step.visit);
            }
        }
        let plan = &self.model.plan;
        let own = |slot| slot < n_layer && plan.keys_of(slot) == slot;
        let plain = written.iter().enumerate().all(|(slot, w)| w.is_some() == own(slot));
        (!plain).then(|| written.into())
    }

    /// Makes room for the results of a batch. `Some(k)`: only the `k` best tokens of each output are needed.
    fn make_room(&mut self, batch: &Batch, want: Want, keeps_rows: bool) -> Result<Option<usize>> {
        let Dims { n_vocab, dim, .. } = self.model.plan.dims;
        let n_outputs = batch.rows.iter().filter(|r| r.logits).count();
        let top = match want {
            Want::Top(k) if (1..=self.backend.abilities().most_top).contains(&k) => Some(k),
            _ => None,
        };
        self.tops.clear();
        self.logits.clear();
        if top.is_some() {
            self.tops.resize_with(n_outputs, Top::default);
        } else {
            self.logits.try_reserve(n_outputs * n_vocab).map_err(|_| {
                Error::Memory(format!(
                    "no memory for the logits of {n_outputs} rows: ask for fewer rows at once"
                ))
            })?;
            // Tokens that are not on a shortlist keep this value.
            self.logits.resize(n_outputs * n_vocab, f32::NEG_INFINITY);
        }
        self.hidden.resize(if keeps_rows { batch.rows.len() * dim } else { 0 }, 0.0);
        Ok(top)
    }

    /// Runs a batch, in as many passes as it takes.
    fn evaluate(&mut self, batch: &Batch, want: Want) -> Result<()> {
        let model = self.model.clone();
        let Dims { n_vocab, dim, .. } = model.plan.dims;
        let mut steps = match &batch.mtp {
            Some(mtp) => model.plan.mtp_steps(mtp.after_itself),
            None if batch.inject.is_some() => model.plan.inject_steps(),
            None => model.plan.steps(batch.run_layers.as_ref()),
        };
        let head = steps.pop_if(|step| step.unit == Unit::Head);
        let begun = batch.resume.as_ref().map_or(0, |resume| model.plan.steps_before(resume.layer));
        steps.drain(..begun);
        let body = steps.len();
        let kept_after = match batch.mtp {
            Some(_) => batch.rows.iter().any(|row| row.logits).then_some(body),
            None => batch.keep_hidden.map(|layer| model.plan.steps_before(layer) - begun),
        };
        let given = match (&batch.mtp, &batch.resume) {
            (Some(mtp), _) => Some((model.plan.mtp_reads(mtp.after_itself), &mtp.before)),
            (None, Some(resume)) => Some((Buf::X, &resume.hidden)),
            (None, None) => batch.inject.as_ref().map(|rows| (model.plan.read_injected(), rows)),
        };
        let top = self.make_room(batch, want, kept_after.is_some())?;
        let mut tapped = self.tapped.take_for(batch, &model.plan);
        let recurrent = recurrent_layers(&model.plan, &steps);
        let mut done = 0;
        let mut out = 0;
        for rows in batch.rows.chunks(self.backend.max_rows()) {
            let (cells, states) = match (&batch.mtp, &batch.resume) {
                (Some(_), _) => (self.mtp_cells(rows)?, Vec::new()),
                (None, Some(_)) => (self.cells_of(rows), self.kv.advance_states(rows, &recurrent)?),
                (None, None) => {
                    (self.assign_cells(batch, rows, done)?, self.kv.advance_states(rows, &recurrent)?)
                }
            };
            let scales = self.adapted.of_rows(rows);
            let assigned = CellAssignment::new(&self.kv, rows, &cells, states, scales);
            let n_out = assigned.outputs.len();
            steps.truncate(body);
            steps.extend(head.filter(|_| n_out > 0));
            let (views, view_of_slot) = views(&self.kv, &model.plan, rows, &cells, &steps);
            let output = match top {
                Some(k) if n_out > 0 => Output::Top { k, rows: &mut self.tops[out..][..n_out] },
                Some(_) => Output::none(),
                None => Output::Logits(&mut self.logits[out * n_vocab..][..n_out * n_vocab]),
            };
            let hidden = done * dim..(done + rows.len()) * dim;
            let given = given.map(|(buf, all)| {
                let width = model.plan.width(buf);
                Given { buf, rows: &all[done * width..(done + rows.len()) * width] }
            });
            let kept = kept_after.map(|steps| (steps, &mut self.hidden[hidden]));
            let assigned_rows = assigned.rows(&views, &view_of_slot, batch.shortlist.as_deref());
            match tapped.is_wanted() {
                true => tapped.run(&mut *self.backend, &steps, &assigned_rows, output)?,
                false => parts::run(&mut *self.backend, &steps, &assigned_rows, given, kept, output)?,
            }
            done += rows.len();
            out += n_out;
        }
        self.tapped = tapped;
        let has_none = |i: usize| match top {
            Some(_) => self.tops[i].best[0].1.is_nan(),
            None => self.logits[i * n_vocab..][..n_vocab].iter().all(|x| x.is_nan()),
        };
        self.check_numbers(batch, has_none)
    }

    /// A full pass has to give each row that asked at least one number. A draft's pass may fail, which only costs the draft.
    fn check_numbers(&self, batch: &Batch, has_none: impl Fn(usize) -> bool) -> Result<()> {
        if batch.mtp.is_some() || batch.run_layers.as_ref().is_some_and(|mask| !mask.is_full()) {
            return Ok(());
        }
        let mut asked = batch.rows.iter().filter(|row| row.logits).enumerate();
        match asked.find(|&(i, _)| has_none(i)) {
            Some((_, row)) => Err(self.not_a_number(row.pos)),
            None => Ok(()),
        }
    }

    /// The error for a row whose logits are not numbers.
    pub fn not_a_number(&self, pos: u32) -> Error {
        let what = format!(
            "the logits at position {pos} are not numbers (NaN): the file is damaged, or the model overflows; convert or download it again"
        );
        Error::model(self.model.gguf.name(), what)
    }
}

/// Which recurrent layers some steps go through.
fn recurrent_layers(plan: &Plan, steps: &[Step]) -> Vec<bool> {
    let mut runs = vec![false; plan.mixers.len()];
    for step in steps {
        if let Op::Convolve(id) = step.op {
            runs[id.index()] = true;
        }
    }
    runs
}
