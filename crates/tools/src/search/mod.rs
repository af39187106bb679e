//! What to skip: from a text a family of masks, from cautious to bold, the best first.
//!
//! ```text
//! text ─ calibration ─ judge (rows under a mask that see what a draft sees) ─┐
//! steps timed ─ costs ────────────────────────────────────────── objective ─┴ evaluator ─ journal
//!                          ablation, greedy from both ends, TPE, small changes ┘
//! best few and the front of agreement against cost ─ proof on held-out text ─ family
//! ```
//!
//! The way of a search depends on evaluations and measured costs alone, and both are in its journal.

mod bayes;
pub mod calibration;
pub mod candidate;
pub mod clock;
pub mod costs;
mod evaluator;
pub mod family;
mod greedy;
pub mod journal;
pub mod judge;
mod local;
pub mod measured;
mod named;
pub mod objective;
pub mod report;
pub mod score;
pub mod speed;
#[cfg(test)]
mod tests;

use std::{cmp::Ordering, ops::ControlFlow, time::Duration};

pub use calibration::{Calibration, CalibrationSettings, Span};
pub use candidate::{Candidate, State, Sublayer};
pub use clock::{Stopwatch, WallClock};
pub use costs::PassCosts;
pub use evaluator::Progress;
pub use family::Proof;
pub use journal::{Entry, Journal, RunId};
pub use judge::{ModelJudge, extra_cells, extra_states, make_room};
pub use measured::Measured;
pub use objective::Objective;
pub use score::Score;

use self::{
    candidate::Movable,
    evaluator::{Evaluator, Past},
    family::front,
    judge::Judge,
};
use crate::{Context, Result, RunLayers, Tokenizer};

/// Exits that are proved, of all that are judged.
const PROVED_EXITS: usize = 3;
/// Good candidates that small changes start from.
const STARTS: usize = 3;
/// Of a limited time, for timing steps, for proofs and for the loop; with single turns that take longer than they should,
/// it comes to about the time once more.
const TIMING: f64 = 0.125;
const PROVING: f64 = 0.5;
const LOOPING: f64 = 0.25;
/// Fewer held-out positions would promise anything.
const FEWEST_PROVED: usize = 32;

/// What a search can do with sublayers of a context's model besides running them in full, from the least that is left out.
pub fn states_of(context: &Context) -> Vec<State> {
    let mut states = Vec::new();
    // Where no weights have planes, coarse is the same as in full.
    states.extend(context.has_planes().then_some(State::Coarse));
    if let Some(used) = context.model().experts_used() {
        let mut numbers = [used / 2, 1].map(|n| n.min(usize::from(State::MOST_EXPERTS))).to_vec();
        numbers.dedup();
        states.extend(numbers.into_iter().filter(|n| (1..used).contains(n)).map(|n| State::Experts(n as u8)));
    }
    states.push(State::Skip);
    states
}

/// How a search goes.
#[derive(Clone, Debug)]
pub struct SearchSettings {
    /// What is sought.
    pub objective: Objective,
    /// What sublayers may go to from running in full.
    pub states: Vec<State>,
    /// Moves that a greedy step looks at.
    pub width: usize,
    /// Candidates of the Bayesian searcher.
    pub trials: usize,
    /// The longest draft that is predicted.
    pub draft_max: usize,
    /// Most masks of the family.
    pub family: usize,
    /// About so long masks are looked for, and at most about as long again they are timed and proved. At least one is
    /// judged, timed and proved, however long that takes.
    pub time: Option<Duration>,
}

impl Default for SearchSettings {
    fn default() -> Self {
        SearchSettings {
            objective: Objective::Speed,
            states: vec![State::Skip],
            width: 12,
            trials: 200,
            draft_max: 8,
            family: 8,
            time: None,
        }
    }
}

/// One sublayer changed in an otherwise full model.
#[derive(Clone, Debug)]
pub struct Ablation {
    /// The layer.
    pub layer: usize,
    /// Which half of it.
    pub part: Sublayer,
    /// What was done with it.
    pub state: State,
    /// What the change saves of a step.
    pub saved: f64,
    /// How it fared.
    pub score: Score,
}

/// A mask that was found.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name in the family.
    pub name: String,
    /// What it runs.
    pub candidate: Candidate,
    /// How it fared on held-out text.
    pub proof: Proof,
    /// By the speculative loop, where there was time for it.
    pub measured: Option<Measured>,
}

impl Member {
    /// Times as fast as plain decoding: by the loop, or else as predicted.
    pub fn speedup(&self, costs: &PassCosts) -> f64 {
        self.measured.map_or_else(|| self.proof.greedy(costs).speedup, |measured| measured.speedup)
    }
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct SearchOutcome {
    /// What passes cost.
    pub costs: PassCosts,
    /// Of the full model on the judged positions.
    pub perplexity: f64,
    /// Each sublayer changed by itself.
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

impl SearchOutcome {
    /// The sentence that says so, where no mask is faster than plain decoding.
    pub fn why_not(&self) -> Option<String> {
        let fastest = self.family.first().filter(|member| member.speedup(&self.costs) <= 1.0)?;
        let how = if fastest.measured.is_some() { "is" } else { "is predicted to be" };
        let speedup = fastest.speedup(&self.costs);
        Some(format!(
            "no mask pays here: the fastest {how} {speedup:.2} times as fast as plain decoding, so draft without masks"
        ))
    }
}

/// Runs a whole search. `entries` are what the journal had; `on_progress` may end it.
pub fn search(
    mut judge: ModelJudge,
    tokenizer: &Tokenizer,
    settings: &SearchSettings,
    clock: &mut dyn Stopwatch,
    journal: &mut Journal,
    entries: Vec<Entry>,
    mut on_progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<SearchOutcome> {
    let mut known = Known::sort(entries);
    let most_rows = settings.draft_max + 1;
    let costs = match known.costs.into_iter().find(|costs| costs.rows.len() == most_rows) {
        Some(costs) => costs,
        None => {
            let place = judge.middle()?;
            let costs = clock.costs(judge.context(), place, most_rows, &settings.states)?;
            journal.add(&Entry::Costs(costs.clone()))?;
            costs
        }
    };
    let n_layer = judge.context().model().plan.dims.n_layer;
    let past = Past { entries: std::mem::take(&mut known.scores), journal };
    let movable = Movable::of(&judge.context().model().plan);
    let sought = Sought { settings, n_layer, movable, costs: &costs };
    let found = find(&mut judge, &sought, past, &mut on_progress)?;
    let mut wanted = found.to_prove();
    let effort = settings.effort(&costs, wanted.len(), judge.held_out());
    wanted.truncate(effort.candidates);
    judge.hold_out(effort.positions);
    let steps = time_steps(&mut judge, wanted, clock, journal, known.steps)?;
    let proofs =
        prove(&mut judge, &found, &costs, settings, journal, (steps, known.proofs), &mut on_progress)?;
    let (mut family, mut baselines) = choose(&found, &proofs, &costs, settings);
    let (context, prompts) = judge.into_prompts();
    // A baseline may be a member of the family too.
    let mut members: Vec<&Member> = Vec::new();
    for member in family.iter().chain(&baselines) {
        if !members.iter().any(|m| m.candidate == member.candidate) {
            members.push(member);
        }
    }
    members.truncate(measured::affordable(&costs, settings.part(LOOPING)));
    let recalled = |earlier: Vec<_>| measured::cover(&earlier, &members, &costs).then_some(earlier);
    let measured = match known.measured.into_iter().find_map(recalled) {
        Some(measured) => measured,
        None => {
            let times = clock.speeds(context, tokenizer, &prompts, &members, &costs)?;
            let measured: Vec<_> = members.iter().map(|m| m.candidate.clone()).zip(times).collect();
            if !measured.is_empty() {
                journal.add(&Entry::Measured(measured.clone()))?;
            }
            measured
        }
    };
    for member in family.iter_mut().chain(&mut baselines) {
        member.measured =
            measured.iter().find(|(c, _)| *c == member.candidate).map(|(_, measured)| *measured);
    }
    rank(&mut family, &baselines, &costs);
    Ok(SearchOutcome {
        costs,
        perplexity: found.perplexity,
        ablations: found.ablations,
        cloud: found.cloud,
        family,
        baselines,
        evaluated: found.evaluated,
    })
}

/// What a draft's step costs under some masks.
type Steps = Vec<(Candidate, f64)>;
type Proofs = Vec<(Candidate, Proof)>;

/// What a journal had, by kind.
#[derive(Default)]
struct Known {
    costs: Vec<PassCosts>,
    scores: Vec<Entry>,
    steps: Vec<Steps>,
    proofs: Proofs,
    measured: Vec<Vec<(Candidate, Measured)>>,
}

impl Known {
    fn sort(entries: Vec<Entry>) -> Self {
        let mut known = Known::default();
        for entry in entries {
            match entry {
                Entry::Run(_) | Entry::Provenance(_) => {}
                Entry::Costs(costs) => known.costs.push(costs),
                Entry::Steps(steps) => known.steps.push(steps),
                Entry::Proof { candidate, proof } => known.proofs.push((candidate, proof)),
                Entry::Measured(measured) => known.measured.push(measured),
                Entry::Score { .. } | Entry::OutOfTime { .. } => known.scores.push(entry),
            }
        }
        known
    }
}

/// How much is proved.
struct Effort {
    candidates: usize,
    positions: usize,
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

impl SearchSettings {
    /// Seconds of a part of the time, if that is limited.
    fn part(&self, of: f64) -> Option<f64> {
        self.time.map(|time| of * time.as_secs_f64())
    }

    /// For [`WallClock`].
    pub fn most_seconds_of_a_timing(&self) -> Option<f64> {
        self.part(LOOPING)
    }

    /// What can be timed and proved in its time. By the costs in the journal, not by a clock, so that a search that was
    /// ended does the same when it goes on. First positions are given up, then candidates.
    fn effort(&self, costs: &PassCosts, wanted: usize, held_out: usize) -> Effort {
        let (Some(timing), Some(proving)) = (self.part(TIMING), self.part(PROVING)) else {
            return Effort { candidates: wanted, positions: held_out };
        };
        // One more draft is the full model's own.
        let drafts = proving / costs.row_seconds() / self.draft_max as f64;
        let positions = ((drafts / (wanted + 1) as f64) as usize).max(FEWEST_PROVED).min(held_out);
        let proved = (drafts / positions.max(1) as f64) as usize;
        let timed = (timing / (2.0 * costs::PAIRS as f64 * costs.step_seconds)) as usize;
        Effort { candidates: proved.saturating_sub(1).min(timed).clamp(1, wanted.max(1)), positions }
    }

    /// Candidates that are proved besides the baselines.
    fn finalists(&self) -> (usize, usize) {
        (self.family, self.family)
    }

    /// The stages and the rows that each may take, for the progress bar.
    fn stages(&self, n_layer: usize, positions: usize) -> Vec<(&'static str, u64)> {
        let (n, sublayers) = (positions as u64, 2 * n_layer as u64);
        let states = self.states.len() as u64;
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

/// What is sought, and in what.
struct Sought<'a> {
    settings: &'a SearchSettings,
    n_layer: usize,
    movable: Movable,
    costs: &'a PassCosts,
}

fn find(
    judge: &mut dyn Judge,
    &Sought { settings, n_layer, ref movable, costs }: &Sought,
    past: Past,
    on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Found> {
    let states = &settings.states;
    let stages = settings.stages(n_layer, judge.positions());
    let mut evaluator =
        Evaluator::new(judge, (costs.clone(), movable.clone()), settings, past, stages, on_progress);

    evaluator.begin("single sublayers");
    let full = Candidate::all(n_layer, State::Run);
    let single: Vec<(usize, State, Candidate)> = movable
        .options(states)
        .map(|(sublayer, state)| (sublayer, state, full.with(sublayer, state)))
        .collect();
    let mut exits: Vec<_> = (1..n_layer).map(|e| (e, Candidate::exit(n_layer, e))).collect();
    let mut halves = [0, 1].map(|first| Candidate::every_second(n_layer, first)).to_vec();
    let mut first = vec![full.clone()];
    first.extend(halves.iter().chain(exits.iter().map(|(_, c)| c)).cloned());
    let running = states.iter().filter(|state| **state != State::Skip);
    first.extend(running.map(|&state| Candidate::all(n_layer, state)));
    first.extend(single.iter().map(|(_, _, candidate)| candidate.clone()));
    // The full model, and one that leaves something out.
    evaluator.score_all(&first, 2)?;
    let perplexity = evaluator.known()[&full].perplexity();
    let ablation = |(sublayer, state, candidate): (usize, State, Candidate)| {
        let (layer, part) = Candidate::layer_and_half(sublayer);
        let saved = costs.of(&full) - costs.of(&candidate);
        Some(Ablation { layer, part, state, saved, score: evaluator.known().get(&candidate)?.clone() })
    };
    let ablations: Vec<Ablation> = single.into_iter().filter_map(ablation).collect();
    evaluator.begin("from everything down");
    greedy::from_full(&mut evaluator, states, settings.width)?;
    evaluator.begin("from nothing up");
    greedy::from_empty(&mut evaluator, states, settings.width)?;
    evaluator.begin("Bayesian search");
    bayes::search(&mut evaluator, states, settings.trials)?;
    evaluator.begin("small changes");
    local::climb(&mut evaluator, states, STARTS)?;

    let (best, spread) = settings.finalists();
    exits.retain(|(_, c)| evaluator.known().contains_key(c));
    halves.retain(|c| evaluator.known().contains_key(c));
    let value = |c: &Candidate| evaluator.value(c, &evaluator.known()[c]);
    exits.sort_by(|a, b| value(&b.1).total_cmp(&value(&a.1)));
    exits.truncate(PROVED_EXITS);
    Ok(Found {
        perplexity,
        ablations,
        cloud: evaluator.judged().map(|(c, score)| (costs.of(c), score.agreement())).collect(),
        finalists: family::finalists(&evaluator, best, spread),
        exits,
        halves,
        evaluated: evaluator.known().len(),
        rows: evaluator.rows(),
    })
}

impl Found {
    /// The finalists and the baselines, the best of each kind first.
    fn to_prove(&self) -> Vec<Candidate> {
        let exits: Vec<&Candidate> = self.exits.iter().map(|(_, c)| c).collect();
        let kinds = [self.finalists.iter().collect(), exits, self.halves.iter().collect()];
        let first = kinds.iter().filter_map(|kind: &Vec<&Candidate>| kind.first());
        let mut all: Vec<Candidate> = Vec::new();
        for &candidate in first.chain(kinds.iter().flatten()) {
            if !all.contains(candidate) {
                all.push(candidate.clone());
            }
        }
        all
    }
}

/// What a step costs under each mask that will be proved. Timed all together, or not at all.
fn time_steps(
    judge: &mut ModelJudge,
    wanted: Vec<Candidate>,
    clock: &mut dyn Stopwatch,
    journal: &mut Journal,
    known: Vec<Steps>,
) -> Result<Steps> {
    let covers = |steps: &Steps| wanted.iter().all(|c| steps.iter().any(|(known, _)| known == c));
    if let Some(mut steps) = known.into_iter().find(covers) {
        steps.retain(|(candidate, _)| wanted.contains(candidate));
        return Ok(steps);
    }
    let masks: Vec<RunLayers> = wanted.iter().map(Candidate::mask).collect();
    let place = judge.middle()?;
    let costs = clock.steps(judge.context(), place, &masks)?;
    let steps: Vec<_> = wanted.into_iter().zip(costs).collect();
    journal.add(&Entry::Steps(steps.clone()))?;
    Ok(steps)
}

/// Judges the finalists and the baselines by whole drafts on held-out text, each at its own timed cost.
fn prove(
    judge: &mut ModelJudge,
    found: &Found,
    costs: &PassCosts,
    settings: &SearchSettings,
    journal: &mut Journal,
    (steps, known): (Steps, Proofs),
    on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Proofs> {
    let rows = (judge.held_out() * settings.draft_max) as u64;
    let all = steps.len() as u64;
    let mut proofs = Vec::new();
    for (i, (candidate, cost)) in (0..).zip(steps) {
        let proved = |(c, proof): &&(Candidate, Proof)| {
            let (depth, positions) = (proof.greedy_tokens.len(), proof.positions);
            *c == candidate
                && proof.cost == cost
                && (depth, positions) == (settings.draft_max, judge.held_out())
        };
        if let Some(known) = known.iter().find(proved) {
            proofs.push(known.clone());
            continue;
        }
        let progress = Progress {
            stage: "proof",
            done: found.rows + i * rows,
            expected: found.rows + all * rows,
            best: None,
        };
        if on_progress(progress).is_break() {
            return Err(evaluator::interrupted());
        }
        let drafts = judge.drafts(&candidate, settings.draft_max)?;
        let prefix = costs.prefix(&candidate.mask());
        let proof = Proof::new(cost, prefix, &drafts, settings.draft_max);
        journal.add(&Entry::Proof { candidate: candidate.clone(), proof: proof.clone() })?;
        proofs.push((candidate, proof));
    }
    Ok(proofs)
}

/// The family, and the baselines that it has to beat.
fn choose(
    found: &Found,
    proofs: &[(Candidate, Proof)],
    costs: &PassCosts,
    settings: &SearchSettings,
) -> (Vec<Member>, Vec<Member>) {
    // Where time was short, not all were proved.
    let member = |name: String, candidate: &Candidate| {
        let (_, proof) = proofs.iter().find(|(c, _)| c == candidate)?;
        Some(Member { name, candidate: candidate.clone(), proof: proof.clone(), measured: None })
    };
    let speed = |m: &Member| m.proof.greedy(costs).speedup;
    let best = |members: Vec<Member>| members.into_iter().max_by(|a, b| speed(a).total_cmp(&speed(b)));
    let exits = found.exits.iter().filter_map(|(e, c)| member(format!("exit {e}"), c)).collect();
    let halves = found.halves.iter().filter_map(|c| member("every second layer".into(), c)).collect();
    let baselines = [best(exits), best(halves)].into_iter().flatten().collect();

    // A baseline that none is better than belongs to the family as well.
    let exits = found.exits.iter().map(|(_, c)| c);
    let mut all: Vec<Member> =
        found.finalists.iter().chain(exits).filter_map(|c| member(String::new(), c)).collect();
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
    (kept.into_iter().map(|i| all[i].clone()).collect(), baselines)
}

/// Best first: by what the loop made of them, if it tried all, else by what is predicted. A baseline that turned out
/// faster than all of them takes the last one's place.
fn rank(family: &mut Vec<Member>, baselines: &[Member], costs: &PassCosts) {
    let speed = |m: &Member| m.measured.map(|measured| measured.speedup);
    let slower = |a: &Member, b: &Member| speed(b).partial_cmp(&speed(a)).unwrap_or(Ordering::Equal);
    if family.iter().all(|m| m.measured.is_some()) {
        family.sort_by(slower);
        let best = family.first().and_then(speed);
        if let Some(faster) = baselines.iter().filter(|m| speed(m) > best).min_by(|a, b| slower(a, b)) {
            family.pop();
            family.insert(0, faster.clone());
        }
    }
    name(family, costs);
}

/// `best`, unless that is slower than plain decoding, and the others by which side of it they are on.
fn name(family: &mut [Member], costs: &PassCosts) {
    let Some(first) = family.first_mut() else { return };
    first.name = if first.speedup(costs) > 1.0 { "best" } else { "fastest" }.into();
    let best = first.proof.cost;
    let (mut cautious, mut bold) = (0, 0);
    for member in &mut family[1..] {
        let (word, count) =
            if member.proof.cost >= best { ("cautious", &mut cautious) } else { ("bold", &mut bold) };
        *count += 1;
        member.name = format!("{word} {count}");
    }
}
