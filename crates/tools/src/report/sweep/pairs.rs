//! Pairs of an attention and an MLP, as a map for each thing that was measured.

use super::{
    draw::{quantities, rounded_bend, told},
    run::{Label, Run},
};
use crate::report::{
    figure::Figure,
    heat::{Cell, Heat},
    scale::Scale,
};

/// Of a difference, in standard errors, that is told apart from none.
const SURE: f64 = 2.0;

pub fn draw(figure: &mut Figure, runs: &[Run]) {
    let pairs = || {
        runs.iter().flat_map(|run| &run.rows).filter_map(|row| match row.label {
            Label::Pair(attn, mlp) => Some((attn, mlp)),
            _ => None,
        })
    };
    let mut attns: Vec<usize> = pairs().map(|pair| pair.0).collect();
    let mut mlps: Vec<usize> = pairs().map(|pair| pair.1).collect();
    for layers in [&mut attns, &mut mlps] {
        layers.sort_unstable();
        layers.dedup();
    }
    let names = |layers: &[usize]| layers.iter().map(usize::to_string).collect::<Vec<_>>();
    let (down, across) = (names(&attns), names(&mlps));
    for quantity in quantities(runs) {
        for (column, name) in quantity.columns {
            let colors = Scale::around_all_sizes(
                runs.iter().flat_map(|run| run.rows.iter().filter_map(|row| run.value(row, column))),
            );
            for run in runs {
                let cells: Vec<Cell> = (run.rows.iter())
                    .filter_map(|row| {
                        let Label::Pair(attn, mlp) = row.label else { return None };
                        let at = (mlps.binary_search(&mlp).ok()?, attns.binary_search(&attn).ok()?);
                        let known = run.known(row, column);
                        let unsure = *column == "delta_ppl"
                            && known
                                .is_some_and(|k| k.error.is_some_and(|error| k.value.abs() <= SURE * error));
                        let number = known.map_or(f64::NAN, |known| known.value);
                        Some(Cell { at, number, unsure, title: told(run, row, runs.len() == 1) })
                    })
                    .collect();
                let title = match runs {
                    [_] => capital(name),
                    _ => format!("{}: {}", capital(name), run.name),
                };
                let mut about = match *column {
                    "delta_ppl" => "difference from the full model".to_string(),
                    "agreement" => "share of positions with the full model's first choice".into(),
                    "acceptance" => "share of drafts whose first token would be accepted".into(),
                    _ => quantity.about.into(),
                };
                if cells.iter().any(|cell| cell.unsure) {
                    about += "; dots: within two standard errors of 0";
                }
                if let Some(bend) = colors.bend() {
                    about += &format!("; colours even up to ±{}, then by powers", rounded_bend(bend));
                }
                let heat = Heat {
                    title: &title,
                    about: &about,
                    across: (&across, "layer whose MLP is left out"),
                    down: (&down, "layer whose attention is left out"),
                    cells: &cells,
                    colors,
                };
                figure.panel(heat.height(), |out, top| heat.draw(out, top));
            }
        }
    }
}

fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
}
