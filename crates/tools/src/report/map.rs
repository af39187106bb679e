//! A map of masks: for each layer what becomes of its attention, above, and of its MLP, below.

use super::{
    escape::{shortened, width},
    figure::{SIZE, WIDTH},
    svg::Svg,
};
use crate::RunLayers;

/// Of one sublayer's cell, with its gap.
const HEIGHT: f64 = 10.0;
const WIDEST: f64 = 24.0;
/// Of a mask: two cells and some air.
const ROW: f64 = 2.0 * HEIGHT + 8.0;
const HEAD: f64 = 58.0;
const FOOT: f64 = 48.0;
const LEFT: f64 = 64.0;
/// For the names.
const RIGHT: f64 = 170.0;
/// Numbers of layers below the cells, at most.
const NUMBERS: usize = 17;
/// A cell of that width has room for a digit.
const DIGIT: f64 = 9.0;

/// What becomes of a sublayer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Runs,
    Skipped,
    Coarse,
    Experts(usize),
    Repeated(usize),
}

impl Fate {
    fn text(self) -> String {
        match self {
            Fate::Runs => "runs".into(),
            Fate::Skipped => "left out".into(),
            Fate::Coarse => "coarse".into(),
            Fate::Experts(1) => "with one expert".into(),
            Fate::Experts(n) => format!("with {n} experts"),
            Fate::Repeated(n) => format!("runs {n} times"),
        }
    }

    /// What its cells look like, and the digit in them.
    fn look(self, attn: bool) -> (&'static str, Option<usize>) {
        match self {
            Fate::Runs => ("kept", None),
            Fate::Skipped if attn => ("skipped s0", None),
            Fate::Skipped => ("skipped s1", None),
            Fate::Coarse => ("coarse s7", None),
            Fate::Experts(n) => ("experts s2", Some(n)),
            Fate::Repeated(n) => ("repeated s3", Some(n)),
        }
    }
}

/// By layer, of the attention and of the MLP.
fn fates(mask: &RunLayers) -> Vec<[Fate; 2]> {
    let mut fates = vec![[Fate::Skipped; 2]; mask.n_layer()];
    for step in mask.steps() {
        let [attn, mlp] = &mut fates[step.layer];
        let more = |fate: &mut Fate, now: Fate| {
            *fate = match *fate {
                Fate::Skipped => now,
                Fate::Repeated(n) => Fate::Repeated(n + 1),
                _ => Fate::Repeated(2),
            }
        };
        if step.attn {
            more(attn, if step.coarse_attn { Fate::Coarse } else { Fate::Runs });
        }
        if step.mlp {
            let fewer = step.experts.map_or(Fate::Runs, Fate::Experts);
            more(mlp, if step.coarse_mlp { Fate::Coarse } else { fewer });
        }
    }
    fates
}

pub fn height(masks: usize) -> f64 {
    HEAD + ROW * masks as f64 + FOOT
}

/// From `top` on.
pub fn draw(out: &mut Svg, masks: &[(String, RunLayers)], top: f64) {
    let n_layer = masks.iter().map(|(_, mask)| mask.n_layer()).max().unwrap_or(1).max(1);
    let cell = ((WIDTH - LEFT - RIGHT) / n_layer as f64).min(WIDEST);
    out.text("title", (LEFT, top + 20.0), "What each mask leaves out");
    let all: Vec<Vec<[Fate; 2]>> = masks.iter().map(|(_, mask)| fates(mask)).collect();
    legend(out, &all, top + 40.0);
    for (row, ((name, _), fates)) in std::iter::zip(masks, &all).enumerate() {
        let y = top + HEAD + ROW * row as f64;
        for (layer, both) in fates.iter().enumerate() {
            for (half, fate) in both.iter().enumerate() {
                let (x, y) = (LEFT + cell * layer as f64, y + HEIGHT * half as f64);
                let part = ["attention", "MLP"][half];
                let title = format!("{name}: {part} of layer {layer} {}", fate.text());
                draw_cell(out, *fate, half == 0, (x, y, cell), &title);
            }
        }
        let (x, y) = (LEFT + cell * n_layer as f64 + 10.0, y + HEIGHT + 4.0);
        out.titled_text("", (x, y), &shortened(name, 23), name);
    }
    let y = top + HEAD + ROW * masks.len() as f64 + 8.0;
    for layer in (0..n_layer).step_by(n_layer.div_ceil(NUMBERS)) {
        let x = LEFT + cell * (layer as f64 + 0.5);
        out.text("middle", (x, y), &layer.to_string());
    }
    let x = LEFT + cell * n_layer as f64 / 2.0;
    out.text("middle", (x, y + 17.0), "layer");
}

fn draw_cell(out: &mut Svg, fate: Fate, attn: bool, (x, y, wide): (f64, f64, f64), title: &str) {
    let (class, digit) = fate.look(attn);
    // What runs coarse is there in part.
    let (lower, high) = if fate == Fate::Coarse { (0.45 * HEIGHT, 0.55 * HEIGHT) } else { (0.0, HEIGHT) };
    let gap = if wide > 4.0 { 1.0 } else { 0.3 };
    out.rect(&format!("cell {class}"), (x, y + lower), (wide - gap, high - 1.0), title);
    if let Some(n) = digit.filter(|_| wide >= DIGIT) {
        out.add(format_args!(
            "<text class=\"middle on\" x=\"{:.1}\" y=\"{:.1}\" style=\"fill:#fff;font-size:9px\">{n}</text>",
            x + (wide - gap) / 2.0,
            y + HEIGHT - 2.3
        ));
    }
}

/// Samples of what there is.
fn legend(out: &mut Svg, all: &[Vec<[Fate; 2]>], y: f64) {
    let has = |half: usize, like: fn(&Fate) -> bool| all.iter().flatten().any(|both| like(&both[half]));
    let either = |like: fn(&Fate) -> bool| has(0, like) || has(1, like);
    let skipped = |fate: &Fate| *fate == Fate::Skipped;
    let entries = [
        (true, Fate::Runs, true, "runs (attention above, MLP below)"),
        (has(0, skipped), Fate::Skipped, true, "attention left out"),
        (has(1, skipped), Fate::Skipped, false, "MLP left out"),
        (either(|fate| *fate == Fate::Coarse), Fate::Coarse, true, "coarse"),
        (either(|fate| matches!(fate, Fate::Experts(_))), Fate::Experts(2), false, "so many experts"),
        (either(|fate| matches!(fate, Fate::Repeated(_))), Fate::Repeated(2), false, "so many times"),
    ];
    let mut x = LEFT;
    for (_, fate, attn, name) in entries.into_iter().filter(|entry| entry.0) {
        let (class, digit) = fate.look(attn);
        let (lower, high) = if fate == Fate::Coarse { (4.5, 4.5) } else { (0.0, 9.0) };
        out.add(format_args!("<rect class=\"{class}\" style=\"stroke:none\" x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"{high}\"/>",
            y - 9.0 + lower
        ));
        if digit.is_some() {
            out.add(format_args!(
                "<text class=\"middle\" x=\"{:.1}\" y=\"{:.1}\" style=\"fill:#fff;font-size:9px\">n</text>",
                x + 7.0,
                y - 2.0
            ));
        }
        out.text("small", (x + 18.0, y), name);
        x += 18.0 + width(name, SIZE - 1.0) + 14.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::LayerBits;

    #[test]
    fn every_kind_of_work_has_a_cell_of_its_own() {
        let mask = RunLayers::all(4).skip_attn(0).coarse_mlp(1).experts(2, 3);
        use Fate::*;
        assert_eq!(fates(&mask), [[Skipped, Runs], [Runs, Coarse], [Runs, Experts(3)], [Runs, Runs]]);
        let steps = [0, 1, 1, 1, 0].map(|layer| (layer, LayerBits::FULL));
        let twice = RunLayers::from_steps(3, steps).unwrap();
        assert_eq!(fates(&twice), [[Repeated(2); 2], [Repeated(3); 2], [Skipped; 2]]);
        let mut out = Svg::default();
        draw(&mut out, &[("a<b".into(), mask), ("b".into(), twice)], 0.0);
        let count = |what: &str| out.elements.matches(what).count();
        assert_eq!(count("<rect class=\"cell "), 2 * 4 + 2 * 3);
        let kinds = ["kept", "skipped s0", "skipped s1", "coarse s7", "experts s2", "repeated s3"];
        assert_eq!(kinds.map(|kind| count(&format!("<rect class=\"cell {kind}\""))), [5, 2, 1, 1, 1, 4]);
        assert!(
            out.elements.contains("<title>a&lt;b: MLP of layer 2 with 3 experts</title>"),
            "{}",
            out.elements
        );
    }
}
