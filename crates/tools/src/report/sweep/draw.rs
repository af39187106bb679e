//! The pictures of sweeps: one panel for each thing that was measured, over layers or over what a pass costs.

use std::collections::HashMap;

use super::{
    forest, pairs,
    run::{Label, Row, Run},
};
use crate::{
    RunLayers,
    report::{
        figure::{Figure, WIDTH, color},
        frame::{Frame, Label as Name, Point, radius},
        labels::Taken,
        map,
        scale::Scale,
        svg::Svg,
    },
};

pub const LEFT: f64 = 64.0;
/// For names beside a plot.
const RIGHT: f64 = 150.0;
const HEAD: f64 = 50.0;
const PLOT: f64 = 170.0;
const FOOT: f64 = 48.0;
/// Letters of a name beside a plot.
const CHARS: usize = 20;
/// Between marks of several runs at one number.
const ASIDE: f64 = 4.0;

/// What goes across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// What tells the masks of a sweep apart: a layer, a number, a name.
    Label,
    /// The bytes that a pass reads.
    Cost,
    /// The time of a draft step.
    Step,
}

impl Across {
    pub fn column(self) -> Option<&'static str> {
        match self {
            Across::Label => None,
            Across::Cost => Some("cost"),
            Across::Step => Some("step"),
        }
    }
}

/// Something that was measured of each mask, or two things that are held against each other.
pub struct Quantity {
    pub columns: &'static [(&'static str, &'static str)],
    pub title: &'static str,
    /// What is counted, in a narrow place.
    pub unit: &'static str,
    pub about: &'static str,
    /// What the full model has.
    pub reference: Option<(f64, &'static str)>,
}

const PERPLEXITY: Quantity = Quantity {
    columns: &[("delta_ppl", "Δ perplexity")],
    title: "Perplexity",
    unit: "difference from the full model",
    about: "difference from the full model; bars: one standard error",
    reference: Some((0.0, "full model")),
};
const AGREEMENT: Quantity = Quantity {
    columns: &[("agreement", "agreement")],
    title: "Agreement",
    unit: "share of positions",
    about: "share of positions with the full model's first choice; bars: one standard error",
    reference: None,
};
const ACCEPTANCE: Quantity = Quantity {
    columns: &[("acceptance", "acceptance")],
    title: "Acceptance",
    unit: "share of drafts",
    about: "share of drafts whose first token would be accepted; bars: one standard error",
    reference: None,
};
const BOTH: Quantity = Quantity {
    columns: &[("agreement", "agreement"), ("acceptance", "acceptance")],
    title: "Agreement and acceptance",
    unit: "share of positions",
    about: "share of positions; bars: one standard error",
    reference: None,
};
const SPEED: Quantity = Quantity {
    columns: &[("speedup", "predicted speed")],
    title: "Predicted speed",
    unit: "times plain decoding",
    about: "times plain decoding, with drafts of the best length",
    reference: Some((1.0, "plain decoding")),
};
const MEASURED: Quantity = Quantity {
    columns: &[("measured", "measured speed")],
    title: "Measured speed",
    unit: "times plain decoding",
    about: "times plain decoding",
    reference: Some((1.0, "plain decoding")),
};

/// What any of the runs knows. Of a run alone, shares that are hardly ever the same go into one panel.
pub fn quantities(runs: &[Run]) -> Vec<&'static Quantity> {
    let known = |quantity: &&Quantity| runs.iter().any(|run| run.has(quantity.columns[0].0));
    let shares: &[&'static Quantity] = match runs {
        [one] if one.has("acceptance") => match repeats_itself(one) {
            true => &[&AGREEMENT],
            false => &[&BOTH],
        },
        _ if runs.iter().all(repeats_itself) => &[&AGREEMENT],
        _ => &[&AGREEMENT, &ACCEPTANCE],
    };
    let all = [&[&PERPLEXITY][..], shares, &[&SPEED, &MEASURED]].concat();
    all.into_iter().filter(known).collect()
}

/// An exit sees the same keys and values alone and in a draft, so both its shares are the same.
fn repeats_itself(run: &Run) -> bool {
    run.rows.iter().all(|row| match (run.value(row, "agreement"), run.value(row, "acceptance")) {
        (Some(agreement), Some(acceptance)) => (agreement - acceptance).abs() < 1e-9,
        _ => true,
    })
}

/// All that is to be seen of runs over the same thing; `masks` are those of a run alone, if they are at hand.
pub fn figure(runs: &[Run], across: Across, masks: &[(String, RunLayers)]) -> Figure {
    let mut figure = Figure::default();
    let is = |like: fn(&Label) -> bool| runs.iter().flat_map(|run| &run.rows).any(|row| like(&row.label));
    if is(|label| matches!(label, Label::Pair(..))) && across == Across::Label {
        pairs::draw(&mut figure, runs);
    } else if is(|label| matches!(label, Label::Name(_))) && across == Across::Label {
        forest::draw(&mut figure, runs);
        if !masks.is_empty() {
            figure.panel(map::height(masks.len()), |out, top| map::draw(out, masks, top));
        }
    } else {
        for quantity in quantities(runs) {
            figure.panel(HEAD + PLOT + FOOT, |out, top| panel(out, top, runs, quantity, across));
        }
    }
    figure
}

/// What is said of a mark where the pointer is.
pub fn told(run: &Run, row: &Row, alone: bool) -> String {
    let name = if alone { String::new() } else { format!("{}, ", run.name) };
    let mut out = format!("{name}{} {}", of_label(&run.over), row.label.text());
    for (column, value) in std::iter::zip(&run.columns, &row.values) {
        if value.is_finite() {
            out += &format!("; {column} {}", rounded(*value));
        }
    }
    if !row.layers.is_empty() {
        out += &format!("; {}", row.layers);
    }
    out
}

pub fn rounded(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// One mask of a sweep, before its label.
fn of_label(over: &str) -> &str {
    match over {
        "attn" => "attention of layer",
        "mlp" => "MLP of layer",
        "coarse" => "coarse layer",
        "pair" => "",
        other => other,
    }
}

fn axis_label(over: &str, across: Across) -> &str {
    match (across, over) {
        (Across::Cost, _) => "cost: bytes that a pass reads, of the full model's",
        (Across::Step, _) => "time of a draft step, of a plain step's",
        (_, "exit") => "layers that run, from the first on",
        (_, "attn") => "layer whose attention is left out",
        (_, "mlp") => "layer whose MLP is left out",
        (_, "layer") => "layer that is left out or changed",
        (_, "coarse") => "layer that runs coarse",
        (_, "experts") => "experts that a token goes through in each layer",
        (_, other) => other,
    }
}

/// Where a mark stands on the x axis; nothing where its cost is not known.
fn x_of(run: &Run, row: &Row, across: Across) -> Option<f64> {
    match (across.column(), &row.label) {
        (Some(column), _) => run.value(row, column),
        (None, Label::Number(n)) => Some(*n),
        (None, _) => None,
    }
}

fn panel(out: &mut Svg, top: f64, runs: &[Run], quantity: &Quantity, across: Across) {
    let alone = runs.len() == 1;
    let rows = || runs.iter().flat_map(|run| run.rows.iter().map(move |row| (run, row)));
    let heights = rows().flat_map(|(run, row)| quantity.columns.iter().filter_map(|c| run.known(row, c.0)));
    let ends = heights.flat_map(|known| match known.ends() {
        Some((low, high)) => [low, high],
        None => [known.value; 2],
    });
    let y = Scale::around_all_sizes(ends.chain(quantity.reference.map(|(at, _)| at)));
    let xs: Vec<f64> = rows().filter_map(|(run, row)| x_of(run, row, across)).collect();
    let x = match across {
        Across::Label => {
            let of = |pick: fn(f64, f64) -> f64| xs.iter().copied().reduce(pick).unwrap_or(0.0);
            Scale::linear(of(f64::min) - 0.6, of(f64::max) + 0.6)
        }
        Across::Cost | Across::Step => Scale::around(xs.iter().copied()),
    };
    let (width, top) = (WIDTH - LEFT - RIGHT, top + HEAD);
    let n_series = runs.len() * quantity.columns.len();
    let apart = match across {
        Across::Label => width / (x.ends().1 - x.ends().0),
        Across::Cost | Across::Step => width,
    };
    let frame = Frame { left: LEFT, top, width, height: PLOT, x, y, radius: radius(apart) };
    let about = match y.bend() {
        Some(bend) => format!("{}; axis even up to ±{}, then by powers", quantity.about, rounded_bend(bend)),
        None => quantity.about.into(),
    };
    let label = (axis_label(&runs[0].over, across), across == Across::Label);
    frame.axes(out, quantity.title, label, &about);
    let mut names: Vec<(String, String, (f64, f64))> = Vec::new();
    // Marks stand side by side where all runs have one, as far as there is room.
    let step = match across {
        Across::Label => ASIDE.min(0.7 * apart / n_series as f64),
        Across::Cost | Across::Step => 0.0,
    };
    for (s, (run, (column, name))) in
        runs.iter().flat_map(|run| quantity.columns.iter().map(move |column| (run, column))).enumerate()
    {
        let class = color(s);
        let mut marks: Vec<_> = (run.rows.iter())
            .filter_map(|row| Some((x_of(run, row, across)?, run.known(row, column)?, row)))
            .collect();
        marks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let aside = step * (s as f64 - (n_series - 1) as f64 / 2.0);
        if across == Across::Label || !matches!(run.rows[0].label, Label::Name(_)) {
            let points = marks.iter().map(|(x, known, _)| (*x, known.value));
            frame.line(out, &format!("{class} line"), aside, points);
        }
        for (x, known, row) in &marks {
            let title = told(run, row, alone);
            let point =
                Point { at: (*x, known.value), error: known.ends(), lying: false, aside, title: &title };
            frame.point(out, &class, &point, s % quantity.columns.len() == 1);
        }
        if let Some((x, known, _)) = marks.last() {
            let name = if alone { name.to_string() } else { run.name.clone() };
            names.push((class, name, (*x, known.value)));
        }
    }
    if across != Across::Label {
        name_marks(out, &frame, runs, quantity, across);
    }
    let reference = quantity.reference.map(|(at, name)| ("small", name, (x.ends().1, at)));
    if let Some((at, _)) = quantity.reference {
        frame.reference(out, at);
    }
    // A line alone is what the panel says.
    names.retain(|_| n_series > 1);
    let labels: Vec<Name> = (names.iter().map(|(class, name, at)| Name { class, name, at: *at }))
        .chain(reference.map(|(class, name, at)| Name { class, name, at }))
        .collect();
    frame.labels(out, &labels, CHARS);
}

/// Which mask is which, where that is not written along the edge.
fn name_marks(out: &mut Svg, frame: &Frame, runs: &[Run], quantity: &Quantity, across: Across) {
    let column = quantity.columns[0].0;
    let mut names = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        for row in &run.rows {
            if let (Some(x), Some(y)) = (x_of(run, row, across), run.value(row, column)) {
                let text = match &row.label {
                    Label::Pair(attn, mlp) => format!("{attn}+{mlp}"),
                    other => other.text(),
                };
                names.push((color(i * quantity.columns.len()), text, (x, y)));
            }
        }
    }
    let labels: Vec<Name> = names.iter().map(|(class, name, at)| Name { class, name, at: *at }).collect();
    // Who finds no room is told where the pointer is.
    frame.names(out, &labels, CHARS, Taken::default());
}

pub fn rounded_bend(bend: f64) -> String {
    if bend >= 1e-4 { rounded(bend) } else { format!("{bend:e}") }
}

/// Names of runs with a mark of each.
pub fn key(out: &mut Svg, runs: &[Run], top: f64) {
    let mut x = LEFT;
    for (i, run) in runs.iter().enumerate() {
        let name = crate::report::escape::shortened(&run.name, CHARS);
        let class = color(i);
        out.circle(&format!("{class} dot"), (x + 4.0, top + 16.0), 4.0);
        out.text(&format!("name {class}"), (x + 13.0, top + 20.0), &name);
        x += 13.0 + crate::report::escape::width(&name, 12.0) + 18.0;
    }
}

/// Each label once, in the order in which they come.
pub fn labels(runs: &[Run]) -> Vec<String> {
    let mut known = HashMap::new();
    for row in runs.iter().flat_map(|run| &run.rows) {
        let next = known.len();
        known.entry(row.label.text()).or_insert(next);
    }
    let mut all: Vec<(String, usize)> = known.into_iter().collect();
    all.sort_by_key(|(_, at)| *at);
    all.into_iter().map(|(label, _)| label).collect()
}
