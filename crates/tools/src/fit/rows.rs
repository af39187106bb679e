//! Rows for the chain, from texts that are kept.

use super::{chain::Rows, noise::Noise, store::Store};
use crate::{
    Result,
    head::{Tables, mean_square, over_rms},
};

/// How strong the noise on the taps is, of their own size: a head that leans on single numbers of them knows its texts by
/// heart.
const NOISE: f32 = 0.12;
/// Noise comes from a table, since it is needed by the million.
const TABLE: usize = 1 << 16;

/// Noise for the taps of training.
pub struct TapNoise {
    table: Vec<f32>,
    random: Noise,
}

impl TapNoise {
    pub fn new(seed: u64) -> Self {
        let mut random = Noise::new(seed);
        TapNoise { table: (0..TABLE).map(|_| NOISE * random.normal()).collect(), random }
    }

    fn add_to(&mut self, row: &mut [f32]) {
        let size = mean_square(row).sqrt();
        for part in row.chunks_mut(TABLE / 2) {
            let from = self.random.below(TABLE - part.len());
            part.iter_mut().zip(&self.table[from..]).for_each(|(x, noise)| *x += size * noise);
        }
    }
}

impl Rows {
    /// Of some texts; with noise if there is some.
    pub fn of(
        store: &Store,
        tables: &Tables,
        texts: &[usize],
        mut noise: Option<&mut TapNoise>,
    ) -> Result<Self> {
        let dim = tables.dim();
        let mut rows = Rows::default();
        for &index in texts {
            let text = &store.texts()[index];
            let states = store.states(index)?;
            let width = states.len() / text.tokens.len().max(1);
            let all: Vec<&[f32]> = states.chunks_exact(width).collect();
            for place in 0..text.rows() {
                let begin = rows.inputs.len();
                rows.inputs.extend_from_slice(all[place]);
                let inputs = &mut rows.inputs[begin..];
                over_rms(&all[place][width - dim..], &mut inputs[width - dim..]);
                if let Some(noise) = &mut noise {
                    inputs.chunks_exact_mut(dim).for_each(|tap| noise.add_to(tap));
                }
                let begin = rows.embeddings.len();
                rows.embeddings.resize(begin + dim, 0.0);
                tables.embedding(text.tokens[place], &mut rows.embeddings[begin..]);
                rows.states.extend_from_slice(&all[place + 1][width - dim..]);
                rows.next.push(text.tokens[place + 1]);
                rows.places.push(place);
            }
        }
        Ok(rows)
    }
}
