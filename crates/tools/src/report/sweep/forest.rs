//! Masks with names: one below the other, what was measured of them side by side.

use super::{
    draw::{self, LEFT, Quantity, quantities, told},
    run::Run,
};
use crate::report::{
    escape::{shortened, width},
    figure::{Figure, SIZE, WIDTH, color},
    frame::{Frame, Point, radius},
    scale::Scale,
    svg::Svg,
};

const HEAD: f64 = 34.0;
const FOOT: f64 = 52.0;
const KEY: f64 = 30.0;
const CHARS: usize = 26;
const BETWEEN: f64 = 26.0;
/// Of a mask with one mark, and of each further mark.
const ROW: f64 = 20.0;
const MORE: f64 = 8.0;

pub fn draw(figure: &mut Figure, runs: &[Run]) {
    let labels = draw::labels(runs);
    let marks =
        runs.len() * quantities(runs).iter().map(|quantity| quantity.columns.len()).max().unwrap_or(1);
    let row = ROW + MORE * (marks - 1) as f64;
    let key = if runs.len() > 1 { KEY } else { 0.0 };
    let height = key + HEAD + row * labels.len() as f64 + FOOT;
    figure.panel(height, |out, top| {
        if runs.len() > 1 {
            draw::key(out, runs, top);
        }
        panels(out, runs, &labels, (top + key, row))
    });
}

fn panels(out: &mut Svg, runs: &[Run], labels: &[String], (top, row): (f64, f64)) {
    let names: Vec<String> = labels.iter().map(|label| shortened(label, CHARS)).collect();
    let widest = names.iter().map(|name| width(name, SIZE)).fold(0.0, f64::max);
    let left = (widest + 26.0).max(LEFT);
    let quantities = quantities(runs);
    let n = quantities.len().max(1) as f64;
    let wide = (WIDTH - 16.0 - left - BETWEEN * (n - 1.0)) / n;
    let (top, height) = (top + HEAD, row * labels.len() as f64);
    for (i, (label, name)) in std::iter::zip(labels, &names).enumerate() {
        out.titled_text("end", (left - 12.0, top + row * (i as f64 + 0.5) + 4.0), name, label);
    }
    for (i, quantity) in quantities.iter().enumerate() {
        let left = left + (wide + BETWEEN) * i as f64;
        panel(out, runs, labels, quantity, (left, top, wide, height));
    }
}

fn panel(
    out: &mut Svg,
    runs: &[Run],
    labels: &[String],
    quantity: &Quantity,
    (left, top, width, height): (f64, f64, f64, f64),
) {
    let known = runs.iter().flat_map(|run| {
        run.rows.iter().flat_map(move |row| quantity.columns.iter().filter_map(|c| run.known(row, c.0)))
    });
    let ends = known.flat_map(|known| known.ends().map_or([known.value; 2], |(low, high)| [low, high]));
    let x = Scale::around_all_sizes(ends.chain(quantity.reference.map(|(at, _)| at)));
    // Rows go down.
    let y = Scale::linear(0.5 - labels.len() as f64, 0.5);
    let frame = Frame { left, top, width, height, x, y, radius: radius(MORE) };
    let [(_, first), others @ ..] = quantity.columns else { return };
    let above = top - 14.0;
    match others {
        // Two kinds of marks, and the title is their key.
        [(_, second)] => out.add(format_args!("<text class=\"title\" x=\"{left:.1}\" y=\"{above:.1}\"><tspan class=\"name {}\">● {first}</tspan> \
             <tspan class=\"name {}\">○ {second}</tspan></text>",
            color(0),
            color(1),
        )),
        _ => {
            out.text("title", (left, above), quantity.title);
        }
    }
    for (tick, _) in x.ticks((width / 40.0) as usize) {
        let x = frame.at_x(tick);
        let bottom = frame.bottom();
        out.line("grid", (x, top), (x, bottom));
    }
    if let Some((at, _)) = quantity.reference {
        let (x, bottom) = (frame.at_x(at), frame.bottom());
        out.line("reference", (x, top), (x, bottom));
    }
    frame.x_axis(out, quantity.unit, false);
    let marks = (runs.len() * quantity.columns.len()) as f64;
    for (i, label) in labels.iter().enumerate() {
        for (r, run) in runs.iter().enumerate() {
            for row in run.rows.iter().filter(|row| row.label.text() == *label) {
                for (c, (column, _)) in quantity.columns.iter().enumerate() {
                    let Some(known) = run.known(row, column) else { continue };
                    let lower = ((r * quantity.columns.len() + c) as f64 + 0.5) / marks - 0.5;
                    let title = told(run, row, runs.len() == 1);
                    let at = (known.value, -(i as f64) - 0.7 * lower);
                    let point = Point { at, error: known.ends(), lying: true, aside: 0.0, title: &title };
                    frame.point(out, &color(r + c), &point, c == 1);
                }
            }
        }
    }
}
