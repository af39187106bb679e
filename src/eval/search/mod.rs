//! What to skip: from a text a family of masks, from cautious to bold, the best first.
//!
//! ```text
//! text ─ calibration ─ judge (rows under a mask that see what a draft sees) ─┐
//! steps timed ─ costs ────────────────────────────────────────── objective ─┴ lab ─ journal
//!                          ablation, greedy from both ends, TPE, small changes ┘
//! best few and the front of agreement against cost ─ proof on held-out text ─ family
//! ```
//!
//! The way of a search depends on evaluations and measured costs alone, and both are in its journal.

mod bayes;
pub mod calibration;
pub mod candidate;
pub mod costs;
pub mod family;
mod greedy;
pub mod journal;
pub mod judge;
mod lab;
mod local;
pub mod measured;
pub mod objective;
pub mod report;
pub mod score;
pub mod speed;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

pub use lab::Progress;

use self::{
    candidate::{Candidate, Part, State},
    costs::Costs,
    family::{Proof, front},
    journal::{Entry, Journal},
    judge::{Judge, ModelJudge},
    lab::Lab,
    measured::Measured,
    objective::Objective,
    score::Score,
};
use crate::{Result, RunLayers, Tokenizer};

/// Exits that are proved, of all that are judged.
const PROVED_EXITS: usize = 3;
/// Good candidates that small changes start from.
const STARTS: usize = 3;

#[derive(Clone, Debug)]
pub struct Settings {
    pub objective: Objective,
    /// Try coarse sublayers too; of use where the backend has planes.
    pub coarse: bool,
    /// Moves that a greedy step looks at.
    pub width: usize,
    /// Candidates of the Bayesian searcher.
    pub trials: usize,
    /// The longest draft that is predicted.
    pub draft_max: usize,
    /// Most masks of the family.
    pub family: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            objective: Objective::Speed,
            coarse: false,
            width: 12,
            trials: 200,
            draft_max: 8,
            family: 8,
        }
    }
}

/// One sublayer changed in an otherwise full model.
#[derive(Clone, Debug)]
pub struct Ablation {
    pub layer: usize,
    pub part: Part,
    pub state: State,
    /// What the change saves of a step.
    pub saved: f64,
    pub score: Score,
}

#[derive(Clone, Debug)]
pub struct Member {
    pub name: String,
    pub candidate: Candidate,
    pub proof: Proof,
    /// By the speculative loop, where there was time for it.
    pub measured: Option<Measured>,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub costs: Costs,
    /// Of the full model on the judged positions.
    pub perplexity: f64,
    pub ablations: Vec<Ablation>,
    /// Cost and agreement of everything that was judged on all positions.
    pub cloud: Vec<(f64, f64)>,
    /// Best first.
    pub family: Vec<Member>,
    /// The best uniform exit and the better half of the layers.
    pub baselines: Vec<Member>,
    /// Candidates that were judged, on however many positions.
    pub evaluated: usize,
}

/// Runs a whole search. `entries` are what the journal had; `on_progress` may end it.
pub fn search(
    mut judge: ModelJudge,
    tokenizer: &Tokenizer,
    settings: &Settings,
    journal: &mut Journal,
    entries: Vec<Entry>,
    mut on_progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    let known_costs = entries.iter().find_map(|entry| match entry {
        Entry::Costs(costs) if costs.rows.len() == settings.draft_max + 1 => Some(costs.clone()),
        _ => None,
    });
    let costs = match known_costs {
        Some(costs) => costs,
        None => {
            let place = judge.middle();
            let costs = Costs::measure(judge.context(), place, settings.draft_max + 1, settings.coarse)?;
            journal.add(&Entry::Costs(costs.clone()))?;
            costs
        }
    };
    let mut proofs: Vec<(Candidate, Proof)> = Vec::new();
    let mut times: Vec<(Candidate, Measured)> = Vec::new();
    let mut scores = Vec::new();
    for entry in entries {
        match entry {
            Entry::Proof { candidate, proof } => proofs.push((candidate, proof)),
            Entry::Measured { candidate, measured } => times.push((candidate, measured)),
            other => scores.push(other),
        }
    }
    let n_layer = judge.context().model().plan.dims.n_layer;
    let found = find(&mut judge, n_layer, &costs, settings, journal, scores, &mut on_progress)?;
    let proofs = prove(&mut judge, &found, settings, journal, proofs, &mut on_progress)?;
    let (mut family, mut baselines) = choose(&found, &proofs, &costs, settings);
    let (context, prompts) = judge.into_prompts();
    let mut members: Vec<&mut Member> = family.iter_mut().chain(&mut baselines).collect();
    let known = |m: &Member| times.iter().find(|(c, _)| *c == m.candidate).map(|(_, measured)| *measured);
    if members.iter().any(|m| known(m).is_none()) {
        let shared: Vec<&Member> = members.iter().map(|m| &**m).collect();
        let measured = measured::measure(context, tokenizer, &prompts, &shared, &costs)?;
        for (member, measured) in members.iter_mut().zip(measured) {
            journal.add(&Entry::Measured { candidate: member.candidate.clone(), measured })?;
            member.measured = Some(measured);
        }
    } else {
        members.iter_mut().for_each(|m| m.measured = known(m));
    }
    Ok(Outcome {
        costs,
        perplexity: found.perplexity,
        ablations: found.ablations,
        cloud: found.cloud,
        family,
        baselines,
        evaluated: found.evaluated,
    })
}

/// What the strategies leave behind.
#[derive(Debug)]
struct Found {
    perplexity: f64,
    ablations: Vec<Ablation>,
    cloud: Vec<(f64, f64)>,
    finalists: Vec<Candidate>,
    exits: Vec<(usize, Candidate)>,
    halves: Vec<Candidate>,
    evaluated: usize,
    rows: u64,
}

impl Settings {
    fn states(&self) -> Vec<State> {
        if self.coarse { vec![State::Coarse, State::Skip] } else { vec![State::Skip] }
    }

    /// Candidates that are proved besides the baselines.
    fn finalists(&self) -> (usize, usize) {
        (self.family, self.family)
    }

    /// The stages and the rows that each may take, for the progress bar.
    fn stages(&self, n_layer: usize, positions: usize) -> Vec<(&'static str, u64)> {
        let (n, sublayers) = (positions as u64, 2 * n_layer as u64);
        let states = self.states().len() as u64;
        // Of a race most candidates see a quarter of the positions.
        let race = |candidates: u64| candidates * n / 4 + n;
        let greedy = sublayers * race(self.width as u64);
        vec![
            ("single sublayers", (sublayers * states + n_layer as u64 + 2) * n),
            ("from everything down", greedy),
            ("from nothing up", greedy / 2),
            ("Bayesian search", self.trials as u64 * n / 3),
            ("small changes", STARTS as u64 * 3 * race(sublayers * states + 25)),
        ]
    }
}

fn find(
    judge: &mut dyn Judge,
    n_layer: usize,
    costs: &Costs,
    settings: &Settings,
    journal: &mut Journal,
    entries: Vec<Entry>,
    on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Found> {
    let states = settings.states();
    let stages = settings.stages(n_layer, judge.positions());
    let mut lab = Lab::new(judge, costs.clone(), settings.objective, journal, entries, stages, on_progress);

    lab.begin("single sublayers");
    let full = Candidate::all(n_layer, State::Run);
    let perplexity = lab.score(&full)?.perplexity();
    let mut ablations = Vec::new();
    for sublayer in 0..full.len() {
        for &state in &states {
            let candidate = full.with(sublayer, state);
            let (layer, part) = Candidate::place(sublayer);
            let saved = costs.of(&full) - costs.of(&candidate);
            ablations.push(Ablation { layer, part, state, saved, score: lab.score(&candidate)?.clone() });
        }
    }
    let exits: Vec<_> = (1..n_layer).map(|e| (e, Candidate::exit(n_layer, e))).collect();
    let halves = [0, 1].map(|first| Candidate::every_second(n_layer, first));
    for candidate in exits.iter().map(|(_, c)| c).chain(&halves) {
        lab.score(candidate)?;
    }
    if settings.coarse {
        lab.score(&Candidate::all(n_layer, State::Coarse))?;
    }
    lab.begin("from everything down");
    greedy::from_full(&mut lab, n_layer, &states, settings.width)?;
    lab.begin("from nothing up");
    greedy::from_empty(&mut lab, n_layer, &states, settings.width)?;
    lab.begin("Bayesian search");
    bayes::search(&mut lab, n_layer, &states, settings.trials)?;
    lab.begin("small changes");
    local::climb(&mut lab, &states, STARTS)?;

    let (best, spread) = settings.finalists();
    let all = lab.positions();
    let complete = lab.known().iter().filter(|(_, score)| score.positions() == all);
    let mut exits = exits;
    let value = |c: &Candidate| lab.value(c, &lab.known()[c]);
    exits.sort_by(|a, b| value(&b.1).total_cmp(&value(&a.1)));
    exits.truncate(PROVED_EXITS);
    Ok(Found {
        perplexity,
        ablations,
        cloud: complete.map(|(c, score)| (costs.of(c), score.agreement())).collect(),
        finalists: family::finalists(&lab, best, spread),
        exits,
        halves: halves.into(),
        evaluated: lab.known().len(),
        rows: lab.rows(),
    })
}

/// Judges the finalists and the baselines by whole drafts on held-out text, each at its own timed cost.
fn prove(
    judge: &mut ModelJudge,
    found: &Found,
    settings: &Settings,
    journal: &mut Journal,
    mut proofs: Vec<(Candidate, Proof)>,
    on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Vec<(Candidate, Proof)>> {
    proofs.retain(|(_, proof)| proof.greedy_tokens.len() == settings.draft_max);
    let baselines = found.exits.iter().map(|(_, c)| c).chain(&found.halves);
    let mut wanted: Vec<Candidate> = found.finalists.iter().chain(baselines).cloned().collect();
    wanted.sort();
    wanted.dedup();
    wanted.retain(|c| !proofs.iter().any(|(proved, _)| proved == c));
    let place = judge.middle();
    let masks: Vec<RunLayers> = wanted.iter().map(Candidate::mask).collect();
    let costs = costs::measure_masks(judge.context(), place, &masks)?;
    let rows = (judge.held_out() * settings.draft_max) as u64;
    for (i, (candidate, cost)) in wanted.iter().zip(costs).enumerate() {
        let progress = Progress {
            stage: "proof",
            done: found.rows + i as u64 * rows,
            expected: found.rows + wanted.len() as u64 * rows,
            best: None,
        };
        if on_progress(progress).is_break() {
            return Err(lab::interrupted());
        }
        let drafts = judge.drafts(candidate, settings.draft_max)?;
        let proof = Proof::new(cost, &drafts, settings.draft_max);
        journal.add(&Entry::Proof { candidate: candidate.clone(), proof: proof.clone() })?;
        proofs.push((candidate.clone(), proof));
    }
    Ok(proofs)
}

/// The family, and the baselines that it has to beat.
fn choose(
    found: &Found,
    proofs: &[(Candidate, Proof)],
    costs: &Costs,
    settings: &Settings,
) -> (Vec<Member>, Vec<Member>) {
    let proof = |candidate: &Candidate| {
        proofs.iter().find(|(c, _)| c == candidate).map(|(_, p)| p.clone()).expect("all were proved")
    };
    let member = |name: String, candidate: &Candidate| Member {
        name,
        candidate: candidate.clone(),
        proof: proof(candidate),
        measured: None,
    };
    let speed = |m: &Member| m.proof.greedy(costs).speedup;
    let best = |members: Vec<Member>| members.into_iter().max_by(|a, b| speed(a).total_cmp(&speed(b)));
    let exits = found.exits.iter().map(|(e, c)| member(format!("exit {e}"), c)).collect();
    let halves = found.halves.iter().map(|c| member("every second layer".into(), c)).collect();
    let baselines = [best(exits), best(halves)].into_iter().flatten().collect();

    // A baseline that none is better than belongs to the family as well.
    let exits = found.exits.iter().map(|(_, c)| c);
    let mut all: Vec<Member> =
        found.finalists.iter().chain(exits).map(|c| member(String::new(), c)).collect();
    all.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
    all.dedup_by(|a, b| a.candidate == b.candidate);
    let points: Vec<(f64, f64)> = all.iter().map(|m| (m.proof.cost, m.proof.agreement)).collect();
    let mut kept = front(&points);
    if !all.is_empty() && !kept.contains(&0) {
        kept.push(0);
    }
    // Fastest first.
    kept.sort_unstable();
    kept.truncate(settings.family);
    let mut family: Vec<Member> = kept.into_iter().map(|i| all[i].clone()).collect();
    name(&mut family);
    (family, baselines)
}

/// `best`, and the others by which side of it they are on.
fn name(family: &mut [Member]) {
    let Some(best) = family.first().map(|m| m.proof.cost) else { return };
    let (mut cautious, mut bold) = (0, 0);
    family[0].name = "best".into();
    for member in &mut family[1..] {
        let (word, count) =
            if member.proof.cost >= best { ("cautious", &mut cautious) } else { ("bold", &mut bold) };
        *count += 1;
        member.name = format!("{word} {count}");
    }
}
