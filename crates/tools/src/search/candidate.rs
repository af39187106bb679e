//! A point of the search: for each sublayer whether the draft runs it, runs it coarse, or skips it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{RunLayers, mask::LayerBits, plan::Plan};

/// What is done with a sublayer. The later in order, the more is left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "char", try_from = "char")]
pub enum State {
    /// It runs in full.
    Run,
    /// It runs from the high bits of its weights.
    Coarse,
    /// An MLP takes so many experts, at most [`State::MOST_EXPERTS`]; attention has none and runs in full.
    Experts(u8),
    /// It is skipped.
    Skip,
}

impl State {
    /// A state is written as one letter.
    pub const MOST_EXPERTS: u8 = 9;

    fn letter(self) -> char {
        match self {
            State::Run => 'r',
            State::Coarse => 'c',
            State::Experts(n) => char::from(b'0' + n),
            State::Skip => 's',
        }
    }

    fn of_letter(letter: char) -> Result<Self, String> {
        match letter {
            'r' => Ok(State::Run),
            'c' => Ok(State::Coarse),
            's' => Ok(State::Skip),
            '1'..='9' => Ok(State::Experts(letter as u8 - b'0')),
            other => Err(format!("`{other}` is not a state of a sublayer: r, c, s, or 1 to 9 experts")),
        }
    }

    /// What becomes of a sublayer, in words.
    pub fn done(self) -> String {
        match self {
            State::Run => "runs".into(),
            State::Coarse => "coarse".into(),
            State::Experts(1) => "with one expert".into(),
            State::Experts(n) => format!("with {n} experts"),
            State::Skip => "left out".into(),
        }
    }

    /// Whether a sublayer can be in it by itself.
    pub fn is_for(self, sublayer: usize) -> bool {
        match self {
            State::Run | State::Coarse | State::Skip => true,
            State::Experts(_) => Candidate::layer_and_half(sublayer).1 == Sublayer::Mlp,
        }
    }

    fn left_out(self) -> (u8, std::cmp::Reverse<u8>) {
        let (rank, experts) = match self {
            State::Run => (0, 0),
            State::Coarse => (1, 0),
            State::Experts(n) => (2, n),
            State::Skip => (3, 0),
        };
        (rank, std::cmp::Reverse(experts))
    }
}

impl Ord for State {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.left_out().cmp(&other.left_out())
    }
}

impl PartialOrd for State {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl From<State> for char {
    fn from(state: State) -> Self {
        state.letter()
    }
}

impl TryFrom<char> for State {
    type Error = String;

    fn try_from(letter: char) -> Result<Self, String> {
        State::of_letter(letter)
    }
}

/// Which half of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sublayer {
    /// The attention.
    Attn,
    /// The MLP.
    Mlp,
}

impl Sublayer {
    /// The sublayer in a word.
    pub fn name(self) -> &'static str {
        match self {
            Sublayer::Attn => "attention",
            Sublayer::Mlp => "mlp",
        }
    }
}

/// Which sublayers a search may change: those that have something to run. In some models a layer is a mixer or an MLP alone.
#[derive(Clone, Debug)]
pub struct Movable(Vec<bool>);

impl Movable {
    /// Those of a model.
    pub fn of(plan: &Plan) -> Self {
        Movable(
            plan.layers.iter().flat_map(|layer| [!layer.attn.is_empty(), !layer.mlp.is_empty()]).collect(),
        )
    }

    /// All sublayers.
    #[cfg(test)]
    pub fn all(n_layer: usize) -> Self {
        Movable(vec![true; 2 * n_layer])
    }

    /// Whether a sublayer is one of them.
    pub fn has(&self, sublayer: usize) -> bool {
        self.0[sublayer]
    }

    /// Each in a state of its own; all others run.
    pub fn candidate(&self, mut state: impl FnMut(usize) -> State) -> Candidate {
        let state = |(i, &movable): (usize, &bool)| if movable { state(i) } else { State::Run };
        Candidate::from_states(self.0.iter().enumerate().map(state).collect())
    }

    /// Each with each of the states that it can be in.
    pub fn options(&self, states: &[State]) -> impl Iterator<Item = (usize, State)> {
        let of = move |sublayer| states.iter().map(move |&state| (sublayer, state));
        let movable = self.0.iter().enumerate().filter(|(_, movable)| **movable);
        movable.flat_map(move |(i, _)| of(i)).filter(|(sublayer, state)| state.is_for(*sublayer))
    }

    /// Whether none of them runs in a candidate.
    pub fn none_runs(&self, candidate: &Candidate) -> bool {
        std::iter::zip(&self.0, candidate.states()).all(|(movable, state)| !movable || *state == State::Skip)
    }
}

/// The attention of layer `l` is sublayer `2l`, its MLP is `2l + 1`. Written as one letter each: `r`, `c`, `s`, or the
/// number of experts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Candidate(Vec<State>);

impl Candidate {
    /// All sublayers in one state.
    pub fn all(n_layer: usize, state: State) -> Self {
        Self::from_states(vec![state; 2 * n_layer])
    }

    /// The first `layers` layers.
    pub fn exit(n_layer: usize, layers: usize) -> Self {
        Self::of_layers(n_layer, |layer| layer < layers)
    }

    /// Layers 0, 2, 4 and so on, or the others.
    pub fn every_second(n_layer: usize, first: usize) -> Self {
        Self::of_layers(n_layer, |layer| layer % 2 == first)
    }

    fn of_layers(n_layer: usize, runs: impl Fn(usize) -> bool) -> Self {
        let state = |sublayer: usize| if runs(sublayer / 2) { State::Run } else { State::Skip };
        Candidate((0..2 * n_layer).map(state).collect())
    }

    /// The same but for one sublayer.
    pub fn with(&self, sublayer: usize, state: State) -> Self {
        let mut changed = self.clone();
        changed.0[sublayer] = if state.is_for(sublayer) { state } else { State::Run };
        changed
    }

    /// States by sublayer: the attention and the MLP of the first layer, then of the next.
    pub fn from_states(states: Vec<State>) -> Self {
        let settled =
            |(sublayer, state): (usize, State)| if state.is_for(sublayer) { state } else { State::Run };
        Candidate(states.into_iter().enumerate().map(settled).collect())
    }

    /// What a mask does with each sublayer; an MLP with more experts than a letter can say runs. `None` if it is no mask but
    /// a list of steps.
    pub fn of_mask(mask: &RunLayers) -> Option<Self> {
        let mut all = vec![State::Skip; 2 * mask.n_layer()];
        for step in mask.steps() {
            let done = |runs: bool, coarse: bool| match (runs, coarse) {
                (false, _) => State::Skip,
                (true, true) => State::Coarse,
                (true, false) => State::Run,
            };
            all[2 * step.layer] = done(step.attn, step.coarse_attn);
            all[2 * step.layer + 1] = match (done(step.mlp, step.coarse_mlp), step.experts) {
                (State::Run, Some(n)) if n <= usize::from(State::MOST_EXPERTS) => State::Experts(n as u8),
                (done, _) => done,
            };
        }
        mask.is_mask().then(|| Self::from_states(all))
    }

    /// States by sublayer.
    pub fn states(&self) -> &[State] {
        &self.0
    }

    /// The number of sublayers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no sublayers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The layer of a sublayer, and which half it is.
    pub fn layer_and_half(sublayer: usize) -> (usize, Sublayer) {
        (sublayer / 2, if sublayer.is_multiple_of(2) { Sublayer::Attn } else { Sublayer::Mlp })
    }

    /// True if it does the full model's work.
    pub fn is_full(&self) -> bool {
        self.0.iter().all(|&s| s == State::Run)
    }

    /// Whether no sublayer runs.
    pub fn skips_all(&self) -> bool {
        self.0.iter().all(|&s| s == State::Skip)
    }

    /// The layers to run.
    pub fn mask(&self) -> RunLayers {
        let bits = self.0.chunks_exact(2).map(|layer| {
            let bits = |state, run: LayerBits, coarse: LayerBits| match state {
                State::Run => run,
                State::Coarse => run | coarse,
                State::Experts(n) => run | LayerBits::experts(usize::from(n)),
                State::Skip => LayerBits::NONE,
            };
            bits(layer[0], LayerBits::ATTN, LayerBits::COARSE_ATTN)
                | bits(layer[1], LayerBits::MLP, LayerBits::COARSE_MLP)
        });
        RunLayers::mask(bits.collect())
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|state| state.letter()).collect::<String>())
    }
}

impl From<Candidate> for String {
    fn from(candidate: Candidate) -> Self {
        candidate.to_string()
    }
}

impl TryFrom<String> for Candidate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let states = text.chars().map(State::of_letter).collect::<Result<Vec<_>, _>>()?;
        match states.len().is_multiple_of(2) {
            true => Ok(Candidate::from_states(states)),
            false => Err("an odd number of sublayers".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_masks() {
        let full = Candidate::all(3, State::Run);
        assert!(full.is_full() && full.mask().is_full());
        assert_eq!(full.with(2, State::Skip).mask(), RunLayers::all(3).skip_attn(1));
        assert_eq!(full.with(5, State::Coarse).mask(), RunLayers::all(3).coarse_mlp(2));
        assert_eq!(full.with(3, State::Experts(2)).mask(), RunLayers::all(3).experts(1, 2));
        assert_eq!(full.with(2, State::Experts(2)), full, "attention has no experts");
        assert_eq!(Candidate::all(2, State::Experts(1)).to_string(), "r1r1");
        let exit = RunLayers::all(3).skip_attn(2).skip_mlp(2);
        assert_eq!(Candidate::exit(3, 2).mask(), exit);
        assert_eq!(Candidate::every_second(3, 0).to_string(), "rrssrr");
        assert!(Candidate::exit(3, 0).skips_all());
    }

    #[test]
    fn masks_are_candidates_unless_they_repeat_layers() {
        for letters in ["rrrrrr", "rcs4cr", "ssrsr9"] {
            let candidate = Candidate::try_from(letters.to_string()).unwrap();
            assert_eq!(Candidate::of_mask(&candidate.mask()), Some(candidate));
        }
        let many = RunLayers::all(1).experts(0, 10);
        assert_eq!(Candidate::of_mask(&many).unwrap().to_string(), "rr");
        let repeated = RunLayers::from_steps(2, [(0, LayerBits::FULL), (0, LayerBits::FULL)]).unwrap();
        assert_eq!(Candidate::of_mask(&repeated), None);
    }

    #[test]
    fn states_are_in_the_order_of_what_they_leave_out() {
        let states = [State::Run, State::Coarse, State::Experts(4), State::Experts(1), State::Skip];
        assert!(states.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn the_written_form_reads_back() {
        let candidate = Candidate::all(2, State::Run).with(1, State::Coarse).with(2, State::Skip);
        let candidate = candidate.with(3, State::Experts(4));
        assert_eq!(candidate.to_string(), "rcs4");
        assert_eq!(Candidate::try_from("rcs4".to_string()), Ok(candidate));
        assert!(
            Candidate::try_from("rx".to_string()).is_err() && Candidate::try_from("r".to_string()).is_err()
        );
    }
}
