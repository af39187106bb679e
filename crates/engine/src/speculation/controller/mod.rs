//! The policy that needs no settings: one cost model decides whether to draft, from which source, and how far.
//!
//! Everything is counted in plain steps, T(1). A round that drafts `k` tokens with step cost `c` takes
//! `C(k) = k·c + V(k)` and gives `E(k) = 1 + a₁ + a₁a₂ + …` tokens, `aᵢ` the chance that the i-th is accepted. `V(k)` is
//! `T(k+1)`, or less where verification goes on from the rows of the draft's own layers. Where a guide guesses for the draft's steps,
//! these are fewer than `k`: one, and one more for each token that was not guessed.
//!
//! *Which source*: the one with the highest rate `max E(k)/C(k)`, if that is above 1, the rate of plain steps. The chances of a
//! source that is little known are raised by its uncertainty, so that it is tried (UCB1's optimism).
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
//! A source that lost is tried again after 16 tokens, then 32, 64, …; if one is right, the next probe follows at once. While
//! speculation is on, two plain steps are inserted now and then, at a price of half a percent and a quarter of a plain step,
//! because only that shows what a plain step costs now.
//!
//! There is no clock and no chance in here: the same rounds and the same costs give the same choices. With
//! [`Costs::frozen`] the choices depend on the tokens alone, so that a seed repeats a sampled run to the token;
//! otherwise timings decide how many random numbers a round draws, and two runs with one seed are two samples of
//! the same distribution. Greedy text is the same either way.

pub mod group;
mod plan;
mod reason;
#[cfg(test)]
mod tests;

use self::group::{Member, Planned, RoundTerms};
use super::{
    arm::{Arm, Experience, Memory, memory_key},
    costs::{Costs, MOST_ROWS, Together},
    plain_steps::PlainSteps,
    policy::{Drafted, Guide, Offer, Policy, Round, RoundChoice, SourceInfo, Speedup},
};

/// Plain steps that may be lost before anything is known.
pub const START: f64 = 3.0;
/// Plain steps that may be lost per token.
pub const INCOME: f64 = 0.01;
/// The most plain steps that an account may save from gains.
pub const SAVINGS: f64 = 8.0;

/// Plain steps that trying a source on the text that is there may cost.
const TRIAL_PRICE: f64 = 2.0;
/// A draft step that takes this many times a round trip to the device is long: looking at its token before the next step is worth a
/// round trip.
const LONG_STEP: f64 = 20.0;
/// Seconds of a round trip where it was not measured.
const USUAL_WAY: f64 = 50e-6;
/// A time longer than this many times the expected one was caused by other programs. It counts as this many times, for plain steps
/// and rounds alike.
pub const SPIKE: f64 = 2.0;

/// The round that was chosen and is not yet recorded.
#[derive(Clone, Copy, Debug)]
struct Pending {
    offer: Offer,
    most: usize,
    /// The length with the best expected rate.
    length: usize,
    /// The expected tokens per plain step.
    rate: f64,
    probe: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    seconds: f64,
    expected_tokens: f64,
    expected_cost: f64,
}

/// Why the last round did what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing was ever offered.
    NothingOffered,
    On,
    /// Nothing that was offered is expected to win.
    Loses,
}

/// Decides by the costs of passes and the acceptance of drafts, which it learns meanwhile.
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
    /// Seconds of a round trip to the device.
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

    /// A controller for a new text with these sources. It knows what was learnt of them and of costs, and what drafting has cost other
    /// texts.
    pub fn for_text(&self, sources: &[SourceInfo]) -> Self {
        let cost = |source: &SourceInfo| {
            let known = self.arms.iter().position(|arm| arm.info == *source)?;
            Some(self.costs.draft(known))
        };
        // A text has all of these sources, or the first of them; one without drafts has none.
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

    /// Takes over what the controller of a text that has ended knows. What it lost is not available to other texts.
    pub fn learn_of(&mut self, text: &Controller) {
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

    /// For a device whose round trip takes so many seconds, if that is known.
    pub fn with_round_trip(self, seconds: Option<f64>) -> Self {
        Controller { way: seconds.unwrap_or(self.way), ..self }
    }

    /// The costs of passes as it estimates them.
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

    fn draft(&mut self, offer: &Offer, most: usize, plan: &Planned, probe: bool) -> RoundChoice {
        if most == 0 {
            return RoundChoice::Plain;
        }
        let length = plan.tokens.clamp(1, most);
        self.pending = Some(Pending { offer: *offer, most, length, rate: plan.rate, probe });
        RoundChoice::Draft { source: offer.source, most }
    }

    /// The cost of a masked pass over so many rows, if rows cost the draft as much as the full model: as estimated, or as the prompt
    /// has shown if that is more.
    fn trial_price(&self, source: usize, places: usize) -> f64 {
        let by_prompt = self.prompt_row.and_then(|seconds| self.costs.in_steps(seconds));
        let rows = self.costs.rows(places).max(places as f64 * by_prompt.unwrap_or(0.0));
        self.costs.draft(source) * rows
    }

    /// Whether the source has steps, and neither an earlier run nor a trial has shown its acceptance.
    fn trial_is_due(&self, source: usize) -> bool {
        let arm = &self.arms[source];
        !arm.tried && !self.costs.looks_up(source) && !self.memory.contains_key(&memory_key(&arm.info))
    }

    /// Learns from a round with other texts: only what was accepted, because its times are shared.
    pub fn record_acceptance(&mut self, offer: &Offer, round: &Round) {
        self.arms[offer.source].learn(round, offer.ready);
    }

    /// Books the same round, which took so many plain rounds of these texts and gave this text so many tokens.
    pub fn settle(&mut self, gained: usize, rounds: f64) {
        self.account = (self.account + gained as f64 * (1.0 + INCOME) - rounds).min(SAVINGS);
    }

    /// Plain steps that drafting may lose now.
    pub fn balance(&self) -> f64 {
        self.account
    }

    fn learn(&mut self, source: usize, round: &Round, pending: &Pending, (expected, cost): (f64, f64)) {
        let arm = &mut self.arms[source];
        if pending.probe {
            arm.doubt();
        }
        arm.learn(round, pending.offer.ready);
        arm.gave(expected, pending.rate * cost);
        arm.plan_probe(pending.probe, self.tokens);
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
        let terms =
            RoundTerms { by_itself: true, prompt_rows: 0, cells: usize::MAX, together: &Together::default() };
        let choices = group::decide(&mut [Member { controller: self, offers, is_going: true }], &terms);
        choices[0]
    }

    fn draft_more(&self, source: usize, so_far: &[Drafted], is_paid: bool) -> bool {
        let Some(pending) = self.pending.filter(|pending| so_far.len() < pending.most) else { return false };
        if pending.offer.ready.is_some() {
            return true;
        }
        let n = so_far.len();
        let each = so_far.iter().enumerate();
        let survival: f64 = each.map(|(i, &d)| self.chance_of_drafted(source, None, i, d)).product();
        let (mut chance, mut gain) = (survival, 0.0);
        let verified = self.costs.verification(source, n);
        (1..=pending.most - n).any(|m| {
            chance *= self.chance_at(source, None, n + m - 1);
            gain += chance;
            let steps = self.steps(&pending.offer, m - usize::from(is_paid));
            gain > self.rate * (self.costs.round(source, steps, n + m) - verified)
        })
    }

    /// A right guess saves a step, and each guess costs a row.
    fn checks(&self, source: usize, guide: &Guide, guesses: &[Drafted]) -> bool {
        let each = guesses.iter().enumerate();
        let survival: f64 = each
            .map(|(place, &guess)| self.chance_of_drafted(guide.source, guide.ready, place, guess))
            .product();
        let row = self.costs.rows(guesses.len() + 1) - self.costs.rows(guesses.len());
        survival * self.costs.draft(source) > row
    }

    /// Each adds a row, and a token with its chance. The draft itself is made already.
    fn others(&self, source: usize, drafted: usize, others: &[Drafted]) -> usize {
        let arm = &self.arms[source];
        let most = others.len().min(MOST_ROWS.saturating_sub(drafted + 1));
        let (mut chance, mut best) = (0.0, (0, 0.0));
        for (rank, &other) in others.iter().enumerate().take(most) {
            chance += arm.known.others.chance(arm.other(other, rank));
            let price = self.costs.rows(drafted + rank + 2) - self.costs.rows(drafted + 1);
            let affordable = self.costs.round(source, drafted as f64, drafted) + price - 1.0 <= self.account;
            let gain = chance - self.rate * price;
            if affordable && gain > best.1 {
                best = (rank + 1, gain);
            }
        }
        best.0
    }

    /// While drafts lose, only if it is time to try the source again.
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
        // Looking for something to draft is not part of a plain step, though it comes before each.
        let pass = round.verify_seconds + round.other_seconds;
        let pending = self.pending.take();
        let (expected, cost) = match (round.source, pending) {
            (Some(source), Some(pending)) if k > 0 => {
                self.costs.saw_draft(source, round.draft_seconds, round.draft_steps);
                match round.from_layer {
                    0 => self.costs.saw_rows(round.rows(), pass),
                    _ => self.costs.saw_resumed(source, k + 1, pass),
                }
                let expected = self.expected(source, round, pending.offer.ready);
                let others = self.costs.rows(round.rows()) - self.costs.rows(k + 1);
                let steps = self.steps(&pending.offer, k);
                self.arms[source].took(round.draft_steps as f64, steps);
                let cost = self.costs.round(source, round.draft_steps as f64, k) + others;
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

    fn controller(&self) -> Option<&Controller> {
        Some(self)
    }

    fn controller_mut(&mut self) -> Option<&mut Controller> {
        Some(self)
    }

    /// A short prompt says little of what a row takes.
    fn saw_prompt(&mut self, tokens: usize, seconds: f64) {
        const LEAST: usize = 16;
        if tokens >= LEAST {
            self.prompt_row = Some(seconds / tokens as f64);
        }
    }

    /// Only for the source with the best optimistic rate: trials of others would use up its account.
    fn wants_trial(&self, source: usize, places: usize) -> bool {
        let steps = (0..self.arms.len()).filter(|&source| !self.costs.looks_up(source));
        let offers: Vec<Offer> =
            steps.map(|source| Offer { source, most: usize::MAX, ready: None, guide: None }).collect();
        self.trial_is_due(source)
            && self.trial_price(source, places) <= TRIAL_PRICE.min(self.account)
            && self.most_hopeful(&offers).is_some_and(|best| best.source == source)
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
            Standing::Loses => self.why_it_loses(),
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
