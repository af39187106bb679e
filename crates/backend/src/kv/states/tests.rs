//! Against texts: a slab holds the tokens that went into it, and a sequence's state must be that of its own tokens.

use super::*;
use spec_run_gguf::rng::Rng;

/// The tokens of a state, and those that can be gone through again.
#[derive(Clone, Default)]
struct Numbers {
    tokens: Vec<u32>,
    replayed: Vec<u32>,
}

struct Device {
    states: States,
    /// By layer.
    slabs: Vec<Vec<Numbers>>,
    /// What each sequence should be, by layer: a layer that was left out has not seen a token.
    texts: BTreeMap<SeqId, Vec<Vec<u32>>>,
    lens: BTreeMap<SeqId, usize>,
}

const LAYERS: usize = 3;

fn below(rng: &mut Rng, n: usize) -> usize {
    (rng.next_u64() % n as u64) as usize
}

fn row(token: u32, seq: SeqId) -> Row {
    Row { token, pos: 0, seq, logits: false }
}

impl Device {
    fn new(slabs: usize) -> Self {
        Device {
            states: States::new(LAYERS, slabs),
            slabs: vec![vec![Numbers::default(); slabs]; LAYERS],
            texts: BTreeMap::new(),
            lens: BTreeMap::new(),
        }
    }

    /// One batch, in passes of so many rows.
    fn decode(&mut self, rows: &[Row], at_once: usize, runs: &[bool]) -> Result<()> {
        self.states.begin(rows);
        for rows in rows.chunks(at_once) {
            for run in self.states.advance(rows, runs)? {
                let tokens: Vec<u32> = run.rows.iter().map(|&i| rows[i].token).collect();
                for (slabs, step) in self.slabs.iter_mut().zip(&run.steps) {
                    let Some(StateStep { from, to }) = *step else { continue };
                    let before = from.map_or_else(Vec::new, |from| slabs[from as usize].tokens.clone());
                    let slab = &mut slabs[to as usize];
                    slab.tokens = [before, tokens.clone()].concat();
                    if let Some(first) = run.replayed_from {
                        slab.replayed.resize(first, u32::MAX);
                        slab.replayed.extend(&tokens);
                    }
                }
            }
        }
        self.states.end(rows);
        for row in rows {
            let text = self.texts.entry(row.seq).or_insert_with(|| vec![Vec::new(); LAYERS]);
            for (tokens, _) in text.iter_mut().zip(runs).filter(|(_, runs)| **runs) {
                tokens.push(row.token);
            }
            *self.lens.entry(row.seq).or_default() += 1;
        }
        Ok(())
    }

    fn truncate(&mut self, seq: SeqId, len: usize) {
        if let Some(Replay { layers, rows }) = self.states.truncate(seq, len) {
            for (slabs, step) in self.slabs.iter_mut().zip(layers) {
                let Some(ReplayStep { from, inputs, to }) = step else { continue };
                let before = from.map_or_else(Vec::new, |from| slabs[from as usize].tokens.clone());
                let replayed = slabs[inputs as usize].replayed[..rows].to_vec();
                slabs[to as usize] = Numbers { tokens: [before, replayed.clone()].concat(), replayed };
            }
        }
        if len == 0 {
            self.texts.remove(&seq);
            self.lens.remove(&seq);
        } else {
            self.lens.insert(seq, len);
        }
    }

    fn check(&self, seq: SeqId) {
        let Some(text) = self.texts.get(&seq) else { return };
        let line = &self.states.lines[&seq];
        assert_eq!(line.last.len, self.lens[&seq], "sequence {seq}");
        for (layer, (slab, tokens)) in line.last.slabs.iter().zip(text).enumerate() {
            let held = slab.map_or(&[][..], |slab| &self.slabs[layer][slab as usize].tokens);
            assert_eq!(held, tokens, "sequence {seq}, layer {layer}");
        }
    }
}

#[test]
fn whatever_happens_a_sequence_has_the_states_of_its_own_tokens() {
    let mut rng = Rng::new(5);
    for _ in 0..60 {
        let mut device = Device::new(13);
        for step in 0..300u32 {
            let seq = below(&mut rng, 3) as SeqId;
            match below(&mut rng, 10) {
                0..=4 => {
                    let count = [1, 1, 2, 5, 70, 300][below(&mut rng, 6)];
                    let rows: Vec<Row> = (0..count).map(|i| row(step * 1000 + i, seq)).collect();
                    let before = device.lens.get(&seq).copied().unwrap_or(0);
                    if device.decode(&rows, 64, &[true; LAYERS]).is_err() {
                        let len = if device.states.restorable(seq, before) == before { before } else { 0 };
                        device.truncate(seq, len);
                    }
                }
                // Its draft, of which some layers are left out, is forgotten again.
                5 => {
                    device.states.fork(seq, 9);
                    if let Some(text) = device.texts.get(&seq).cloned() {
                        device.texts.insert(9, text);
                        device.lens.insert(9, device.lens[&seq]);
                    }
                    for i in 0..3 {
                        if device.decode(&[row(step * 1000 + i, 9)], 64, &[true, i == 1, false]).is_ok() {
                            device.check(9);
                        }
                    }
                    device.truncate(9, 0);
                }
                6 => {
                    let other = below(&mut rng, 3) as SeqId;
                    device.states.fork(seq, other);
                    if other != seq {
                        match device.texts.get(&seq).cloned() {
                            Some(text) => {
                                device.texts.insert(other, text);
                                device.lens.insert(other, device.lens[&seq]);
                            }
                            None => {
                                device.texts.remove(&other);
                                device.lens.remove(&other);
                            }
                        }
                    }
                }
                7 => device.truncate(seq, 0),
                _ => {
                    let len = device.lens.get(&seq).copied().unwrap_or(0);
                    let wanted = below(&mut rng, len + 1);
                    let to = device.states.restorable(seq, wanted.max(len.saturating_sub(4)));
                    if let Some(text) = device.texts.get_mut(&seq) {
                        text.iter_mut().for_each(|tokens| tokens.truncate(to));
                    }
                    device.truncate(seq, to);
                }
            }
            (0..3).for_each(|seq| device.check(seq));
        }
        (0..10).for_each(|seq| device.truncate(seq, 0));
        for slabs in &device.states.layers {
            assert_eq!(slabs.free.len(), 13, "a slab is held by nobody");
        }
    }
}

/// Runs of a pass may go on at the same time.
#[test]
fn no_run_of_a_pass_writes_to_a_slab_that_another_one_reads() {
    let mut device = Device::new(12);
    let rows = |seq| (0..70).map(move |token| row(token, seq));
    device.decode(&rows(1).collect::<Vec<_>>(), 70, &[true; LAYERS]).unwrap();
    device.states.fork(1, 2);
    // Of so many rows none is taken back, so that a slab of one's own would be written to where it is.
    let both: Vec<Row> = rows(1).chain(rows(2)).collect();
    device.states.begin(&both);
    let runs = device.states.advance(&both, &[true; LAYERS]).unwrap();
    for layer in 0..LAYERS {
        let [a, b] = [0, 1].map(|run| runs[run].steps[layer].unwrap());
        assert!(a.from == b.from && a.from.is_some(), "both go on from the same");
        assert!(Some(a.to) != b.from && Some(b.to) != a.from && a.to != b.to, "{a:?} {b:?}");
    }
    [1, 2].into_iter().for_each(|seq| device.truncate(seq, 0));
    assert!(device.states.layers.iter().all(|slabs| slabs.free.len() == 12));
}

#[test]
fn any_row_of_the_last_batch_and_some_earlier_states_can_be_come_back_to() {
    let mut device = Device::new(12);
    let rows = |count: usize| (0..count as u32).map(|token| row(token, 1)).collect::<Vec<_>>();
    device.decode(&rows(300), 64, &[true; LAYERS]).unwrap();
    device.decode(&rows(1), 64, &[true; LAYERS]).unwrap();
    device.decode(&rows(5), 64, &[true; LAYERS]).unwrap();
    let restorable = |len| device.states.restorable(1, len);
    assert_eq!([306, 303, 301].map(restorable), [306, 303, 301]);
    // After the batch that was far enough, a state was kept.
    assert_eq!([300, 299, 10].map(restorable), [300, 0, 0]);
    // Where nobody else holds the state before it, it is made into the one that is wanted, and is no more.
    let replay = device.states.truncate(1, 303).unwrap();
    assert!(
        replay.layers.iter().all(|step| step.is_some_and(|step| step.from == Some(step.to))),
        "{replay:?}"
    );
    assert_eq!([303, 302, 301, 300].map(|len| device.states.restorable(1, len)), [303, 300, 300, 300]);
    device.decode(&rows(5), 64, &[true; LAYERS]).unwrap();
    device.states.fork(1, 3);
    let replay = device.states.truncate(1, 305).unwrap();
    assert!(
        replay.layers.iter().all(|step| step.is_some_and(|step| step.from != Some(step.to))),
        "{replay:?}"
    );
    assert_eq!([(1, 304), (3, 307)].map(|(seq, len)| device.states.restorable(seq, len)), [304, 307]);
    assert_eq!(device.states.restorable(2, 7), 7, "an empty sequence has as many as it is asked for: none");
}

#[test]
fn a_state_that_comes_from_elsewhere_has_slabs_of_its_own() {
    let mut states = States::new(LAYERS, 3);
    let rows = |seq| [row(7, seq)];
    let runs = [true; LAYERS];
    let slabs = states.put(4, 20).unwrap();
    assert_eq!(
        (slabs.len(), states.last_of(4, 20), states.last_of(4, 19)),
        (LAYERS, Some(slabs.clone()), None)
    );
    // It goes on there, and can be come back to.
    states.begin(&rows(4));
    let run = states.advance(&rows(4), &runs).unwrap().remove(0);
    assert!(std::iter::zip(run.steps, &slabs).all(|(step, &slab)| step.unwrap().from == Some(slab)));
    assert_eq!((states.restorable(4, 20), states.restorable(4, 19)), (20, 0));
    states.put(5, 3).unwrap();
    assert!(states.put(6, 3).is_err(), "all three slabs are taken");
    assert_eq!(states.last_of(6, 3), None);
    states.truncate(5, 0);
    assert!(states.put(6, 3).is_ok());
    // A layer that no row has been through has no state to take along.
    states.truncate(6, 0);
    states.begin(&rows(8));
    states.advance(&rows(8), &[true, false, true]).unwrap();
    assert_eq!(states.last_of(8, 1), None);
}

#[test]
fn what_is_kept_for_later_goes_where_a_state_is_made_again() {
    let mut device = Device::new(7);
    let rows = |count: u32| (0..count).map(|token| row(token, 1)).collect::<Vec<_>>();
    for count in [256, 1, 256, 1, 8] {
        device.decode(&rows(count), 64, &[true; LAYERS]).unwrap();
    }
    assert!(!device.states.lines[&1].kept.is_empty());
    // Each of these forks takes a slab, more than are free.
    for fork in 2..7 {
        assert_eq!(device.states.restorable(1, 518), 518, "fork {fork}");
        device.states.fork(1, fork);
        device.texts.insert(fork, device.texts[&1].clone());
        device.lens.insert(fork, device.lens[&1]);
        device.texts.get_mut(&fork).unwrap().iter_mut().for_each(|tokens| tokens.truncate(518));
        device.truncate(fork, 518);
        (1..=fork).for_each(|seq| device.check(seq));
    }
    assert!(device.states.lines.values().all(|line| line.kept.is_empty()), "nothing else gave way");
    device.states.fork(1, 7);
    assert_eq!(device.states.restorable(7, 518), 514, "and there is no more");
}
