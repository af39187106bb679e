//! A point of the search: for each sublayer whether the draft runs it, runs it coarse, or skips it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{RunLayers, mask::LayerBits};

/// What is done with a sublayer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// It runs in full.
    Run,
    /// It runs from the high bits of its weights.
    Coarse,
    /// It is skipped.
    Skip,
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

/// The attention of layer `l` is sublayer `2l`, its MLP is `2l + 1`. Written as one letter each: `r`, `c`, `s`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Candidate(Vec<State>);

impl Candidate {
    /// All sublayers in one state.
    pub fn all(n_layer: usize, state: State) -> Self {
        Candidate(vec![state; 2 * n_layer])
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
        changed.0[sublayer] = state;
        changed
    }

    /// States by sublayer: the attention and the MLP of the first layer, then of the next.
    pub fn from_states(states: Vec<State>) -> Self {
        Candidate(states)
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
    pub fn place(sublayer: usize) -> (usize, Sublayer) {
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
        let letter = |state: &State| match state {
            State::Run => 'r',
            State::Coarse => 'c',
            State::Skip => 's',
        };
        f.write_str(&self.0.iter().map(letter).collect::<String>())
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
        let state = |letter| match letter {
            'r' => Ok(State::Run),
            'c' => Ok(State::Coarse),
            's' => Ok(State::Skip),
            other => Err(format!("`{other}` is not a state of a sublayer: r, c or s")),
        };
        let states = text.chars().map(state).collect::<Result<Vec<_>, _>>()?;
        match states.len().is_multiple_of(2) {
            true => Ok(Candidate(states)),
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
        let exit = RunLayers::all(3).skip_attn(2).skip_mlp(2);
        assert_eq!(Candidate::exit(3, 2).mask(), exit);
        assert_eq!(Candidate::every_second(3, 0).to_string(), "rrssrr");
        assert!(Candidate::exit(3, 0).skips_all());
    }

    #[test]
    fn the_written_form_reads_back() {
        let candidate = Candidate::all(2, State::Run).with(1, State::Coarse).with(2, State::Skip);
        assert_eq!(candidate.to_string(), "rcsr");
        assert_eq!(Candidate::try_from("rcsr".to_string()), Ok(candidate));
        assert!(
            Candidate::try_from("rx".to_string()).is_err() && Candidate::try_from("r".to_string()).is_err()
        );
    }
}
