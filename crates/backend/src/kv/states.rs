//! Which states of recurrent layers belong to which sequence. As with cells, the numbers lie in the backend, in slabs of
//! which there is a number for each layer.
//!
//! A sequence has the states after its last token, and those before its last batch, so that it can go back to any row of that
//! batch: the later slab also keeps the inputs of the batch's rows, which are replayed from the earlier state. A fork shares
//! slabs, a pass writes to slabs that nobody else holds. Some earlier states are kept, so that a text that begins alike can go
//! on there.

use std::collections::BTreeMap;

use crate::{
    Error, Result,
    batch::{Row, SeqId},
};

/// Batches of more rows cannot be taken back in part.
pub const MOST_REPLAYED: usize = 64;
/// A state is kept after each batch that is that much further than the last one which was kept.
const KEPT_EVERY: usize = 256;
/// So many of one sequence.
const MOST_KEPT: usize = 8;

/// What a pass does to the states of one sequence. Of the runs of a pass none writes to a slab that another one reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRun {
    /// Its rows in the pass, in order.
    pub rows: Vec<usize>,
    /// By layer: the slab to go on from, and where to leave the state; `None`: the layer does not run.
    pub steps: Vec<Option<StateStep>>,
    /// Where the inputs of the rows are kept in the slab; `None`: they are not kept.
    pub replayed_from: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateStep {
    /// `None`: a text begins.
    pub from: Option<u32>,
    pub to: u32,
}

/// States that are to be made again: in each layer from the state in slab `from` and the first `rows` rows that are kept in
/// slab `inputs`. The rows are copied to slab `to` as well, unless that is `from` itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    pub layers: Vec<Option<ReplayStep>>,
    pub rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayStep {
    pub from: Option<u32>,
    pub inputs: u32,
    pub to: u32,
}

/// The states after the first `len` tokens of a sequence, by layer; `None`: no row has been through the layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    len: usize,
    slabs: Vec<Option<u32>>,
}

#[derive(Clone, Debug, Default)]
struct Line {
    last: State,
    /// Before the last batch, if it can be come back to.
    before: Option<State>,
    kept: Vec<State>,
}

impl Line {
    fn states(&self) -> impl Iterator<Item = &State> {
        [&self.last].into_iter().chain(&self.before).chain(&self.kept)
    }

    /// Whether a cut to `len` tokens goes through rows of the last batch again.
    fn goes_back_to(&self, len: usize) -> bool {
        len < self.last.len && self.before.as_ref().is_some_and(|before| before.len < len)
    }
}

/// The slabs of one layer.
#[derive(Debug)]
struct Slabs {
    holders: Vec<u32>,
    free: Vec<u32>,
}

#[derive(Debug)]
pub struct States {
    layers: Vec<Slabs>,
    lines: BTreeMap<SeqId, Line>,
}

impl States {
    /// Of so many layers, with so many slabs each.
    pub fn new(layers: usize, slabs: usize) -> Self {
        let slabs = || Slabs { holders: vec![0; slabs], free: (0..slabs as u32).rev().collect() };
        States { layers: (0..layers).map(|_| slabs()).collect(), lines: BTreeMap::new() }
    }

    pub fn are_none(&self) -> bool {
        self.layers.is_empty()
    }

    fn hold(&mut self, state: &State) {
        for (slabs, slab) in self.layers.iter_mut().zip(&state.slabs) {
            if let Some(slab) = slab {
                slabs.holders[*slab as usize] += 1;
            }
        }
    }

    fn release(&mut self, state: &State) {
        for (slabs, slab) in self.layers.iter_mut().zip(&state.slabs) {
            if let Some(slab) = *slab {
                slabs.release(slab);
            }
        }
    }

    fn empty(&self) -> State {
        State { len: 0, slabs: vec![None; self.layers.len()] }
    }

    /// A batch begins: what its sequences are now can be come back to, if it has few enough rows of them.
    pub fn begin(&mut self, rows: &[Row]) {
        if self.are_none() {
            return;
        }
        let mut counts: BTreeMap<SeqId, usize> = BTreeMap::new();
        rows.iter().for_each(|row| *counts.entry(row.seq).or_default() += 1);
        for (seq, count) in counts {
            let mut line =
                self.lines.remove(&seq).unwrap_or_else(|| Line { last: self.empty(), ..Line::default() });
            if let Some(before) = line.before.take() {
                self.release(&before);
            }
            if count <= MOST_REPLAYED {
                self.hold(&line.last);
                line.before = Some(line.last.clone());
            }
            self.lines.insert(seq, line);
        }
    }

    /// What a pass over these rows, of a batch that has begun, does to states. `runs`: the layers that it goes through.
    pub fn advance(&mut self, rows: &[Row], runs: &[bool]) -> Result<Vec<StateRun>> {
        if self.are_none() {
            return Ok(Vec::new());
        }
        let mut of_seq: BTreeMap<SeqId, Vec<usize>> = BTreeMap::new();
        for (i, row) in rows.iter().enumerate() {
            of_seq.entry(row.seq).or_default().push(i);
        }
        self.make_room(of_seq.keys().copied().collect(), runs)?;
        let mut left = Vec::new();
        let advance = |(seq, rows)| self.advance_one(seq, rows, runs, &mut left);
        let advanced = of_seq.into_iter().map(advance).collect();
        // Only now: runs go on at the same time, so none writes to a slab that another one goes on from.
        left.into_iter().for_each(|(layer, slab)| self.layers[layer].release(slab));
        Ok(advanced)
    }

    /// `left`: by layer, slabs that are not held any more when all runs have theirs.
    fn advance_one(
        &mut self,
        seq: SeqId,
        rows: Vec<usize>,
        runs: &[bool],
        left: &mut Vec<(usize, u32)>,
    ) -> StateRun {
        let mut line =
            self.lines.remove(&seq).unwrap_or_else(|| Line { last: self.empty(), ..Line::default() });
        let step = |(layer, slabs): (usize, &mut Slabs)| {
            if !runs[layer] {
                return None;
            }
            let from = line.last.slabs[layer];
            let to = match from.filter(|&slab| slabs.holders[slab as usize] == 1) {
                Some(own) => own,
                None => {
                    left.extend(from.map(|slab| (layer, slab)));
                    slabs.take()
                }
            };
            line.last.slabs[layer] = Some(to);
            Some(StateStep { from, to })
        };
        let steps = self.layers.iter_mut().enumerate().map(step).collect();
        let replayed_from = line.before.as_ref().map(|before| line.last.len - before.len);
        line.last.len += rows.len();
        self.lines.insert(seq, line);
        StateRun { rows, steps, replayed_from }
    }

    /// A batch has ended: sequences that are much further keep their state. Each needs slabs that others do not.
    pub fn end(&mut self, rows: &[Row]) {
        if self.are_none() {
            return;
        }
        let mut seqs: Vec<SeqId> = rows.iter().map(|row| row.seq).collect();
        seqs.sort_unstable();
        seqs.dedup();
        for seq in seqs {
            let Some(line) = self.lines.get_mut(&seq) else { continue };
            let known = line.kept.last().map_or(0, |state| state.len);
            // Its next pass needs slabs of its own then, and drafts two more.
            let room = self.layers.iter().all(|slabs| slabs.free.len() >= 4);
            if line.last.len < known + KEPT_EVERY || !room {
                continue;
            }
            let state = line.last.clone();
            let dropped = (line.kept.len() == MOST_KEPT).then(|| line.kept.remove(0));
            line.kept.push(state.clone());
            self.hold(&state);
            dropped.iter().for_each(|state| self.release(state));
        }
    }

    /// Lets kept states go until each of these sequences can have slabs of its own.
    fn make_room(&mut self, seqs: Vec<SeqId>, runs: &[bool]) -> Result<()> {
        loop {
            let lacking = (0..self.layers.len()).filter(|&layer| runs[layer]).any(|layer| {
                let slabs = &self.layers[layer];
                let needs = |seq: &&SeqId| {
                    let own = self.lines.get(seq).and_then(|line| line.last.slabs[layer]);
                    own.is_none_or(|slab| slabs.holders[slab as usize] > 1)
                };
                seqs.iter().filter(needs).count() > slabs.free.len()
            });
            if !lacking {
                return Ok(());
            }
            if !self.drop_kept() {
                return Err(Error::Batch(format!(
                    "no room for the states of {} more sequences: remove a sequence, or make room for more with `sequences` or `extra_states`",
                    seqs.len()
                )));
            }
        }
    }

    /// Lets one of the kept states go, if there is any.
    fn drop_kept(&mut self) -> bool {
        let Some(line) = self.lines.values_mut().find(|line| !line.kept.is_empty()) else { return false };
        let state = line.kept.remove(0);
        self.release(&state);
        true
    }

    /// Slabs that each layer could give: those that are free, or hold what was kept for later.
    pub fn to_give(&self) -> usize {
        let layer = |(layer, slabs): (usize, &Slabs)| {
            let mut needed = vec![false; slabs.holders.len()];
            for state in self.lines.values().flat_map(|line| [&line.last].into_iter().chain(&line.before)) {
                state.slabs[layer].into_iter().for_each(|slab| needed[slab as usize] = true);
            }
            needed.iter().filter(|needed| !**needed).count()
        };
        self.layers.iter().enumerate().map(layer).min().unwrap_or(usize::MAX)
    }

    /// The most tokens of a sequence, `len` at most, that it can be cut to.
    pub fn restorable(&self, seq: SeqId, len: usize) -> usize {
        let Some(line) = self.lines.get(&seq).filter(|_| !self.are_none()) else { return len };
        let mut before = line.before.iter().filter(|_| self.has_room_beside(line) || self.to_give() > 0);
        if before.any(|before| (before.len..=line.last.len).contains(&len)) || len >= line.last.len {
            return len.min(line.last.len);
        }
        line.states().map(|state| state.len).filter(|&known| known <= len).max().unwrap_or(0)
    }

    /// Whether the later states of a sequence can be made again: elsewhere, where others hold them too.
    fn has_room_beside(&self, line: &Line) -> bool {
        std::iter::zip(&self.layers, &line.last.slabs).all(|(slabs, slab)| {
            !slabs.free.is_empty() || slab.is_none_or(|slab| slabs.holders[slab as usize] == 1)
        })
    }

    /// Keeps the states after the first `len` tokens, to which the sequence can be cut; says what has to be made again.
    pub fn truncate(&mut self, seq: SeqId, len: usize) -> Option<Replay> {
        if len == 0 {
            if let Some(line) = self.lines.remove(&seq) {
                line.states().for_each(|state| self.release(state));
            }
            return None;
        }
        while self.lines.get(&seq).is_some_and(|line| line.goes_back_to(len) && !self.has_room_beside(line)) {
            if !self.drop_kept() {
                break;
            }
        }
        let mut line = self.lines.remove(&seq)?;
        let mut replay = None;
        if len < line.last.len {
            let kept_to = line.kept.partition_point(|state| state.len <= len);
            let dropped = line.kept.split_off(kept_to);
            dropped.iter().for_each(|state| self.release(state));
            match &line.before {
                Some(_) if line.goes_back_to(len) => replay = Some(self.replay(&mut line, len)),
                Some(before) if before.len == len => {
                    self.hold(before);
                    self.release(&std::mem::replace(&mut line.last, before.clone()));
                }
                _ => {
                    let state = line.kept.iter().rfind(|state| state.len == len).cloned();
                    let state = state.unwrap_or_else(|| self.empty());
                    self.hold(&state);
                    self.release(&std::mem::replace(&mut line.last, state));
                    line.before.take().iter().for_each(|before| self.release(before));
                }
            }
        }
        self.lines.insert(seq, line);
        replay
    }

    /// The state before the last batch becomes the one after the first rows of it. Where nobody else holds that, it does so in
    /// its place, which takes least time; then no other row of the batch can be come back to.
    fn replay(&mut self, line: &mut Line, len: usize) -> Replay {
        let before = line.before.take().expect("a state to go on from");
        let last = &mut line.last;
        let mut layers = std::iter::zip(&self.layers, std::iter::zip(&before.slabs, &last.slabs));
        let is_alone = layers.all(|(slabs, (from, inputs))| {
            from == inputs || from.is_some_and(|from| slabs.holders[from as usize] == 1)
        });
        let rows = len - before.len;
        last.len = len;
        let step = |(layer, slabs): (usize, &mut Slabs)| {
            let (from, inputs) = (before.slabs[layer], last.slabs[layer]);
            let inputs = inputs.filter(|_| inputs != from)?;
            let to = match from {
                Some(from) if is_alone => {
                    slabs.release(inputs);
                    // What was held before the batch is now held behind it.
                    slabs.holders[from as usize] += 1;
                    from
                }
                // Slabs that others hold too stay as they are, where there are further ones.
                _ if slabs.holders[inputs as usize] > 1 && !slabs.free.is_empty() => {
                    slabs.release(inputs);
                    slabs.take()
                }
                _ => inputs,
            };
            last.slabs[layer] = Some(to);
            Some(ReplayStep { from, inputs, to })
        };
        let layers = self.layers.iter_mut().enumerate().map(step).collect();
        match is_alone {
            true => self.release(&before),
            false => line.before = Some(before),
        }
        Replay { layers, rows }
    }

    /// Where the state after the first `len` tokens of a sequence lies, by layer; `None` where that is not its last one, or a
    /// layer has none.
    pub fn last_of(&self, seq: SeqId, len: usize) -> Option<Vec<u32>> {
        let line = self.lines.get(&seq).filter(|line| line.last.len == len)?;
        line.last.slabs.iter().copied().collect()
    }

    /// Gives an empty sequence the state after `len` tokens, which the caller writes: where it is to lie, by layer.
    pub fn put(&mut self, seq: SeqId, len: usize) -> Result<Vec<u32>> {
        if self.are_none() || len == 0 {
            return Ok(Vec::new());
        }
        self.make_room(vec![seq], &vec![true; self.layers.len()])?;
        let slabs: Vec<u32> = self.layers.iter_mut().map(Slabs::take).collect();
        let last = State { len, slabs: slabs.iter().copied().map(Some).collect() };
        self.lines.insert(seq, Line { last, ..Line::default() });
        Ok(slabs)
    }

    /// Makes `dst` the same as `src`.
    pub fn fork(&mut self, src: SeqId, dst: SeqId) {
        if src == dst || self.are_none() {
            return;
        }
        self.truncate(dst, 0);
        if let Some(line) = self.lines.get(&src).cloned() {
            line.states().for_each(|state| self.hold(state));
            self.lines.insert(dst, line);
        }
    }
}

impl Slabs {
    fn take(&mut self) -> u32 {
        let slab = self.free.pop().expect("room was made");
        self.holders[slab as usize] = 1;
        slab
    }

    fn release(&mut self, slab: u32) {
        let holders = &mut self.holders[slab as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(slab);
        }
    }
}

#[cfg(test)]
mod tests;
