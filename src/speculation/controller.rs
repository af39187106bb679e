//! The policy that needs no settings: one cost model decides whether to draft, from which source, and how far.
//!
//! Everything is counted in plain steps, T(1). A round that drafts `k` tokens with step cost `c` takes
//! `C(k) = k·c + V(k)` and gives `E(k) = 1 + a₁ + a₁a₂ + …` tokens, `aᵢ` the chance that the i-th is accepted. `V(k)` is
//! `T(k+1)`, or less where verification goes on from what the draft's own layers made.
//!
//! *Which source*: the one with the highest rate `max E(k)/C(k)`, if that is above 1, the rate of plain steps. A
//! source that is little known counts with what its chances may well be, so it is tried (UCB1's optimism).
//!
//! *How far*: renewal theory says that the long-run rate is best when each round maximizes `E − λ·C`, with λ the
//! best rate there is. After `n` tokens, which are all accepted with chance `s`, going on for `m` more adds
//! `s·(a + … + aᵐ)` tokens and costs `C(n+m) − C(n)`. So: draft on if for some `m` the first is more
//! than λ times the second. Looking beyond `m = 1` matters where T has steps.
//!
//! *Never slower*: losses against plain steps are paid from an account. It begins with [`START`] plain steps and
//! gets [`INCOME`] of one for every token; a round that could lose more than is in it does not take place. So
//! after n tokens at most `START + INCOME·n` plain steps are lost, whatever the sources do; 512 tokens then take
//! no more than 1.02 of their time. What a round gains goes to the account too, up to [`SAVINGS`]. An engine's texts begin with
//! what is left of it, so many short texts together lose no more than a long one.
//!
//! A source that lost is asked again after 16 tokens, then 32, 64, …; one right answer makes the next probe
//! follow at once. While speculation is on, two plain steps are put in now and then, at a price of half a percent
//! and a quarter of a plain step, because only that shows what a plain step costs by now.
//!
//! There is no clock and no chance in here: the same rounds and the same costs give the same choices. With
//! [`Costs::frozen`] the choices depend on the tokens alone, so that a seed repeats a sampled run to the token;
//! otherwise timings decide how many random numbers a round draws, and two runs with one seed are two samples of
//! the same distribution. Greedy text is the same either way.

use super::{
    arm::{Arm, Experience, Memory, memory_key},
    costs::{Costs, MOST_ROWS, expected_tokens},
    plain_steps::PlainSteps,
    policy::{Drafted, Offer, Policy, Ready, Round, RoundChoice, SourceInfo, Speedup},
};

/// Plain steps that may be lost before anything is known.
pub const START: f64 = 3.0;
/// Plain steps that may be lost per token.
pub const INCOME: f64 = 0.01;
/// The most that gains are good for later.
pub const SAVINGS: f64 = 8.0;

/// Plain steps that trying a source on the text that is there may cost.
const TRIAL_PRICE: f64 = 2.0;
/// A draft step that takes so many times the way to the device and back is long: seeing its token before the next is
/// worth that way.
const LONG_STEP: f64 = 20.0;
/// Seconds of that way where nobody measured it.
const USUAL_WAY: f64 = 50e-6;
/// A time so many times the expected one is somebody else's; it counts as that, for plain steps and rounds alike.
pub(crate) const SPIKE: f64 = 2.0;

/// A draft of `tokens` and what it brings in tokens per plain step.
#[derive(Clone, Copy, Debug, Default)]
struct DraftPlan {
    tokens: usize,
    rate: f64,
}

/// The round that was chosen and is not yet recorded.
#[derive(Clone, Copy, Debug)]
struct Pending {
    most: usize,
    /// The length with the best rate by what was known before.
    length: usize,
    ready: Option<Ready>,
    /// By the plan, tokens per plain step.
    rate: f64,
    probe: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    seconds: f64,
    expected_tokens: f64,
    expected_cost: f64,
}

/// Why the last round was what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing was ever offered.
    NothingOffered,
    On,
    /// Nothing that was offered is expected to win.
    Loses,
}

/// Decides by what passes cost and how often drafts are accepted, both learnt on the way.
#[derive(Clone, Debug)]
pub struct Controller {
    costs: Costs,
    memory: Memory,
    arms: Vec<Arm>,
    /// The best rate there is, at least 1.
    rate: f64,
    account: f64,
    /// What the account had at first.
    began_with: f64,
    /// Tokens so far.
    tokens: usize,
    plain: PlainSteps,
    pending: Option<Pending>,
    standing: Standing,
    tally: Tally,
    /// Seconds to the device and back.
    way: f64,
    /// Seconds of the prompt for each of its tokens.
    prompt_row: Option<f64>,
}

impl Controller {
    /// `costs` for the sources that [`Policy::start`] will name, in their order.
    pub fn new(costs: Costs, memory: Memory) -> Self {
        Controller {
            costs,
            memory,
            arms: Vec::new(),
            rate: 1.0,
            account: START,
            began_with: START,
            tokens: 0,
            plain: PlainSteps::new(),
            pending: None,
            standing: Standing::NothingOffered,
            tally: Tally::default(),
            way: USUAL_WAY,
            prompt_row: None,
        }
    }

    /// For a new text that these sources draft: with what is known of them, of costs, and of what drafting has cost other
    /// texts.
    pub(crate) fn for_text(&self, sources: &[SourceInfo]) -> Self {
        let cost = |source: &SourceInfo| {
            let known = self.arms.iter().position(|arm| arm.info == *source)?;
            Some(self.costs.draft(known))
        };
        // Those of a text that is not drafted are among them.
        let known = sources.len() <= self.arms.len() && self.sources().zip(sources).all(|(a, b)| a == b);
        let costs = if known {
            self.costs.clone()
        } else {
            let draft: Vec<_> = sources.iter().map(cost).collect();
            Costs::recalled(sources, self.costs.all_rows(), &draft)
        };
        let mut policy = Controller::new(costs, self.memory()).with_round_trip(Some(self.way));
        policy.begin(self.account.min(START));
        policy.start(sources);
        policy
    }

    fn begin(&mut self, account: f64) {
        (self.account, self.began_with) = (account, account);
    }

    /// A text has ended: takes over what its controller knows. What it lost, other texts do not lose as well.
    pub(crate) fn learn_of(&mut self, text: &Controller) {
        self.memory.extend(text.memory());
        for arm in &mut self.arms {
            if let Some(known) = self.memory.get(&memory_key(&arm.info)) {
                arm.known = known.clone();
            }
        }
        if self.sources().eq(text.sources()) {
            self.costs = text.costs.clone();
        }
        self.account = (self.account + text.account - text.began_with).clamp(0.0, SAVINGS);
    }

    /// On a device to which and back a way takes so many seconds, if that is known.
    pub fn with_round_trip(self, seconds: Option<f64>) -> Self {
        Controller { way: seconds.unwrap_or(self.way), ..self }
    }

    /// What it reckons passes to cost.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// All that is known of sources, those of which something was seen in this run and those remembered.
    pub fn memory(&self) -> Memory {
        let mut memory = self.memory.clone();
        let seen = self.arms.iter().filter(|arm| arm.tried || arm.trials > 0);
        memory.extend(seen.map(|arm| (memory_key(&arm.info), arm.known.clone())));
        memory
    }

    /// The sources of this run.
    pub fn sources(&self) -> impl Iterator<Item = &SourceInfo> {
        self.arms.iter().map(|arm| &arm.info)
    }

    /// The draft length with the best rate.
    fn plan(&self, offer: &Offer, most: usize, deviations: f64) -> DraftPlan {
        let arm = &self.arms[offer.source];
        let mut best = DraftPlan::default();
        let (mut survival, mut expected) = (1.0, 1.0);
        for k in 1..=most {
            let evidence = arm.before(offer.ready, k - 1);
            survival *= arm.known.before.hopeful_chance(evidence, deviations);
            expected += survival;
            let cost = self.costs.round(offer.source, k);
            if expected / cost > best.rate {
                best = DraftPlan { tokens: k, rate: expected / cost };
            }
            // Even if all that follow were sure to be accepted.
            if (expected + survival * (most - k) as f64) / cost < best.rate {
                break;
            }
        }
        best.rate *= arm.yields();
        best
    }

    /// The longest draft that makes sense.
    fn most(&self, offer: &Offer) -> usize {
        offer.ready.map_or(offer.most, |ready| offer.most.min(ready.tokens)).min(MOST_ROWS - 1)
    }

    /// The longest of these that the account can pay for if none of it is accepted.
    fn affordable(&self, offer: &Offer) -> usize {
        let loss = |k: usize| self.costs.round(offer.source, k) - 1.0;
        (1..=self.most(offer)).take_while(|&k| loss(k) <= self.account).count()
    }

    /// The offer that may well be the best. If the account cannot pay for it, it is saved for: cheaper ones that
    /// promise less would eat up what comes in.
    fn best<'a>(&self, offers: impl Iterator<Item = &'a Offer>) -> Option<&'a Offer> {
        let hope = |offer: &Offer| self.plan(offer, self.most(offer), 1.0).rate;
        offers.map(|offer| (offer, hope(offer))).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(offer, _)| offer)
    }

    fn draft(&mut self, offer: &Offer, most: usize, plan: DraftPlan, probe: bool) -> RoundChoice {
        if most == 0 {
            return RoundChoice::Plain;
        }
        let length = plan.tokens.clamp(1, most);
        self.pending = Some(Pending { most, length, ready: offer.ready, rate: plan.rate, probe });
        RoundChoice::Draft { source: offer.source, most }
    }

    /// A masked pass over so many rows, if rows cost the draft what they cost the full model: what is believed of so many, or
    /// what the prompt has shown, if that is more.
    fn trial_price(&self, source: usize, places: usize) -> f64 {
        let by_prompt = self.prompt_row.and_then(|seconds| self.costs.in_steps(seconds));
        let rows = self.costs.rows(places).max(places as f64 * by_prompt.unwrap_or(0.0));
        self.costs.draft(source) * rows
    }

    /// The source has steps, and neither an earlier run nor a trial has told of it.
    fn trial_is_due(&self, source: usize) -> bool {
        let arm = &self.arms[source];
        !arm.tried && !self.costs.looks_up(source) && !self.memory.contains_key(&memory_key(&arm.info))
    }

    fn learn(&mut self, source: usize, round: &Round, pending: &Pending, (expected, cost): (f64, f64)) {
        let arm = &mut self.arms[source];
        if pending.probe {
            arm.doubt();
        }
        arm.learn(round, pending.ready);
        arm.gave(expected, pending.rate * cost);
        arm.plan_probe(pending.probe, self.tokens);
    }

    /// Tokens that the drafted ones were worth before they were checked.
    fn expected(&self, source: usize, round: &Round, ready: Option<Ready>) -> f64 {
        let arm = &self.arms[source];
        let others = round.others.iter().enumerate();
        let others = others.map(|(rank, &other)| arm.known.others.chance(arm.other(other, rank)));
        let drafted =
            expected_tokens(round.drafted.iter().enumerate().map(|(place, &drafted)| match ready {
                Some(_) => arm.known.before.chance(arm.before(ready, place)),
                None => arm.known.after.chance(arm.after(drafted, place)),
            }));
        drafted + others.sum::<f64>()
    }
}

impl Policy for Controller {
    fn start(&mut self, sources: &[SourceInfo]) {
        if self.arms.iter().map(|arm| &arm.info).eq(sources) {
            return;
        }
        self.memory = self.memory();
        let known = |info: &SourceInfo| match self.memory.get(&memory_key(info)) {
            Some(known) => known.clone().recalled(),
            None => Experience::prior(info),
        };
        self.arms = sources.iter().map(|info| Arm::new(info, known(info))).collect();
    }

    fn choose(&mut self, offers: &[Offer]) -> RoundChoice {
        self.pending = None;
        let due = self.standing == Standing::On && self.plain.due(self.rate);
        if offers.is_empty() || due || !self.costs.anchored() {
            return RoundChoice::Plain;
        }
        let Some(best) = self.best(offers.iter()) else { return RoundChoice::Plain };
        let most = self.affordable(best);
        let plan = self.plan(best, most, 0.0);
        let optimism = 1.0 / (1.0 + self.arms[best.source].trials as f64 / 16.0);
        let hope = self.plan(best, self.most(best), optimism).rate;
        self.rate = plan.rate.max(1.0);
        if hope > 1.0 {
            self.standing = Standing::On;
            // What was looked up costs nothing before it is checked, so its length is decided here.
            let most = if best.ready.is_some() { plan.tokens } else { most };
            return self.draft(best, most, plan, false);
        }
        self.standing = Standing::Loses;
        let due = |offer: &&Offer| self.tokens >= self.arms[offer.source].probe_after;
        match self.best(offers.iter().filter(due)) {
            Some(offer) => self.draft(offer, self.affordable(offer).min(1), self.plan(offer, 1, 0.0), true),
            None => RoundChoice::Plain,
        }
    }

    fn draft_more(&self, source: usize, so_far: &[Drafted]) -> bool {
        let Some(pending) = self.pending.filter(|pending| so_far.len() < pending.most) else { return false };
        if pending.ready.is_some() {
            return true;
        }
        let arm = &self.arms[source];
        let n = so_far.len();
        let each = so_far.iter().enumerate();
        let survival: f64 = each.map(|(i, &d)| arm.known.after.chance(arm.after(d, i))).product();
        let (mut chance, mut gain) = (survival, 0.0);
        (1..=pending.most - n).any(|m| {
            chance *= arm.known.before.chance(arm.before(None, n + m - 1));
            gain += chance;
            let price = self.costs.round(source, n + m) - self.costs.round(source, n);
            gain > self.rate * price
        })
    }

    /// Each adds a row, and its chance of a token. The draft is paid already.
    fn others(&self, source: usize, drafted: usize, others: &[Drafted]) -> usize {
        let arm = &self.arms[source];
        let most = others.len().min(MOST_ROWS.saturating_sub(drafted + 1));
        let (mut chance, mut best) = (0.0, (0, 0.0));
        for (rank, &other) in others.iter().enumerate().take(most) {
            chance += arm.known.others.chance(arm.other(other, rank));
            let price = self.costs.rows(drafted + rank + 2) - self.costs.rows(drafted + 1);
            let affordable = self.costs.round(source, drafted) + price - 1.0 <= self.account;
            let gain = chance - self.rate * price;
            if affordable && gain > best.1 {
                best = (rank + 1, gain);
            }
        }
        best.0
    }

    /// While drafts lose, only where the source is about to be asked again.
    fn may_draft(&self, source: usize) -> bool {
        self.standing != Standing::Loses || self.tokens + 1 >= self.arms[source].probe_after
    }

    fn length(&self, source: usize, most: usize) -> Option<usize> {
        let step = self.costs.draft(source) * self.costs.in_steps(1.0).map_or(0.0, f64::recip);
        let pending = self.pending.filter(|_| step < LONG_STEP * self.way)?;
        Some(pending.length.min(most))
    }

    fn resumes(&self, source: usize, drafted: usize) -> bool {
        self.costs.resuming_pays(source, drafted.min(MOST_ROWS - 1) + 1)
    }

    fn record(&mut self, round: &Round) {
        let k = round.drafted.len();
        let gained = round.gained() as f64;
        self.tokens += round.gained();
        self.costs.drift();
        // Looking for something to draft is no part of a plain step, though it comes before each.
        let pass = round.verify_seconds + round.other_seconds;
        let pending = self.pending.take();
        let (expected, cost) = match (round.source, pending) {
            (Some(source), Some(pending)) if k > 0 => {
                self.costs.saw_draft(source, round.draft_seconds, k);
                match round.from_layer {
                    0 => self.costs.saw_rows(round.rows(), pass),
                    _ => self.costs.saw_resumed(source, k + 1, pass),
                }
                let expected = self.expected(source, round, pending.ready);
                let others = self.costs.rows(round.rows()) - self.costs.rows(k + 1);
                let cost = self.costs.round(source, k) + others;
                self.learn(source, round, &pending, (expected, cost));
                self.account = (self.account + gained - cost).min(SAVINGS);
                self.plain.saw_draft(gained, cost);
                (expected, cost)
            }
            _ => {
                self.plain.saw(pass);
                self.costs.saw_rows(1, pass);
                (1.0, 1.0)
            }
        };
        self.account = (self.account + INCOME * gained).min(SAVINGS);
        let tally = &mut self.tally;
        let longest = SPIKE * cost * self.costs.step_seconds();
        tally.seconds += (round.draft_seconds + pass).min(longest);
        tally.expected_tokens += expected;
        tally.expected_cost += cost;
    }

    fn chance(&self, offer: &Offer, place: usize) -> f64 {
        let arm = &self.arms[offer.source];
        arm.known.before.chance(arm.before(offer.ready, place))
    }

    fn chance_of(&self, offer: &Offer, place: usize, drafted: Drafted) -> f64 {
        let arm = &self.arms[offer.source];
        match offer.ready {
            Some(_) => self.chance(offer, place),
            None => arm.known.after.chance(arm.after(drafted, place)),
        }
    }

    fn record_acceptance(&mut self, offer: &Offer, round: &Round) {
        self.arms[offer.source].learn(round, offer.ready);
    }

    fn settle(&mut self, gained: usize, rounds: f64) {
        self.account = (self.account + gained as f64 * (1.0 + INCOME) - rounds).min(SAVINGS);
    }

    fn balance(&self) -> f64 {
        self.account
    }

    fn costs(&self) -> Option<&Costs> {
        Some(&self.costs)
    }

    /// A short prompt says little of what a row takes.
    fn saw_prompt(&mut self, tokens: usize, seconds: f64) {
        const LEAST: usize = 16;
        if tokens >= LEAST {
            self.prompt_row = Some(seconds / tokens as f64);
        }
    }

    /// Only the source that may well be the best: what is spent on others is not there for it.
    fn wants_trial(&self, source: usize, places: usize) -> bool {
        let steps = (0..self.arms.len()).filter(|&source| !self.costs.looks_up(source));
        let offers: Vec<Offer> =
            steps.map(|source| Offer { source, most: usize::MAX, ready: None }).collect();
        self.trial_is_due(source)
            && self.trial_price(source, places) <= TRIAL_PRICE.min(self.account)
            && self.best(offers.iter()).is_some_and(|best| best.source == source)
    }

    fn tried(&mut self, source: usize, places: &[(Drafted, bool)], seconds: f64) {
        let price = self.trial_price(source, places.len());
        let price = self.costs.in_steps(seconds).map_or(price, |steps| steps.min(SPIKE * price));
        self.account -= price;
        self.tally.seconds += seconds;
        self.tally.expected_cost += price;
        let arm = &mut self.arms[source];
        arm.tried = true;
        for &(drafted, accepted) in places {
            let (before, after) = (arm.before(None, 0), arm.after(drafted, 0));
            arm.known.before.learn(before, accepted);
            arm.known.after.learn(after, accepted);
            arm.trials += 1;
            arm.accepted += usize::from(accepted);
        }
    }

    fn off_reason(&self) -> Option<String> {
        match self.standing {
            Standing::On => None,
            Standing::NothingOffered => Some("no source had anything to draft".into()),
            Standing::Loses => {
                // What was tried has lost by evidence; a source that was not is named only where none was.
                let any_tried = self.arms.iter().any(|arm| arm.trials > 0);
                let named = self.arms.iter().enumerate().filter(|(_, arm)| !any_tried || arm.trials > 0);
                let best = named.max_by(|(a, _), (b, _)| {
                    let rate = |source: usize| {
                        let offer = Offer { source, most: MOST_ROWS - 1, ready: None };
                        self.plan(&offer, MOST_ROWS - 1, 0.0).rate
                    };
                    rate(*a).total_cmp(&rate(*b))
                });
                let (source, arm) = best?;
                let (draft, row) = (self.costs.draft(source), self.costs.rows(2) - 1.0);
                let price = if self.costs.looks_up(source) {
                    format!("a second row costs {row:.2} of a plain step")
                } else {
                    format!("a draft step costs {draft:.2} of a plain step and a second row {row:.2}")
                };
                let seen = match arm.trials {
                    0 => "it was not tried, by what earlier runs have shown".into(),
                    trials => format!("{} of its {trials} checked tokens were", arm.accepted),
                };
                Some(match draft + row {
                    even if even >= 1.0 => format!("drafting cannot win here: {price}"),
                    even => format!(
                        "`{}`, the best source, is slower than plain steps: {price}, so {:.0} % of its tokens must be accepted, and {seen}",
                        arm.info.name,
                        100.0 * even
                    ),
                })
            }
        }
    }

    fn speedup(&self) -> Speedup {
        let tally = &self.tally;
        let ratio = |a: f64, b: f64| (b > 0.0).then_some(a / b).filter(|r| r.is_finite());
        Speedup {
            predicted: ratio(tally.expected_tokens, tally.expected_cost),
            measured: self.plain.would_have_taken().and_then(|plain| ratio(plain, tally.seconds)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> [SourceInfo; 1] {
        [SourceInfo::mask("half", 0.5)]
    }

    /// Rounds of one text, in which drafts are never right; gives how many there were.
    fn drafts_in_vain(policy: &mut Controller, rounds: usize) -> usize {
        let drafted = [Drafted { confidence: 0.8 }];
        let mut drafts = 0;
        for _ in 0..rounds {
            let choice = policy.choose(&[Offer { source: 0, most: 1, ready: None }]);
            let k = usize::from(choice != RoundChoice::Plain);
            drafts += k;
            policy.record(&Round {
                source: (k > 0).then_some(0),
                drafted: &drafted[..k],
                accepted: 0,
                others: &[],
                other: None,
                from_layer: 0,
                draft_seconds: 0.005 * k as f64,
                verify_seconds: 0.01,
                other_seconds: 0.0,
            });
        }
        drafts
    }

    #[test]
    fn what_one_text_learnt_to_its_cost_another_need_not() {
        let mut engine = Controller::new(Costs::frozen(&sources()), Memory::new());
        engine.start(&sources());
        let mut drafts = Vec::new();
        for _ in 0..20 {
            let mut text = engine.for_text(&sources());
            drafts.push(drafts_in_vain(&mut text, 12));
            engine.learn_of(&text);
        }
        assert!(drafts[0] > 0, "{drafts:?}");
        // Each costs at least its step: half a plain one. 20 texts of 12 tokens have an income as well.
        let may_be_lost = START + INCOME * 240.0;
        assert!(0.5 * drafts.iter().sum::<usize>() as f64 <= may_be_lost, "{drafts:?}");
        assert!(engine.balance() >= 0.0);
    }

    #[test]
    fn a_source_that_lost_is_made_ready_again_before_it_is_asked() {
        let mut policy = Controller::new(Costs::frozen(&sources()), Memory::new());
        policy.start(&sources());
        assert!(policy.may_draft(0));
        let (mut idle, mut asked) = (0, 0);
        for _ in 0..200 {
            let ready = policy.may_draft(0);
            let drafts = drafts_in_vain(&mut policy, 1);
            assert!(ready || drafts == 0);
            idle += usize::from(!ready);
            asked += drafts;
        }
        assert!(idle > 100 && asked > 3, "{idle} rounds without, {asked} with drafts");
    }

    /// A lookup costs nothing, so by costs alone it would always be the best.
    #[test]
    fn the_reason_for_being_off_names_a_source_that_was_tried() {
        let sources = [SourceInfo::mask("half", 0.5), SourceInfo::lookup()];
        let mut policy = Controller::new(Costs::frozen(&sources), Memory::new());
        policy.start(&sources);
        assert!(drafts_in_vain(&mut policy, 60) > 0);
        let reason = policy.off_reason().expect("it lost");
        assert!(reason.starts_with("`half`, the best source, is slower"), "{reason}");
    }

    #[test]
    fn sources_of_which_nothing_was_seen_are_not_remembered() {
        let mut engine = Controller::new(Costs::frozen(&sources()), Memory::new());
        engine.start(&sources());
        assert!(engine.memory().is_empty());
        let mut text = engine.for_text(&sources());
        assert!(text.memory().is_empty());
        drafts_in_vain(&mut text, 12);
        engine.learn_of(&text);
        assert_eq!(engine.memory().len(), 1);
        assert!(!engine.for_text(&sources()).memory().is_empty());
    }
}
