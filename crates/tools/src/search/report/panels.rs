//! The pictures of a search: what each sublayer is worth, agreement against cost, speed by draft length, what the loop
//! measured, and what each mask leaves out.

use super::shown::Shown;
use crate::{
    report::{
        escape::{Escaped, shortened, width},
        figure::{Figure, SIZE, WIDTH, color},
        frame::{Frame, Label, Point, radius},
        labels::Taken,
        map,
        scale::Scale,
        svg::Svg,
    },
    search::{
        Ablation, SearchOutcome,
        candidate::{State, Sublayer},
        costs::PassCosts,
        speed,
    },
};

const LEFT: f64 = 64.0;
/// For names beside a plot.
const RIGHT: f64 = 190.0;
const CHARS: usize = 26;
const HEAD: f64 = 50.0;
const PLOT: f64 = 200.0;
const FOOT: f64 = 50.0;
/// Of a name beside a plot.
const LINE: f64 = 14.0;
/// Of a mask in the picture of speeds.
const ROW: f64 = 20.0;
/// Lines of the family in the picture of draft lengths; more could not be told apart.
const LINES: usize = 6;
const ATTN: usize = 0;
const MLP: usize = 1;
const FAMILY: usize = 2;
const BASELINE: usize = 3;

fn frame(top: f64, height: f64, x: Scale, y: Scale) -> Frame {
    Frame { left: LEFT, top: top + HEAD, width: WIDTH - LEFT - RIGHT, height, x, y, radius: radius(ROW) }
}

/// High enough for so many names beside it.
fn high(names: usize) -> f64 {
    PLOT.max(LINE * (names + 1) as f64)
}

pub fn sublayers(figure: &mut Figure, outcome: &SearchOutcome) {
    figure.panel(HEAD + PLOT + FOOT, |out, top| draw_sublayers(out, top, outcome));
}

fn draw_sublayers(out: &mut Svg, top: f64, outcome: &SearchOutcome) {
    let of = |state| outcome.ablations.iter().filter(move |a| a.state == state);
    let lost = |a: &Ablation| 100.0 * (1.0 - a.score.agreement());
    let error = |a: &Ablation| {
        let (share, n) = (a.score.agreement(), a.score.positions() as f64);
        100.0 * (share * (1.0 - share) / n).sqrt()
    };
    let n_layer = outcome.ablations.iter().map(|a| a.layer + 1).max().unwrap_or(1);
    let end = cut(of(State::Skip).map(|a| lost(a) + error(a)).collect());
    let frame = frame(top, PLOT, Scale::linear(-0.6, n_layer as f64 - 0.4), Scale::linear(0.0, 1.08 * end));
    let label = "positions whose first choice changes, in %; bars: one standard error";
    frame.axes(out, "What one sublayer is worth", ("layer", true), label);
    // A model may have many layers, or one.
    let wide = (frame.width / n_layer as f64 * 0.38).min(18.0);
    let left = |a: &Ablation| frame.at_x(a.layer as f64) - if a.part == Sublayer::Attn { wide } else { 0.0 };
    let tell = |a: &Ablation| {
        format!(
            "{} of layer {} {}: agreement {:.3}, overlap {:.3}, perplexity {:.3}, saves {:.3} of a step",
            a.part.name(),
            a.layer,
            a.state.done(),
            a.score.agreement(),
            a.score.overlap(),
            a.score.perplexity(),
            a.saved,
        )
    };
    for a in of(State::Skip) {
        let class = color(if a.part == Sublayer::Attn { ATTN } else { MLP });
        let (x, y) = (left(a), frame.at_y(lost(a).min(end)));
        out.rect(&format!("{class} bar"), (x, y), (wide - 0.5, frame.bottom() - y), &tell(a));
        let middle = x + wide / 2.0;
        if lost(a) > end {
            // A bar that is cut says how far it would go.
            let y = y - 4.0;
            out.text("middle small", (middle, y), &format!("↑{:.0}", lost(a)));
        } else {
            let (low, high) = (frame.at_y((lost(a) - error(a)).max(0.0)), frame.at_y(lost(a) + error(a)));
            out.line("axis error", (middle, low), (middle, high));
        }
    }
    let otherwise = || outcome.ablations.iter().filter(|a| a.state != State::Skip);
    for a in otherwise() {
        let (x, y) = (left(a), frame.at_y(lost(a).min(end)));
        out.add(format_args!("<line class=\"axis instead\" stroke-width=\"2\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"><title>{}</title></line>",
            x + wide,
            Escaped(&tell(a)),
        ));
    }
    let instead = match of(State::Coarse).next() {
        Some(_) if otherwise().all(|a| a.state == State::Coarse) => "coarse instead",
        Some(_) => "coarse, or fewer experts",
        None => "fewer experts instead",
    };
    let x = frame.right() + 12.0;
    for (i, name) in ["attention skipped", "MLP skipped"].into_iter().enumerate() {
        let (class, y) = (color([ATTN, MLP][i]), frame.top + 10.0 + 18.0 * i as f64);
        let above = y - 9.0;
        out.rect(&format!("{class} key"), (x, above), (12.0, 10.0), "");
        out.text("", (x + 18.0, y), name);
    }
    if otherwise().next().is_some() {
        let (y, end) = (frame.top + 46.0, x + 12.0);
        let middle = y - 4.0;
        out.add(format_args!("<line class=\"axis\" stroke-width=\"2\" x1=\"{x}\" x2=\"{end}\" y1=\"{middle}\" y2=\"{middle}\"/>"
        ));
        out.text("", (x + 18.0, y), instead);
    }
}

/// Where the scale ends. A sublayer that nothing goes without would flatten all the others, so its bar is cut.
fn cut(mut lost: Vec<f64>) -> f64 {
    lost.sort_by(f64::total_cmp);
    let most = lost.last().copied().unwrap_or(0.0);
    let usual = lost.get(lost.len() * 9 / 10).copied().unwrap_or(most);
    most.min(2.0 * usual).max(1.0)
}

pub fn costs(figure: &mut Figure, outcome: &SearchOutcome, masks: &[Shown]) {
    let height = high(masks.len() + 1);
    figure.panel(HEAD + height + FOOT, |out, top| draw_costs(out, (top, height), outcome, masks));
}

fn class_of(i: usize, mask: &Shown) -> String {
    match (i, mask.is_baseline) {
        (_, true) => color(BASELINE),
        (0, _) => color(MLP),
        _ => color(FAMILY),
    }
}

fn draw_costs(out: &mut Svg, (top, height): (f64, f64), outcome: &SearchOutcome, masks: &[Shown]) {
    let at = |mask: &Shown| (mask.member.proof.cost, mask.member.proof.agreement);
    let all = || outcome.cloud.iter().copied().chain(masks.iter().map(at));
    let around = |numbers: Vec<f64>| {
        let (low, high) = Scale::around(numbers).ends();
        Scale::linear(low.max(0.0), high)
    };
    let (x, y) = (around(all().map(|p| p.0).collect()), around(all().map(|p| p.1).chain([1.0]).collect()));
    let frame = frame(top, height, x, y);
    let label = "agreement with the full model; small circles: all that was judged; bars: one standard error";
    frame.axes(out, "Agreement against cost", ("cost of a draft step, of a plain step's", false), label);
    let (low, high) = x.ends();
    let even: Vec<(f64, f64)> = (0..=60)
        .map(|i| low + (high - low) * f64::from(i) / 60.0)
        .map(|cost| (cost, break_even(cost, &outcome.costs)))
        .filter(|point| y.has(point.1))
        .collect();
    frame.line(out, "reference", 0.0, even.iter().copied());
    for &(cost, agreement) in &outcome.cloud {
        let (x, y) = (frame.at_x(cost), frame.at_y(agreement));
        out.circle("cloud", (x, y), 1.8);
    }
    let mut curve: Vec<(f64, f64)> = masks.iter().filter(|mask| !mask.is_baseline).map(at).collect();
    curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    frame.line(out, &format!("{} line", color(FAMILY)), 0.0, curve);
    let tell = |mask: &Shown| {
        let (proof, best) = (&mask.member.proof, mask.member.proof.greedy(&outcome.costs));
        format!(
            "{}: cost {:.3}, agreement {:.3}, speedup {:.3} with drafts of {}; {}",
            mask.name,
            proof.cost,
            proof.agreement,
            best.speedup,
            best.draft_len,
            mask.member.candidate.mask()
        )
    };
    let classes: Vec<String> = masks.iter().enumerate().map(|(i, mask)| class_of(i, mask)).collect();
    for (mask, class) in masks.iter().zip(&classes).rev() {
        let error = mask.member.proof.agreement_error();
        let error = error.map(|e| (mask.member.proof.agreement - e, mask.member.proof.agreement + e));
        let title = tell(mask);
        let point = Point { at: at(mask), error, lying: false, aside: 0.0, title: &title };
        frame.point(out, class, &point, mask.is_baseline);
    }
    let names =
        masks.iter().zip(&classes).map(|(mask, class)| Label { class, name: &mask.name, at: at(mask) });
    // Beside their marks, or else in the column.
    let mut taken = Taken::default();
    for mask in masks {
        let (x, y, error) = (frame.at_x(at(mask).0), at(mask).1, mask.member.proof.agreement_error());
        let error = error.unwrap_or(0.0);
        taken.take((x - 3.0, frame.at_y(y + error), x + 3.0, frame.at_y(y - error)));
    }
    let left = frame.names(out, &names.collect::<Vec<_>>(), CHARS, taken);
    let even = even.last().map(|&at| Label { class: "small", name: "dashed: no gain below", at });
    frame.labels(out, &left.into_iter().chain(even).collect::<Vec<_>>(), CHARS);
}

/// The agreement at which drafting costs as much as it yields, by the formula of even chances.
fn break_even(c: f64, costs: &PassCosts) -> f64 {
    let worth = |a| costs.best(|k| speed::tokens_if_independent(a, k), c, 0.0).speedup;
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..30 {
        let middle = (low + high) / 2.0;
        if worth(middle) < 1.0 { low = middle } else { high = middle }
    }
    high
}

pub fn lengths(figure: &mut Figure, outcome: &SearchOutcome, masks: &[Shown]) {
    let family = masks.iter().filter(|mask| !mask.is_baseline).take(LINES);
    let lines: Vec<&Shown> = family.chain(masks.iter().filter(|mask| mask.is_baseline)).collect();
    let height = high(lines.len() + 1);
    figure.panel(HEAD + height + FOOT, |out, top| draw_lengths(out, (top, height), outcome, &lines));
}

fn draw_lengths(out: &mut Svg, (top, height): (f64, f64), outcome: &SearchOutcome, lines: &[&Shown]) {
    let curves: Vec<Vec<f64>> =
        lines.iter().map(|mask| mask.member.proof.by_draft_len(&outcome.costs)).collect();
    let longest = curves.iter().map(Vec::len).max().unwrap_or(1) as f64;
    let y = Scale::around(curves.iter().flatten().copied().chain([1.0]));
    let frame = frame(top, height, Scale::linear(0.7, longest + 0.3), y);
    let label = "times plain decoding, greedy text; dots: the best length";
    frame.axes(out, "Predicted speed by draft length", ("tokens drafted", true), label);
    frame.reference(out, 1.0);
    let mut ends = Vec::new();
    for (i, (mask, curve)) in lines.iter().zip(&curves).enumerate() {
        // The best as everywhere.
        let class = color(if i < 2 { 1 - i } else { i });
        let points = || curve.iter().enumerate().map(|(i, &s)| ((i + 1) as f64, s));
        frame.line(out, &format!("{class} line"), 0.0, points());
        if let Some(best) = points().max_by(|a, b| a.1.total_cmp(&b.1)) {
            let title = format!("{}: {:.3} with drafts of {}", mask.name, best.1, best.0);
            let point = Point { at: best, error: None, lying: false, aside: 0.0, title: &title };
            frame.point(out, &class, &point, mask.is_baseline);
        }
        ends.extend(points().next_back().map(|end| (class, mask.name.as_str(), end)));
    }
    let plain = ("small".to_string(), "dashed: plain decoding", (longest + 0.3, 1.0));
    let labels: Vec<Label> =
        ends.iter().chain([&plain]).map(|(class, name, at)| Label { class, name, at: *at }).collect();
    frame.labels(out, &labels, CHARS);
}

/// Measured and predicted, one mask below the other. Nothing if there was no time to measure.
pub fn speeds(figure: &mut Figure, outcome: &SearchOutcome, masks: &[Shown]) {
    if masks.iter().any(|mask| mask.member.measured.is_some()) {
        let height = ROW * masks.len() as f64;
        figure.panel(HEAD + height + FOOT, |out, top| draw_speeds(out, (top, height), outcome, masks));
    }
}

fn draw_speeds(out: &mut Svg, (top, height): (f64, f64), outcome: &SearchOutcome, masks: &[Shown]) {
    let predicted = |mask: &Shown| match &mask.member.measured {
        Some(measured) => measured.predicted,
        None => mask.member.proof.greedy(&outcome.costs).speedup,
    };
    let numbers = masks.iter().flat_map(|mask| {
        let measured = mask.member.measured;
        let bars = measured.and_then(|m| m.quartiles).into_iter().flatten();
        bars.chain(measured.map(|m| m.speedup)).chain([predicted(mask)]).collect::<Vec<_>>()
    });
    let (x, y) = (Scale::around(numbers.chain([1.0])), Scale::linear(0.5 - masks.len() as f64, 0.5));
    let names: Vec<String> = masks.iter().map(|mask| shortened(&mask.name, CHARS)).collect();
    let left = names.iter().map(|name| width(name, SIZE)).fold(LEFT, f64::max) + 16.0;
    let frame = Frame { left, width: WIDTH - left - 24.0, ..frame(top, height, x, y) };
    let about = "bars: the middle half of the texts; hollow: predicted from passes timed in the same minutes";
    let title = "Measured and predicted speed";
    out.text("title", (LEFT, frame.top - 26.0), title);
    out.text("small", (LEFT, frame.top - 9.0), about);
    let (top, bottom) = (frame.top, frame.bottom());
    for (class, at) in x.ticks(10).iter().map(|tick| ("grid", tick.0)).chain([("reference", 1.0)]) {
        let x = frame.at_x(at);
        out.line(class, (x, top), (x, bottom));
    }
    frame.x_axis(out, "times plain decoding (dashed)", false);
    for (i, (mask, name)) in masks.iter().zip(&names).enumerate() {
        let y = -(i as f64);
        let (x, below) = (left - 10.0, frame.at_y(y) + 4.0);
        out.text("end", (x, below), name);
        let class = class_of(i, mask);
        let title = format!("{}: {:.3} predicted", mask.name, predicted(mask));
        let point = Point { at: (predicted(mask), y), error: None, lying: true, aside: 0.0, title: &title };
        frame.point(out, &class, &point, true);
        if let Some(measured) = &mask.member.measured {
            let title = format!(
                "{}: {:.3} measured, {:.1} tokens a second",
                mask.name, measured.speedup, measured.tok_s
            );
            let error = measured.quartiles.map(|[low, high]| (low, high));
            let point = Point { at: (measured.speedup, y), error, lying: true, aside: 0.0, title: &title };
            frame.point(out, &class, &point, false);
        }
    }
}

pub fn map(figure: &mut Figure, masks: &[Shown]) {
    let masks: Vec<_> = masks.iter().map(|mask| (mask.name.clone(), mask.member.candidate.mask())).collect();
    figure.panel(map::height(masks.len()), |out, top| map::draw(out, &masks, top));
}
