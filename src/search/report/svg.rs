//! Four pictures in one SVG: what each sublayer is worth, agreement against cost, speed by draft length, what each mask
//! leaves out. Nothing outside the file is needed to show it; hovering tells a mark's numbers.

use std::fmt::{self, Write};

use super::{
    frame::{Escaped, Frame},
    map,
    shown::{Shown, shown},
};
use crate::provenance::Provenance;
use crate::search::{
    Ablation, Member, SearchOutcome,
    candidate::{State, Sublayer},
    costs::PassCosts,
    speed,
};

const WIDTH: f64 = 860.0;
const PANEL: f64 = 300.0;
const LEFT: f64 = 60.0;
/// What a plot leaves of the width.
const BESIDE: f64 = 260.0;
/// Lines in the picture of draft lengths; more could not be told apart.
const LINES: usize = 6;

const STYLE: &str = "\
svg{font:12px system-ui,sans-serif;background:#fff;color:#222}\
text{fill:currentColor}.title{font-size:14px;font-weight:600}.end{text-anchor:end}.middle{text-anchor:middle}\
.grid{stroke:currentColor;stroke-opacity:.15}.attn{fill:#2a6fb0}.mlp{fill:#e08a1e}.cloud{fill:currentColor;fill-opacity:.3}\
.family{fill:#1b8a5a}.best{fill:#c22f4e}.baseline{fill:none;stroke:#8a4fb0;stroke-width:2}\
.line{fill:none;stroke-width:2}.even{stroke:#c22f4e;stroke-opacity:.5;stroke-dasharray:4 4}\
.l0{stroke:#c22f4e}.l1{stroke:#1b8a5a}.l2{stroke:#2a6fb0}.l3{stroke:#e08a1e}.l4{stroke:#7a6a4a}.l5{stroke:#4aa5b0}\
.cell{stroke:none}.kept{fill:currentColor;fill-opacity:.08}.roughly{fill:currentColor;fill-opacity:.35}\
.coarse{stroke:currentColor}.curve{stroke:#1b8a5a;stroke-opacity:.6}.peak{fill:none;stroke-width:5}\
.b0,.b1{stroke:#8a4fb0}polyline.b0{stroke-dasharray:6 3}polyline.b1{stroke-dasharray:2 3}\
@media(prefers-color-scheme:dark){svg{background:#161616;color:#ddd}.attn{fill:#4a90d0}.l2{stroke:#4a90d0}.l4{stroke:#b39f72}}";

/// The pictures alone, with where they come from in their metadata.
pub fn svg(model: &str, outcome: &SearchOutcome, provenance: &Provenance) -> String {
    let lines: String = provenance.lines().iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    let mut out = String::new();
    let metadata = format!("<metadata>\n{}</metadata>", Escaped(&lines));
    draw(&mut out, model, outcome, &metadata).expect("writing to a string");
    out
}

/// The pictures, a table of the family, and where they come from.
pub fn html(model: &str, outcome: &SearchOutcome, provenance: &Provenance) -> String {
    let mut out = String::new();
    page(&mut out, model, outcome, provenance).expect("writing to a string");
    out
}

fn page(out: &mut String, model: &str, outcome: &SearchOutcome, provenance: &Provenance) -> fmt::Result {
    let model_name = Escaped(model);
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>What {model_name} can skip</title>\n\
         <style>:root{{color-scheme:light dark}}\
         body{{font:15px system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em}}\
         .wide{{overflow-x:auto}}dl{{display:grid;grid-template-columns:max-content 1fr;gap:.2em 1em;font-size:13px}}\
         dd{{margin:0;overflow-wrap:anywhere}}\
         table{{border-collapse:collapse}}td,th{{padding:.2em .7em;text-align:right;border-bottom:1px solid #8884}}\
         td:first-child,td:last-child,th:first-child,th:last-child{{text-align:left}}</style>\n\
         <h1>What {model_name} can skip</h1>\n\
         <p>{} candidates were judged. Numbers in the table are from positions that the search did not see; a plain \
         step takes {:.3} ms.</p>",
        outcome.evaluated,
        1e3 * outcome.costs.step_seconds,
    )?;
    draw(out, model, outcome, "")?;
    out.push_str(
        "<div class=\"wide\"><table><tr><th>mask<th>cost<th>agreement<th>overlap<th>speedup<th>drafts<th>sampled<th>measured<th>predicted for the same minutes<th>skips</tr>\n",
    );
    for Shown { name, member, .. } in shown(outcome) {
        let proof = &member.proof;
        let (greedy, sampled) = (proof.greedy(&outcome.costs), proof.sampled(&outcome.costs));
        let measured =
            member.measured.map_or("<td>".into(), |m| format!("{:.3}<td>{:.3}", m.speedup, m.predicted));
        writeln!(
            out,
            "<tr><td>{}<td>{:.3}<td>{:.3}<td>{:.3}<td>{:.3}<td>{}<td>{:.3}<td>{measured}<td>{}</tr>",
            Escaped(&name),
            proof.cost,
            proof.agreement,
            proof.overlap,
            greedy.speedup,
            greedy.draft_len,
            sampled.speedup,
            member.candidate.mask(),
        )?;
    }
    out.push_str(
        "</table></div>\n<p>Cost: time of a draft step, of a plain step's. Agreement: share of positions where the mask's first \
         choice is the full model's. Overlap: chance that sampling accepts a drawn token. Speedup: predicted for greedy text with \
         drafts of that length; sampled: for sampled text. Measured: by the speculative loop itself, beside a prediction \
         from passes timed in the same minutes; the first mask is the fastest measured, so a little luck is in it.</p>\n\
         <h2>Where this comes from</h2>\n<dl>\n",
    );
    for (name, value) in provenance.lines() {
        writeln!(out, "<dt>{}<dd>{}", Escaped(&name), Escaped(&value))?;
    }
    out.push_str("</dl></html>\n");
    Ok(())
}

fn draw(out: &mut String, model: &str, outcome: &SearchOutcome, metadata: &str) -> fmt::Result {
    let masks = shown(outcome);
    let height = 3.0 * PANEL + map::height(&masks);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"100%\" role=\"img\">\
         <title>What {} can skip</title>{metadata}<style>{STYLE}</style>",
        Escaped(model)
    )?;
    ablation(out, outcome)?;
    family(out, outcome)?;
    lengths(out, outcome, &masks)?;
    map::draw(out, &masks, (LEFT, 3.0 * PANEL), WIDTH - BESIDE)?;
    out.push_str("</svg>\n");
    Ok(())
}

fn panel(index: usize, x: (f64, f64), y: (f64, f64)) -> Frame {
    let top = index as f64 * PANEL + 40.0;
    Frame { left: LEFT, top, width: WIDTH - BESIDE, height: PANEL - 90.0, x, y }
}

fn ablation(out: &mut String, outcome: &SearchOutcome) -> fmt::Result {
    let of = |state| outcome.ablations.iter().filter(move |a| a.state == state);
    let lost = |a: &Ablation| 1.0 - a.score.agreement();
    let n_layer = outcome.ablations.iter().map(|a| a.layer + 1).max().unwrap_or(1);
    let top = cut(of(State::Skip).map(lost).collect());
    let frame = panel(0, (-0.5, n_layer as f64 - 0.5), (0.0, top));
    frame.axes(out, "What one skipped sublayer costs", "layer", "share of first choices lost")?;
    // A model may have many layers, or one.
    let width = (frame.width / n_layer as f64 * 0.4).min(20.0);
    let place = |a: &Ablation| match a.part {
        Sublayer::Attn => ("attn", frame.at_x(a.layer as f64) - width),
        Sublayer::Mlp => ("mlp", frame.at_x(a.layer as f64)),
    };
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
        let (class, left) = place(a);
        let y = frame.at_y(lost(a).min(top));
        writeln!(
            out,
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
            frame.top + frame.height - y,
            tell(a),
        )?;
        if lost(a) > top {
            let (x, y) = (left + width + 3.0, y + 10.0);
            writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\">↑ {:.2}</text>", lost(a))?;
        }
    }
    let otherwise = || outcome.ablations.iter().filter(|a| a.state != State::Skip);
    for a in otherwise() {
        let (left, y) = (place(a).1, frame.at_y(lost(a).min(top)));
        writeln!(
            out,
            "<line class=\"line coarse\" x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"><title>{}</title></line>",
            left + width,
            tell(a),
        )?;
    }
    let instead = match of(State::Coarse).next() {
        Some(_) if otherwise().all(|a| a.state == State::Coarse) => "coarse instead",
        Some(_) => "coarse or fewer experts instead",
        None => "fewer experts instead",
    };
    let legend = [("attn", "attention"), ("mlp", "MLP"), ("line coarse", instead)];
    frame.legend(out, &legend[..if otherwise().next().is_some() { 3 } else { 2 }])
}

/// Where the scale ends. A sublayer that nothing goes without would flatten all the others, so its bar is cut.
fn cut(mut lost: Vec<f64>) -> f64 {
    lost.sort_by(f64::total_cmp);
    let most = lost.last().copied().unwrap_or(0.0);
    let usual = lost.get(lost.len() * 9 / 10).copied().unwrap_or(most);
    most.min(2.0 * usual).max(0.01)
}

fn family(out: &mut String, outcome: &SearchOutcome) -> fmt::Result {
    let frame = panel(1, (0.0, 1.0), (0.0, 1.0));
    frame.axes(out, "Agreement against cost", "cost of a draft step", "agreement")?;
    let costs = (0..=50).map(|i| f64::from(i) / 50.0);
    frame.line(out, "even line", costs.map(|c| (c, break_even(c, &outcome.costs))))?;
    for &(cost, agreement) in &outcome.cloud {
        frame.dot(out, "cloud", 2.0, (cost, agreement), "")?;
    }
    let tell = |m: &Member| {
        let best = m.proof.greedy(&outcome.costs);
        format!(
            "{}: cost {:.3}, agreement {:.3}, speedup {:.3} with drafts of {}; {}",
            m.name,
            m.proof.cost,
            m.proof.agreement,
            best.speedup,
            best.draft_len,
            m.candidate.mask()
        )
    };
    let of = |m: &Member| (m.proof.cost, m.proof.agreement);
    for member in &outcome.baselines {
        frame.dot(out, "baseline", 6.0, of(member), &tell(member))?;
    }
    let mut curve: Vec<(f64, f64)> = outcome.family.iter().map(of).collect();
    curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    frame.line(out, "line curve", curve)?;
    for (i, member) in outcome.family.iter().enumerate().rev() {
        let class = if i == 0 { "best" } else { "family" };
        frame.dot(out, class, 5.0, of(member), &tell(member))?;
    }
    let legend =
        [("best", "best"), ("family", "family"), ("baseline", "exit, every second"), ("cloud", "judged")];
    frame.legend(out, &legend)?;
    frame.note(out, legend.len(), "dashed: no gain below")
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

fn lengths(out: &mut String, outcome: &SearchOutcome, masks: &[Shown]) -> fmt::Result {
    let of = |baselines| masks.iter().filter(move |mask| mask.is_baseline == baselines).enumerate();
    let family = of(false).take(LINES).map(|(i, mask)| (format!("line l{i}"), mask));
    let members: Vec<(String, &Shown)> =
        family.chain(of(true).map(|(i, mask)| (format!("line b{i}"), mask))).collect();
    let curve = |mask: &Shown| mask.member.proof.by_draft_len(&outcome.costs);
    let curves: Vec<Vec<f64>> = members.iter().map(|(_, mask)| curve(mask)).collect();
    let longest = curves.iter().map(Vec::len).max().unwrap_or(1);
    let highest = curves.iter().flatten().copied().fold(1.1, f64::max) + 0.05;
    let lowest = curves.iter().flatten().copied().fold(0.9, f64::min);
    let frame = panel(2, (0.5, longest as f64 + 0.5), (lowest, highest));
    frame.axes(out, "Predicted speedup by draft length", "tokens drafted", "times plain decoding")?;
    frame.line(out, "even line", [(0.5, 1.0), (longest as f64 + 0.5, 1.0)])?;
    let mut legend = Vec::new();
    for ((class, mask), curve) in members.iter().zip(&curves) {
        let points = || curve.iter().enumerate().map(|(i, &s)| ((i + 1) as f64, s));
        frame.line(out, class, points())?;
        if let Some(best) = points().max_by(|a, b| a.1.total_cmp(&b.1)) {
            let class = class.replace("line", "peak");
            let title = format!("{}: {:.3} with drafts of {}", mask.name, best.1, best.0);
            frame.dot(out, &class, 2.5, best, &title)?;
        }
        legend.push((class.as_str(), mask.name.as_str()));
    }
    frame.legend(out, &legend)?;
    frame.note(out, legend.len(), "dashed: plain decoding")
}
