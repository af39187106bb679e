//! A map of the masks: for each layer what is left out of it, attention above and MLP below.

use std::fmt::{self, Write};

use super::{frame::Escaped, shown::Shown};
use crate::search::candidate::{Candidate, State};

/// Of one sublayer's cell, with its gap.
const HEIGHT: f64 = 9.0;
const WIDEST: f64 = 24.0;
/// Of a mask: two cells and some air.
const ROW: f64 = 2.0 * HEIGHT + 8.0;
const HEAD: f64 = 46.0;
const FOOT: f64 = 40.0;
/// Numbers of layers below the cells, at most.
const NUMBERS: usize = 17;

pub fn height(masks: &[Shown]) -> f64 {
    HEAD + ROW * masks.len() as f64 + FOOT
}

/// From `top` on, the cells between `left` and `left + width`.
pub fn draw(out: &mut String, masks: &[Shown], (left, top): (f64, f64), width: f64) -> fmt::Result {
    let n_layer = masks.iter().map(|m| m.member.candidate.len() / 2).max().unwrap_or(1);
    let cell = (width / n_layer as f64).min(WIDEST);
    writeln!(
        out,
        "<text class=\"title\" x=\"{left}\" y=\"{}\">What each mask leaves out</text>",
        top + 20.0
    )?;
    writeln!(out, "<text x=\"{left}\" y=\"{}\">attention above, MLP below</text>", top + 36.0)?;
    for (row, Shown { name, member, .. }) in masks.iter().enumerate() {
        let y = top + HEAD + ROW * row as f64;
        for (sublayer, state) in member.candidate.states().iter().enumerate() {
            let (layer, part) = Candidate::place(sublayer);
            let (x, y) = (left + cell * layer as f64, y + HEIGHT * (sublayer % 2) as f64);
            let class = match state {
                State::Run => "kept",
                State::Coarse | State::Experts(_) => "roughly",
                State::Skip => ["attn", "mlp"][sublayer % 2],
            };
            let done = state.done();
            writeln!(
                out,
                "<rect class=\"cell {class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{}\">\
                 <title>{}: {} of layer {layer} {done}</title></rect>",
                cell - 1.0,
                HEIGHT - 1.0,
                Escaped(name),
                part.name(),
            )?;
        }
        let (x, y) = (left + cell * n_layer as f64 + 10.0, y + HEIGHT + 4.0);
        writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", Escaped(name))?;
    }
    let y = top + HEAD + ROW * masks.len() as f64 + 8.0;
    for layer in (0..n_layer).step_by(n_layer.div_ceil(NUMBERS)) {
        let x = left + cell * (layer as f64 + 0.5);
        writeln!(out, "<text class=\"middle\" x=\"{x:.1}\" y=\"{y:.1}\">{layer}</text>")?;
    }
    Ok(())
}
