//! Heads that could draft for a model: how large they are, and what speed they would give.

use super::{
    Acceptance, Apart, Basis, Budgets, Place, Placement, Unit, UnitSize, acceptance,
    rounds::{HeadSteps, Prediction},
};
use crate::{Result, plan::Dims};

/// Bytes of a weight in 8 bits, with its block's scale.
const WEIGHT: f64 = 34.0 / 32.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// Made for the model on the user's machine: a map and a small MLP.
    Fitted,
    /// A layer and a head of its own, trained by someone.
    Eagle,
}

impl HeadKind {
    pub const ALL: [HeadKind; 2] = [HeadKind::Fitted, HeadKind::Eagle];

    pub fn name(self) -> &'static str {
        match self {
            HeadKind::Fitted => "a fitted head",
            HeadKind::Eagle => "an EAGLE-3 head",
        }
    }

    /// Its key in JSON.
    pub fn key(self) -> &'static str {
        match self {
            HeadKind::Fitted => "fitted",
            HeadKind::Eagle => "eagle3",
        }
    }

    /// How often its tokens are accepted, as far as known.
    pub fn acceptance(self) -> Acceptance {
        match self {
            HeadKind::Fitted => acceptance::of_fitted_head(),
            HeadKind::Eagle => acceptance::of_eagle(),
        }
    }

    /// Bytes of such a head for a model with these parts. A step reads all of them.
    pub fn bytes(self, dims: Dims, parts: &[UnitSize]) -> u64 {
        let dim = dims.dim as f64;
        let of_vocabulary = |rows: usize| rows.min(dims.n_vocab) as f64 * dim;
        let weights = match self {
            // Four taps and the final state, the embedding, its own output; gate and up of two inputs each, and down.
            HeadKind::Fitted => (5.0 + 1.0 + 1.0 + 2.0 * 2.0 + 1.0) * dim * dim + of_vocabulary(4096),
            // Three taps, a layer like the model's whose attention also reads the embedding, and a short vocabulary.
            HeadKind::Eagle => {
                let layer = parts.iter().filter_map(|part| part.unit.layer()).max();
                let of_layer = |part: &&UnitSize| part.unit.layer() == layer;
                let products: u64 = parts.iter().filter(of_layer).map(|part| part.work.products).sum();
                (3.0 + 1.0) * dim * dim + products as f64 + of_vocabulary(32_000)
            }
        };
        (weights * WEIGHT) as u64
    }
}

/// What a head is expected to give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadForecast {
    pub kind: HeadKind,
    pub acceptance: Acceptance,
    /// The head drafts alone, and whole layers are placed first.
    pub alone: Prediction,
    /// High planes draft, and the head guesses for them.
    pub in_steps: Option<Prediction>,
}

/// The forecast of each head. Its bytes are taken of the fastest memory, before anything else is placed there.
pub fn forecasts(
    (dims, parts): (Dims, &[UnitSize]),
    budgets: Budgets,
    basis: &Basis,
    whole_layers: impl Fn(Budgets) -> Result<Placement>,
    apart: impl Fn(Budgets) -> Option<Apart>,
) -> Vec<HeadForecast> {
    let of = |kind: HeadKind| {
        let bytes = kind.bytes(dims, parts);
        let with_head = Budgets { scratch: budgets.scratch + bytes, ..budgets };
        let whole = whole_layers(with_head).ok()?;
        let on_gpu = whole.uses(Place::Vram);
        let speed = if on_gpu { basis.vram } else { basis.ram };
        let head = HeadSteps { seconds: bytes as f64 / speed.value, acceptance: kind.acceptance() };
        let in_steps = apart(with_head).map(|apart| {
            let basis = Basis { acceptance: apart.acceptance, ..*basis };
            apart.placement.predict_in_steps(&basis, head)
        });
        Some(HeadForecast {
            kind,
            acceptance: head.acceptance,
            alone: whole.predict_by_head(basis, head),
            in_steps,
        })
    };
    // Heads are for models that give logits.
    let has_head = parts.iter().any(|part| part.unit == Unit::Head);
    HeadKind::ALL.into_iter().filter(|_| has_head).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::model, *};

    /// By hand, for a 70B of 8192 numbers: 12 squares and 4096 rows; four squares, a layer of 856 million weights and 32,000 rows.
    #[test]
    fn heads_are_as_large_as_their_matrices() {
        let dims = Dims { n_layer: 2, n_vocab: 128_256, dim: 8192 };
        let work = |unit| match unit {
            Unit::Attn(_) => 151_000_000,
            Unit::Mlp(_) => 705_000_000,
            _ => 0,
        };
        let sized = |mut part: UnitSize| {
            part.work.products = work(part.unit);
            part
        };
        let parts: Vec<_> = model(2, None).into_iter().map(sized).collect();
        let square = 8192.0 * 8192.0;
        let fitted = (12.0 * square + 4096.0 * 8192.0) * 1.0625;
        let eagle = (4.0 * square + 856e6 + 32_000.0 * 8192.0) * 1.0625;
        assert_eq!(HeadKind::Fitted.bytes(dims, &parts), fitted as u64);
        assert_eq!(HeadKind::Eagle.bytes(dims, &parts), eagle as u64);
    }
}
