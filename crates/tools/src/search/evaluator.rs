//! Where strategies have their candidates evaluated: remembers, writes to the journal, counts, and races
//! candidates against each other on as few positions as decide it.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use super::{
    SearchSettings,
    candidate::{Candidate, Movable},
    costs::PassCosts,
    journal::{Entry, Journal},
    judge::Judge,
    objective::Objective,
    score::Score,
};
use crate::{Error, Result};

/// A race begins on so many positions, and doubles them until it has them all.
const FIRST_HEAT: usize = 64;
/// Who is behind by more than so many standard errors drops out.
const ERRORS: f64 = 1.5;

/// Where a long search stands.
#[derive(Clone, Debug)]
pub struct Progress {
    /// What it does just now.
    pub stage: &'static str,
    /// Rows evaluated and expected, over the whole search.
    pub done: u64,
    /// Rows that are expected in all.
    pub expected: u64,
    /// The best value so far, on all positions.
    pub best: Option<f64>,
}

/// The stages and the rows that each is expected to take.
type Stages = Vec<(&'static str, u64)>;

/// What was judged before, and where more is written.
pub struct Past<'a> {
    pub journal: &'a mut Journal,
    pub entries: Vec<Entry>,
}

pub struct Evaluator<'a> {
    judge: &'a mut dyn Judge,
    costs: PassCosts,
    movable: Movable,
    objective: Objective,
    journal: &'a mut Journal,
    known: BTreeMap<Candidate, Score>,
    /// From the journal; joins `known` when it is asked for, so that a resumed search knows at each point what
    /// it knew the first time.
    read_back: BTreeMap<(Candidate, usize), Score>,
    heats: Vec<usize>,
    stages: Stages,
    stage: usize,
    rows_before: u64,
    rows_in_stage: u64,
    best: Option<f64>,
    /// Positions on which whoever is compared was judged; fewer than all only where time was up early.
    compared: usize,
    time: Option<Time>,
    on_progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

/// How long strategies may go on.
struct Time {
    given: Duration,
    since: Instant,
    /// Rows after which it was up: from then on, and in a search that goes on from the journal, rows decide.
    up_after: Option<u64>,
}

/// A candidate with its value on all positions.
pub type Valued = (Candidate, f64);

impl<'a> Evaluator<'a> {
    pub fn new(
        judge: &'a mut dyn Judge,
        (costs, movable): (PassCosts, Movable),
        settings: &SearchSettings,
        Past { journal, entries }: Past<'a>,
        stages: Stages,
        on_progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Self {
        let mut read_back = BTreeMap::new();
        let mut time = settings.time.map(|given| Time { given, since: Instant::now(), up_after: None });
        for entry in entries {
            match (entry, &mut time) {
                (Entry::Score { candidate, from, score }, _) => {
                    read_back.insert((candidate, from), score);
                }
                (Entry::OutOfTime { given, rows }, Some(time)) if given == time.given => {
                    time.up_after = Some(rows);
                }
                _ => {}
            }
        }
        let all = judge.positions();
        let mut heats: Vec<usize> =
            std::iter::successors(Some(FIRST_HEAT), |n| Some(2 * n)).take_while(|&n| n < all).collect();
        heats.push(all);
        Evaluator {
            judge,
            costs,
            movable,
            objective: settings.objective,
            journal,
            known: BTreeMap::new(),
            read_back,
            heats,
            stages,
            stage: 0,
            rows_before: 0,
            rows_in_stage: 0,
            best: None,
            compared: 0,
            time,
            on_progress,
        }
    }

    /// Whether to look no further.
    pub fn out_of_time(&mut self) -> Result<bool> {
        let rows = self.rows();
        let Some(Time { given, since, up_after }) = &mut self.time else { return Ok(false) };
        if up_after.is_none() && since.elapsed() >= *given {
            *up_after = Some(rows);
            self.journal.add(&Entry::OutOfTime { given: *given, rows })?;
        }
        Ok(up_after.is_some_and(|up_after| rows >= up_after))
    }

    pub fn begin(&mut self, stage: &'static str) {
        self.rows_before += self.rows_in_stage;
        self.rows_in_stage = 0;
        self.stage = self.stages.iter().position(|s| s.0 == stage).expect("a planned stage");
    }

    pub fn costs(&self) -> &PassCosts {
        &self.costs
    }

    /// What strategies may change.
    pub fn movable(&self) -> Movable {
        self.movable.clone()
    }

    pub fn objective(&self) -> Objective {
        self.objective
    }

    /// Rows evaluated so far.
    pub fn rows(&self) -> u64 {
        self.rows_before + self.rows_in_stage
    }

    /// What is known of candidates, on however many positions.
    pub fn known(&self) -> &BTreeMap<Candidate, Score> {
        &self.known
    }

    pub fn positions(&self) -> usize {
        self.judge.positions()
    }

    /// Candidates that were judged on as many positions as all of the first ones, which are all if there was time.
    pub fn judged(&self) -> impl Iterator<Item = (&Candidate, &Score)> {
        self.known.iter().filter(|(_, score)| score.positions() >= self.compared)
    }

    /// These, best first.
    pub fn ranking(&self) -> Vec<Valued> {
        let mut ranking: Vec<Valued> =
            self.judged().map(|(c, score)| (c.clone(), self.value(c, score))).collect();
        ranking.sort_by(|a, b| b.1.total_cmp(&a.1));
        ranking
    }

    pub fn value(&self, candidate: &Candidate, score: &Score) -> f64 {
        self.objective.value(&self.costs, candidate, score)
    }

    /// Scores all of them, on ever more positions while there is time; the first `least` on a few in any case.
    pub fn score_all(&mut self, candidates: &[Candidate], least: usize) -> Result<()> {
        for heat in 0..self.heats.len() {
            for (i, candidate) in candidates.iter().enumerate() {
                if (heat > 0 || i >= least) && self.out_of_time()? {
                    return Ok(());
                }
                self.score_to(candidate, heat)?;
            }
            self.compared = self.heats[heat];
        }
        Ok(())
    }

    /// The score on all positions.
    pub fn score(&mut self, candidate: &Candidate) -> Result<&Score> {
        self.score_to(candidate, self.heats.len() - 1)
    }

    /// The score after a heat, or after a later one that was run before.
    fn score_to(&mut self, candidate: &Candidate, heat: usize) -> Result<&Score> {
        let mut score = self.known.get(candidate).cloned().unwrap_or_default();
        for heat in 0..=heat {
            let (from, to) = (score.positions(), self.heats[heat]);
            if from >= to {
                continue;
            }
            let later = match self.read_back.remove(&(candidate.clone(), from)) {
                Some(later) if from + later.positions() == to => later,
                _ => {
                    let later = self.judge.score(candidate, from..to)?;
                    let entry = Entry::Score { candidate: candidate.clone(), from, score: later.clone() };
                    self.journal.add(&entry)?;
                    later
                }
            };
            score.extend(&later);
            self.rows_in_stage += (to - from) as u64;
        }
        if score.positions() == self.positions() {
            let value = self.value(candidate, &score);
            self.best = Some(self.best.map_or(value, |best| best.max(value)));
        }
        self.report()?;
        Ok(self.known.entry(candidate.clone()).and_modify(|s| *s = score.clone()).or_insert(score))
    }

    fn report(&mut self) -> Result<()> {
        let (stage, planned) = self.stages[self.stage];
        let later: u64 = self.stages[self.stage + 1..].iter().map(|s| s.1).sum();
        let progress = Progress {
            stage,
            done: self.rows(),
            expected: self.rows_before + planned.max(self.rows_in_stage) + later,
            best: self.best,
        };
        match (self.on_progress)(progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(interrupted()),
        }
    }

    /// The best of the candidates by the objective, with its value on all positions; nothing of nobody, or where time is
    /// up before it is found.
    pub fn race(&mut self, candidates: Vec<Candidate>) -> Result<Option<Valued>> {
        let (costs, objective) = (self.costs.clone(), self.objective);
        let winner = self.race_by(candidates, |candidate, score, more| {
            objective.value_at(&costs, candidate, score, more)
        })?;
        Ok(winner.map(|(winner, _)| {
            let value = self.value(&winner, &self.known[&winner]);
            (winner, value)
        }))
    }

    /// Successive halving: after each heat go those who are behind the leader beyond doubt, and at least half.
    /// `value` is told by how much the agreement may yet prove higher.
    pub fn race_by(
        &mut self,
        mut candidates: Vec<Candidate>,
        value: impl Fn(&Candidate, &Score, f64) -> f64,
    ) -> Result<Option<Valued>> {
        candidates.sort();
        candidates.dedup();
        for heat in 0..self.heats.len() {
            for candidate in &candidates {
                if self.out_of_time()? {
                    return Ok(None);
                }
                self.score_to(candidate, heat)?;
            }
            let of = |c: &Candidate, more| value(c, &self.known[c], more);
            // Equal values: the lower in order, so that a race has one outcome.
            candidates.sort_by(|a, b| of(b, 0.0).total_cmp(&of(a, 0.0)));
            let Some(leader) = candidates.first() else { return Ok(None) };
            let (lead, leader_score) = (of(leader, 0.0), &self.known[leader]);
            let survivors = candidates.len().div_ceil(2);
            let hopeful = |c: &Candidate| {
                let doubt = ERRORS * self.known[c].error_against(leader_score);
                of(c, doubt) >= lead
            };
            let stay: Vec<Candidate> =
                candidates.iter().take(survivors).filter(|c| hopeful(c)).cloned().collect();
            candidates = stay;
            if candidates.len() == 1 {
                break;
            }
        }
        let Some(winner) = candidates.into_iter().next() else { return Ok(None) };
        if self.out_of_time()? {
            return Ok(None);
        }
        let score = self.score(&winner)?.clone();
        let value = value(&winner, &score, 0.0);
        Ok(Some((winner, value)))
    }

    /// Judges one candidate, and gives up as soon as it cannot come near `mark`. Its value so far.
    pub fn challenge(&mut self, candidate: &Candidate, mark: f64) -> Result<f64> {
        let mut value = f64::NEG_INFINITY;
        for heat in 0..self.heats.len() {
            if heat > 0 && self.out_of_time()? {
                break;
            }
            let score = self.score_to(candidate, heat)?.clone();
            value = self.value(candidate, &score);
            let (a, n) = (score.agreement(), score.positions() as f64);
            let doubt = ERRORS * ((a * (1.0 - a) * n + 1.0).sqrt() / n);
            if self.objective.value_at(&self.costs, candidate, &score, doubt) < mark {
                break;
            }
        }
        Ok(value)
    }
}

pub(super) fn interrupted() -> Error {
    Error::Input(
        "interrupted; what was evaluated is in the journal, and the same command goes on from there".into(),
    )
}
