//! Reports what speculation did in a run, and what it gained.

use std::fmt;

use serde_json::{Value, json};

use super::{
    costs::Costs,
    policy::{Policy, Round, SourceInfo, Speedup},
    proposer::Made,
};
use crate::{backend::Spent, words::count};

/// What drafting did and what it cost.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// All rounds that drafted.
    pub drafting: Tally,
    /// Steps without a draft, after the first token.
    pub plain_steps: usize,
    /// Of these, those where nothing could be drafted, by reason. The others were the policy's choice.
    pub undrafted: Undrafted,
    /// By source, its rounds.
    pub sources: Vec<(SourceInfo, Tally)>,
    /// By position in the draft: how often there was a token, how often it was accepted.
    pub by_position: Vec<(usize, usize)>,
    /// By number of rows, the full model's passes from the first layer to the last, and their seconds.
    pub passes: Vec<(usize, f64)>,
    /// The same of those that went on from a draft's rows.
    pub resumed: Vec<(usize, f64)>,
    /// Of the first rejected tokens: how often the right one was the draft's 2nd, 3rd, 4th, 5th choice, or neither.
    pub needed: [usize; 5],
    /// Drafts that the context's room cut short.
    pub shortened: usize,
    /// Drafts that computed logits, and the shares of the vocabulary that they had, summed.
    pub vocabulary: (usize, f64),
    /// Seconds of drafting.
    pub draft_seconds: f64,
    /// Seconds of the full model's passes, plain steps among them.
    pub verify_seconds: f64,
    /// Seconds of everything else.
    pub other_seconds: f64,
    /// Drafting by where the weights were, if the model is divided.
    pub draft_spent: Spent,
    /// The same of verifications.
    pub verify_spent: Spent,
    /// Seconds of trying sources on text that was there.
    pub trial_seconds: f64,
    /// The costs that the policy assumed at the end, if it did: T(n)/T(1) and the draft steps, by source.
    pub believed: Option<Costs>,
    /// Against plain decoding.
    pub speedup: Speedup,
    /// Why nothing was drafted, or drafting was given up.
    pub off_reason: Option<String>,
}

/// Plain steps of a text that is alone, by why nothing could be drafted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undrafted {
    /// Weights were still being rearranged: see [`ContextConfig::pack_later`](crate::ContextConfig::pack_later).
    pub packing: usize,
    /// There was no room for a draft: the context was full, or only one more token was asked for.
    pub no_room: usize,
    /// No source had anything to draft, as where a lookup finds nothing.
    pub nothing: usize,
}

impl Undrafted {
    /// In words; `None` if there were none.
    fn describe(self) -> Option<String> {
        let parts = [
            (self.packing, "while weights were rearranged"),
            (self.no_room, "without room for a draft"),
            (self.nothing, "where there was nothing to draft from"),
        ];
        let parts: Vec<_> = parts
            .iter()
            .filter(|(steps, _)| *steps > 0)
            .map(|(steps, why)| format!("{steps} {why}"))
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Sums over rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Rounds with a draft.
    pub rounds: usize,
    /// Tokens drafted.
    pub drafted: usize,
    /// Steps that drafting them took: fewer than tokens where steps checked guesses.
    pub draft_steps: usize,
    /// Drafted tokens that were accepted.
    pub accepted: usize,
    /// Other candidates for a draft's first token that were verified, and those of them that were accepted.
    pub others: (usize, usize),
    /// Seconds of drafting.
    pub draft_seconds: f64,
    /// Rounds whose verification went on from the draft's rows.
    pub resumed: usize,
}

impl Tally {
    fn add(&mut self, round: &Round) {
        self.rounds += 1;
        self.drafted += round.drafted.len();
        self.draft_steps += round.draft_steps;
        self.accepted += round.accepted;
        self.others.0 += round.others.len();
        self.others.1 += usize::from(round.other.is_some());
        self.draft_seconds += round.draft_seconds;
        self.resumed += usize::from(round.from_layer > 0);
    }

    /// The share of drafted tokens that were accepted.
    pub fn acceptance(&self) -> Option<f64> {
        ratio(self.accepted as f64, self.drafted as f64)
    }

    /// Tokens that joined the text per round.
    pub fn tokens_per_round(&self) -> Option<f64> {
        ratio((self.accepted + self.others.1 + self.rounds) as f64, self.rounds as f64)
    }
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

impl Report {
    pub fn new(sources: Vec<SourceInfo>) -> Self {
        Report { sources: sources.into_iter().map(|s| (s, Tally::default())).collect(), ..Self::default() }
    }

    /// Why no round drafted, in a few words.
    pub fn why_nothing(&self) -> &str {
        match &self.off_reason {
            Some(reason) => reason,
            None if self.plain_steps > 0 && self.undrafted.packing == self.plain_steps => {
                "the text ended before the weights were rearranged"
            }
            None => "there was nothing to draft from",
        }
    }

    /// The report of a run by plain decoding.
    pub fn off(reason: &str) -> Self {
        Report { off_reason: Some(reason.into()), ..Self::default() }
    }

    /// Adds a round. `next` is the token that followed the accepted ones.
    pub fn record(&mut self, round: &Round, next: u32, made: &Made) {
        self.draft_seconds += round.draft_seconds;
        self.verify_seconds += round.verify_seconds;
        self.other_seconds += round.other_seconds;
        let rows = round.rows();
        let passes = if round.from_layer == 0 { &mut self.passes } else { &mut self.resumed };
        passes.resize(passes.len().max(rows), (0, 0.0));
        passes[rows - 1].0 += 1;
        passes[rows - 1].1 += round.verify_seconds;
        let Some(source) = round.source else {
            self.plain_steps += 1;
            return;
        };
        self.drafting.add(round);
        self.sources[source].1.add(round);
        self.by_position.resize(self.by_position.len().max(round.drafted.len()), (0, 0));
        for (position, (drafted, accepted)) in self.by_position[..round.drafted.len()].iter_mut().enumerate()
        {
            *drafted += 1;
            *accepted += usize::from(position < round.accepted);
        }
        if let Some(candidates) = made.candidates.get(round.accepted).filter(|c| !c.is_empty()) {
            // Best first, so index 1 is the second choice; a drawn token may even have missed the first.
            let rank = candidates.iter().position(|&id| id == next).unwrap_or(candidates.len());
            self.needed[rank.clamp(1, 5) - 1] += 1;
        }
    }

    /// Adds a draft that chose from this share of the vocabulary.
    pub fn saw_vocabulary(&mut self, share: f64) {
        self.vocabulary.0 += 1;
        self.vocabulary.1 += share;
    }

    /// The share of the vocabulary that drafts chose from, on average.
    pub fn vocabulary_share(&self) -> Option<f64> {
        ratio(self.vocabulary.1, self.vocabulary.0 as f64)
    }

    pub fn spent(&mut self, drafting: Spent, verifying: Spent) {
        self.draft_spent.add(drafting);
        self.verify_spent.add(verifying);
    }

    pub fn finish(&mut self, policy: &dyn Policy) {
        self.believed = policy.controller().map(|controller| controller.costs().clone());
        self.speedup = policy.speedup();
        self.off_reason = policy.off_reason();
    }

    /// Seconds of a full pass over so many rows.
    fn pass_seconds(&self, rows: usize) -> Option<f64> {
        let &(count, seconds) = self.passes.get(rows.checked_sub(1)?)?;
        ratio(seconds, count as f64)
    }

    /// T(n)/T(1): as the policy assumed it, or else as measured, where there were plain steps.
    pub fn rows(&self, n: usize) -> Option<f64> {
        match &self.believed {
            Some(costs) => Some(costs.rows(n)),
            None => ratio(self.pass_seconds(n)?, self.pass_seconds(1)?),
        }
    }

    /// A draft step in plain steps, the mean over all that were made; as with [`Report::rows`].
    pub fn draft_cost(&self) -> Option<f64> {
        if let Some(costs) = &self.believed {
            let all = self.sources.iter().enumerate();
            let sum = all.map(|(source, (_, tally))| costs.draft(source) * tally.draft_steps as f64).sum();
            return ratio(sum, self.drafting.draft_steps as f64);
        }
        let step = ratio(self.drafting.draft_seconds, self.drafting.draft_steps as f64)?;
        ratio(step, self.pass_seconds(1)?)
    }

    /// Shares of the time spent drafting, verifying (plain steps included) and on the rest.
    pub fn shares(&self) -> Option<[f64; 3]> {
        let parts = [self.draft_seconds, self.verify_seconds, self.other_seconds + self.trial_seconds];
        let total: f64 = parts.iter().sum();
        (total > 0.0).then(|| parts.map(|part| part / total))
    }

    /// Whether passes read weights from more than RAM.
    fn is_divided(&self) -> bool {
        let [draft, verify] = [self.draft_spent, self.verify_spent];
        draft.vram + draft.file + verify.vram + verify.file > 0.0
    }

    /// All of it as JSON.
    pub fn to_json(&self) -> Value {
        let by_position = self.by_position.iter().map(|&(drafted, accepted)| {
            json!({
                "drafted": drafted,
                "accepted": accepted,
                "acceptance": ratio(accepted as f64, drafted as f64),
            })
        });
        let sources = self.sources.iter().enumerate().map(|(source, (info, tally))| {
            json!({
                "name": info.name,
                "cost": self.believed.as_ref().map_or(info.cost, |costs| costs.draft(source)),
                "kind": info.kind.name(),
                "rounds": tally.rounds,
                "drafted": tally.drafted,
                "draft_steps": tally.draft_steps,
                "accepted": tally.accepted,
                "others": tally.others.0,
                "others_accepted": tally.others.1,
                "acceptance": tally.acceptance(),
                "draft_ms": tally.draft_seconds * 1e3,
                "prefix": info.prefix.map(|p| json!({"layers": p.layers, "share": p.share})),
                "resumed_rounds": tally.resumed,
            })
        });
        let passes = self.passes.iter().enumerate().filter(|(_, pass)| pass.0 > 0);
        let passes = passes.map(|(i, &(count, seconds))| {
            json!({
                "n": i + 1,
                "passes": count,
                "ms": seconds / count as f64 * 1e3,
                "ratio": self.rows(i + 1),
            })
        });
        let resumed = self.resumed.iter().enumerate().filter(|(_, pass)| pass.0 > 0);
        let resumed = resumed.map(
            |(i, &(count, seconds))| json!({"n": i + 1, "passes": count, "ms": seconds / count as f64 * 1e3}),
        );
        let places = |spent: Spent| {
            let divided = self.is_divided() && spent.total() > 0.0;
            divided
                .then(|| spent.shares())
                .map(|[vram, ram, file]| json!({"vram": vram, "ram": ram, "file": file}))
        };
        let [draft, verify, rest] = self.shares().unwrap_or_default();
        let [second, third, fourth, fifth, none] = self.needed;
        let Undrafted { packing, no_room, nothing } = self.undrafted;
        json!({
            "rounds": self.drafting.rounds,
            "plain_steps": self.plain_steps,
            "undrafted": {"packing": packing, "no_room": no_room, "nothing": nothing},
            "drafted": self.drafting.drafted,
            "accepted": self.drafting.accepted,
            "acceptance": self.drafting.acceptance(),
            "by_position": by_position.collect::<Vec<_>>(),
            "tokens_per_round": self.drafting.tokens_per_round(),
            "sources": sources.collect::<Vec<_>>(),
            "draft_cost": self.draft_cost(),
            "verify": passes.collect::<Vec<_>>(),
            "resumed": resumed.collect::<Vec<_>>(),
            "shares": {"draft": draft, "verify": verify, "rest": rest},
            "places": {"draft": places(self.draft_spent), "verify": places(self.verify_spent)},
            "needed": {"2nd": second, "3rd": third, "4th": fourth, "5th": fifth, "other": none},
            "shortened": self.shortened,
            "vocabulary": self.vocabulary_share(),
            "predicted_speedup": self.speedup.predicted,
            "measured_speedup": self.speedup.measured,
            "off_reason": self.off_reason,
        })
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:.0}", share * 100.0))
}

impl fmt::Display for Report {
    /// A few lines for a person, the last without a line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { rounds, drafted, accepted, .. } = self.drafting;
        if rounds == 0 {
            return match &self.off_reason {
                Some(reason) => write!(f, "speculation: off: {reason}"),
                None => write!(f, "speculation: nothing was drafted: {}", self.why_nothing()),
            };
        }
        let positions: Vec<_> =
            self.by_position.iter().take(8).map(|&(d, a)| percent(ratio(a as f64, d as f64))).collect();
        write!(
            f,
            "speculation: {} of {:.1} tokens on average, {}; {accepted} of {drafted} drafted tokens accepted, {} % (by position in the draft: {})",
            count(rounds, "round"),
            self.drafting.tokens_per_round().unwrap_or_default(),
            count(self.plain_steps, "plain step"),
            percent(self.drafting.acceptance()),
            positions.join(" "),
        )?;
        let used = self.sources.iter().filter(|(_, tally)| tally.rounds > 0);
        let used: Vec<_> = used
            .map(|(info, t)| {
                let (rounds, drafted) = (count(t.rounds, "round"), count(t.drafted, "token"));
                let by_guesses = match t.draft_steps < t.drafted {
                    true => format!(" in {} with guesses", count(t.draft_steps, "step")),
                    false => String::new(),
                };
                format!("{}: {rounds}, {} % of {drafted}{by_guesses}", info.name, percent(t.acceptance()))
            })
            .collect();
        write!(f, "\n  by source: {}", used.join("; "))?;
        if let Some(undrafted) = self.undrafted.describe() {
            write!(f, "\n  plain steps: {undrafted}")?;
        }
        if let Some([draft, verify, rest]) = self.shares().map(|shares| shares.map(|s| percent(Some(s)))) {
            write!(f, "\n  time: {draft} % drafting, {verify} % verifying, {rest} % the rest")?;
        }
        if let Some(cost) = self.draft_cost() {
            let used = (2..=self.passes.len()).filter(|n| self.passes[n - 1].0 > 0).take(6);
            let curve: Vec<_> = used.filter_map(|n| Some(format!("T({n}) {:.2}", self.rows(n)?))).collect();
            write!(
                f,
                "\n  in units of a plain step: a draft step {cost:.2}, a pass over n rows {}",
                curve.join(", ")
            )?;
        }
        for (info, tally) in self.sources.iter().filter(|(_, tally)| tally.resumed > 0) {
            let layer = info.prefix.map_or(0, |prefix| prefix.layers);
            let Tally { rounds, resumed, .. } = tally;
            write!(
                f,
                "\n  {}: verification started at layer {layer} in {resumed} of {}",
                info.name,
                count(*rounds, "round")
            )?;
        }
        if self.is_divided() {
            write!(f, "\n  by place: drafting {}; verifying {}", self.draft_spent, self.verify_spent)?;
        }
        if self.needed.iter().sum::<usize>() > 0 {
            let [second, third, fourth, fifth, none] = self.needed;
            write!(
                f,
                "\n  where a drafted token was rejected, the right one was the draft's 2nd choice {second} times, 3rd {third}, 4th {fourth}, 5th {fifth}, none of these {none}"
            )?;
        }
        if let Some(share) = self.vocabulary_share().filter(|&share| share < 1.0) {
            write!(f, "\n  drafts chose among {} % of the vocabulary on average", percent(Some(share)))?;
        }
        if self.shortened > 0 {
            write!(f, "\n  {} cut short for lack of room in the context", count(self.shortened, "draft"))?;
        }
        let times = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.2}"));
        if self.speedup != Speedup::default() {
            let Speedup { predicted, measured } = self.speedup;
            write!(f, "\n  speedup: {} predicted, {} measured", times(predicted), times(measured))?;
        }
        match &self.off_reason {
            Some(reason) => write!(f, "\n  speculation was turned off: {reason}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_steps_are_told_by_why() {
        let undrafted = Undrafted { packing: 31, no_room: 1, nothing: 0 };
        let drafting = Tally { rounds: 9, drafted: 34, accepted: 23, ..Tally::default() };
        let report = Report { plain_steps: 32, undrafted, drafting, ..Report::default() };
        let told = report.to_string();
        assert!(told.contains("32 plain steps; "), "{told}");
        let line = "plain steps: 31 while weights were rearranged, 1 without room for a draft";
        assert_eq!(told.lines().filter(|told| told.trim() == line).count(), 1, "{told}");
        assert_eq!(report.to_json()["undrafted"]["packing"], 31);
    }

    #[test]
    fn a_text_that_ends_while_weights_are_rearranged_says_so() {
        let undrafted = Undrafted { packing: 7, ..Undrafted::default() };
        let mut report = Report { plain_steps: 7, undrafted, ..Report::default() };
        assert_eq!(report.why_nothing(), "the text ended before the weights were rearranged");
        report.plain_steps = 8;
        assert_eq!(report.why_nothing(), "there was nothing to draft from");
        assert_eq!(Report::off("asked for").why_nothing(), "asked for");
    }
}
