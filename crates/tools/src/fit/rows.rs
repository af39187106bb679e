//! Rows for the chain, from texts that are kept.

use super::{chain::Rows, noise::Noise, store::Store};
use crate::{
    Result,
    head::{Tables, over_rms},
};

/// How strong the noise on each number of the taps is, of the number's own spread: a head that leans on single numbers knows its
/// texts by heart. A few numbers are so large that noise of a tap's whole size would drown all others.
const NOISE: f32 = 0.12;
/// Rows that say how far numbers spread.
const SPREAD_ROWS: usize = 2048;
/// Noise comes from a table, since it is needed by the million.
const TABLE: usize = 1 << 16;

/// Noise for the taps of training.
pub struct TapNoise {
    table: Vec<f32>,
    /// Of each number of a row.
    spreads: Vec<f32>,
    random: Noise,
}

impl TapNoise {
    /// For rows like those of these texts.
    pub fn new(seed: u64, store: &Store, tables: &Tables, texts: &[usize]) -> Result<Self> {
        let rows = Rows::of(store, tables, store.first_of(texts, SPREAD_ROWS), None)?;
        let mut random = Noise::new(seed);
        Ok(TapNoise {
            table: (0..TABLE).map(|_| NOISE * random.normal()).collect(),
            spreads: spreads(&rows.inputs, rows.len()),
            random,
        })
    }

    fn add_to(&mut self, row: &mut [f32]) {
        for (part, spreads) in row.chunks_mut(TABLE / 2).zip(self.spreads.chunks(TABLE / 2)) {
            let from = self.random.below(TABLE - part.len());
            let noise = self.table[from..].iter().zip(spreads);
            part.iter_mut().zip(noise).for_each(|(x, (noise, spread))| *x += spread * noise);
        }
    }
}

/// The standard deviation of each column.
fn spreads(numbers: &[f32], rows: usize) -> Vec<f32> {
    let columns = numbers.len() / rows.max(1);
    let mean_of = |of: &dyn Fn(f32, usize) -> f64| {
        let mut sums = vec![0.0; columns];
        for row in numbers.chunks_exact(columns.max(1)) {
            row.iter().enumerate().for_each(|(i, &x)| sums[i] += of(x, i));
        }
        sums.into_iter().map(|sum| sum / rows as f64).collect::<Vec<f64>>()
    };
    let means = mean_of(&|x, _| f64::from(x));
    mean_of(&|x, i| (f64::from(x) - means[i]).powi(2))
        .into_iter()
        .map(|square| square.sqrt() as f32)
        .collect()
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
                    noise.add_to(inputs);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// One number of a thousand times the others' size, and one that never changes.
    #[test]
    fn noise_is_of_each_numbers_own_spread() {
        let mut random = Noise::new(5);
        let rows: Vec<f32> =
            (0..4000).flat_map(|_| [1000.0 + 50.0 * random.normal(), random.normal(), 7.0]).collect();
        let found = spreads(&rows, 4000);
        assert!((found[0] - 50.0).abs() < 2.0 && (found[1] - 1.0).abs() < 0.04, "{found:?}");
        assert_eq!(found[2], 0.0);
        let table = (0..TABLE).map(|_| NOISE * random.normal()).collect();
        let mut noise = TapNoise { table, spreads: found, random };
        let mut noisy = rows.clone();
        noisy.chunks_exact_mut(3).for_each(|row| noise.add_to(row));
        let added: Vec<f32> = std::iter::zip(&noisy, &rows).map(|(noisy, x)| noisy - x).collect();
        let sizes = spreads(&added, 4000);
        assert!((sizes[0] / 50.0 - NOISE).abs() < 0.01 && (sizes[1] - NOISE).abs() < 0.01, "{sizes:?}");
        assert_eq!(sizes[2], 0.0);
    }
}
