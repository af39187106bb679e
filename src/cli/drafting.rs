//! Who decides about drafts in a run, and what stays of it.

use super::{draft_args::DraftArgs, learned_args::LearnedArgs, output::warning};
use crate::{
    Context, Result,
    measure::load,
    speculation::{
        Controller, Fixed, Policy, Proposer, Report, SourceKind,
        learned::{Learned, Store, Subject, prepare_for},
    },
    words::count,
};

pub struct Drafting {
    pub proposers: Vec<Box<dyn Proposer>>,
    decider: Decider,
}

enum Decider {
    Fixed(Fixed),
    Controller(Box<Controller>, Option<(Store, Subject)>),
}

impl Drafting {
    /// Fixed numbers if the flags give any; else the controller, with what earlier runs have learnt or what a short
    /// measurement tells.
    pub fn new(
        args: &DraftArgs,
        learned: &LearnedArgs,
        proposers: Vec<Box<dyn Proposer>>,
        context: &mut Context,
        greedy: bool,
    ) -> Result<Self> {
        if let Some(fixed) = args.fixed() {
            return Ok(Drafting { proposers, decider: Decider::Fixed(fixed) });
        }
        let (controller, memory) = controller(learned, &proposers, context, greedy)?;
        Ok(Drafting { proposers, decider: Decider::Controller(Box::new(controller), memory) })
    }

    pub fn parts(&mut self) -> (&mut [Box<dyn Proposer>], &mut dyn Policy) {
        let policy: &mut dyn Policy = match &mut self.decider {
            Decider::Fixed(fixed) => fixed,
            Decider::Controller(controller, _) => &mut **controller,
        };
        (&mut self.proposers, policy)
    }

    /// Keeps what was learnt; a run that went well is no failure because of that.
    pub fn keep(&self) {
        if let Decider::Controller(controller, memory) = &self.decider {
            keep(controller, memory);
        }
    }
}

/// Where what is learnt of a model is kept.
pub type Memory = Option<(Store, Subject)>;

/// Decides by what earlier runs have learnt, or by what a short measurement tells.
pub fn controller(
    learned: &LearnedArgs,
    proposers: &[Box<dyn Proposer>],
    context: &mut Context,
    greedy: bool,
) -> Result<(Controller, Memory)> {
    let memory = learned.store().map(|store| (store, Subject::new(context, greedy)));
    let known = memory.as_ref().and_then(|(store, subject)| store.recall(subject));
    Ok((prepare_for(context, proposers, known)?, memory))
}

/// Keeps what was learnt; a run that went well is no failure because of that.
pub fn keep(controller: &Controller, memory: &Memory) {
    let Some((store, subject)) = memory else { return };
    let learned = Learned::of(controller);
    let learned = match load().is_some_and(|load| load.is_high()) {
        true => learned.crowded(store.recall(subject)),
        false => learned,
    };
    if let Err(error) = store.keep(subject, &learned) {
        warning!("what was learnt is not kept: {error} (see --no-learn)");
    }
}

/// What drafting gave, or why it gave nothing, in a line.
pub fn summary(report: &Report, threads: usize) -> String {
    let tally = &report.drafting;
    if tally.rounds == 0 {
        return format!("no drafting: {}", report.why_nothing());
    }
    let accepted = format!("{} of {} accepted", tally.accepted, count(tally.drafted, "drafted token"));
    let off = if report.off_reason.is_some() { " and was turned off" } else { "" };
    match report.speedup.measured.or(report.speedup.predicted) {
        None => format!("drafting: {accepted} (-v: details)"),
        Some(times) if times >= 1.0 => {
            format!("drafting: {accepted}, {times:.2} times plain decoding (-v: details)")
        }
        Some(times) => {
            let busy = busy(threads).map_or(String::new(), |busy| format!("; {busy}"));
            let head = if may_have_a_head(report) { "; a head made by `spec-run fit` may pay" } else { "" };
            format!(
                "drafting did not pay here{off} ({times:.2} times plain decoding{busy}{head}; -v: details)"
            )
        }
    }
}

/// Whether nothing drafted that was trained to, and a head can be made.
fn may_have_a_head(report: &Report) -> bool {
    use SourceKind as Kind;
    let is_trained = |kind| matches!(kind, Kind::Head | Kind::Mtp | Kind::Model | Kind::Other);
    cfg!(feature = "fit") && !report.sources.iter().any(|(source, _)| is_trained(source.kind))
}

/// That others want the cores too, where they do: then threads wait for each other.
fn busy(threads: usize) -> Option<String> {
    let load = load().filter(|load| load.is_high())?;
    let advice = if threads > 1 { ", try -t 1" } else { "" };
    Some(format!("the machine is busy: {load}{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculation::{SourceInfo, Speedup};

    /// Where drafts lost, a head is named to those who have none.
    #[test]
    fn a_head_is_named_where_drafts_lost_without_one() {
        let of = |kind, times| {
            let source = SourceInfo { name: "it".into(), kind, cost: 0.5, chance: 0.5, prefix: None };
            let mut report = Report::new(vec![source]);
            report.drafting.rounds = 1;
            report.speedup = Speedup { predicted: None, measured: Some(times) };
            summary(&report, 1).contains("spec-run fit")
        };
        assert_eq!(of(SourceKind::Mask, 0.9), cfg!(feature = "fit"));
        assert!(!of(SourceKind::Mask, 1.1) && !of(SourceKind::Head, 0.9) && !of(SourceKind::Mtp, 0.9));
    }
}
