//! Tables and a plot for the terminal.

use super::{
    plot::Plot,
    shown::{Shown, shown},
};
use crate::search::{Ablation, Member, SearchOutcome, candidate::State, candidate::Sublayer};

pub fn text(outcome: &SearchOutcome) -> String {
    let mut out = ablation_table(outcome);
    out += "\n";
    out += &plot(outcome).draw("cost of a step", "agreement   . judged   - baseline   o family   * best");
    out += "\n";
    out += &family_table(outcome);
    out
}

fn ablation_table(outcome: &SearchOutcome) -> String {
    let base = outcome.perplexity;
    let mut out = format!(
        "one sublayer skipped (full model: perplexity {base:.3} on these positions)\n\
         layer   attention: agreement  overlap   Δ ppl   cost   mlp: agreement  overlap   Δ ppl   cost\n"
    );
    let n_layer = outcome.ablations.iter().map(|a| a.layer + 1).max().unwrap_or(0);
    let find = |layer, part| {
        outcome.ablations.iter().find(|a| (a.layer, a.part, a.state) == (layer, part, State::Skip))
    };
    for layer in 0..n_layer {
        let cell = |ablation: Option<&Ablation>| match ablation {
            Some(Ablation { score, saved, .. }) => format!(
                "{:9.3} {:8.3} {:+7.3} {:6.3}",
                score.agreement(),
                score.overlap(),
                score.perplexity() - base,
                saved
            ),
            None => String::new(),
        };
        let (attn, mlp) = (find(layer, Sublayer::Attn), find(layer, Sublayer::Mlp));
        out += &format!("{layer:5}            {}      {}\n", cell(attn), cell(mlp));
    }
    out
}

fn plot(outcome: &SearchOutcome) -> Plot {
    let members = |members: &[Member], mark: char| -> Vec<(f64, f64, char)> {
        members.iter().map(|m| (m.proof.cost, m.proof.agreement, mark)).collect()
    };
    let mut points: Vec<_> = outcome.cloud.iter().map(|&(c, a)| (c, a, '.')).collect();
    points.extend(members(&outcome.baselines, '-'));
    points.extend(members(&outcome.family, 'o').into_iter().rev());
    points.extend(members(&outcome.family[..outcome.family.len().min(1)], '*'));
    Plot { width: 64, height: 17, x: (0.0, 1.0), y: (0.0, 1.0), points }
}

fn family_table(outcome: &SearchOutcome) -> String {
    let costs = &outcome.costs;
    let rows: Vec<String> = costs.rows.iter().map(|t| format!("{t:.2}")).collect();
    let masks = shown(outcome);
    let width = masks.iter().map(|mask| mask.name.chars().count()).max().unwrap_or(0).max(20);
    let mut out = format!(
        "on held-out positions; a plain step takes {:.3} ms, 1 to {} rows {}\n\
         {:width$} {:>6} {:>9} {:>8} {:>8} {:>6} {:>8}  {:15}  mask\n",
        1e3 * costs.step_seconds,
        rows.len(),
        rows.join(" "),
        "",
        "cost",
        "agreement",
        "overlap",
        "speedup",
        "drafts",
        "sampled",
        "measured"
    );
    for Shown { name, member, .. } in masks {
        let proof = &member.proof;
        let (greedy, sampled) = (proof.greedy(costs), proof.sampled(costs));
        let measured =
            member.measured.map_or("-".into(), |m| format!("{:.3}   ({:.3})", m.speedup, m.predicted));
        out += &format!(
            "{:width$} {:6.3} {:9.3} {:8.3} {:8.3} {:6} {:8.3}  {measured:15}  {}\n",
            name,
            proof.cost,
            proof.agreement,
            proof.overlap,
            greedy.speedup,
            greedy.draft_len,
            sampled.speedup,
            member.candidate.mask()
        );
    }
    out +=
        "measured by the loop itself; in brackets what is predicted from passes timed in the same minutes\n";
    out += &outcome.why_not().map_or(String::new(), |why| format!("\n{why}\n"));
    out
}
