//! The decision for a round of B texts, which share its passes. A text by itself is the case B = 1.
//!
//! A plain round takes V(B) and gives B tokens; a prompt that is evaluated in it counts as a token. A drafted token that is
//! accepted with chance σ adds σ tokens and one row. The round with the best rate `(B + Σσ) / (ΣD + V(B + n))` over the n
//! likeliest tokens is planned, where D is a draft step of those texts that still draft. A text's tokens can only be taken from
//! the first on, and their chances only fall, so the n likeliest are always possible.
//!
//! *Never slower*: the account of each text gets the tokens that a round with drafts gave it, and pays the round's time in plain
//! rounds. A round that could cost any text more than is in its account does not take place.
//!
//! A text by itself does two things more: it tries sources that are little known, because no other text waits for that; and it
//! plans only how far a draft may go, because it can stop after any step.

use super::{Controller, Standing};
use crate::speculation::{
    costs::{Costs, Together},
    policy::{Drafted, Offer, RoundChoice},
};

/// For several texts a rate must be this much better than that of plain rounds: the costs of such rounds are not known better.
const MARGIN: f64 = 1.05;
/// The most rows of one pass with drafts.
const MOST_ROWS: usize = 64;

/// A text in the decision of a round.
pub struct Member<'m> {
    /// What the text knows of its sources, and what drafting may cost it.
    pub controller: &'m mut Controller,
    /// The sources that could draft for it.
    pub offers: &'m [Offer],
    /// Whether it gets tokens in this round; otherwise a part of its prompt is evaluated.
    pub is_going: bool,
}

/// The conditions of a round.
#[derive(Clone, Copy)]
pub struct RoundTerms<'t> {
    /// There is one text, whose draft may end after any step.
    pub by_itself: bool,
    /// Rows of prompts in the full model's pass.
    pub prompt_rows: usize,
    /// Cells that drafted tokens may take, all together.
    pub cells: usize,
    /// The costs of passes with several texts.
    pub together: &'t Together,
}

/// Decides what each text drafts.
pub fn decide(members: &mut [Member], terms: &RoundTerms) -> Vec<RoundChoice> {
    let plain = vec![RoundChoice::Plain; members.len()];
    if Group::plain_is_due(members, terms) {
        return plain;
    }
    let group = Group::of(members, terms);
    let Some(way) = group.best(|_, _| true) else { return plain };
    let planned = group.plan(&way, 0.0, group.may_lose());
    if !terms.by_itself {
        return if planned.rate > MARGIN { planned.choices(&way) } else { plain };
    }
    let hope = group.plan(&way, group.optimism(&way), f64::INFINITY).rate;
    let asked_again = match hope > 1.0 {
        true => None,
        false => group.best(|controller, offer| controller.probe_is_due(offer)),
    };
    vec![members[0].controller.follow(&way, &planned, hope, asked_again)]
}

/// How many tokens of each text's draft are worth verifying, now that they are drafted. `drafts` has those of each member.
pub fn worth_verifying(
    members: &mut [Member],
    drafts: &[Option<(Offer, &[Drafted])>],
    terms: &RoundTerms,
) -> Vec<usize> {
    let group = Group::of(members, terms);
    let most = drafts.iter().flatten().map(|(_, drafted)| drafted.len()).sum();
    let chance = |text: usize, index: usize| {
        let (Offer { source, ready, .. }, drafted) = drafts[text]?;
        Some(group.members[text].controller.chance_of_drafted(source, ready, index, *drafted.get(index)?))
    };
    let planned = Planned::likeliest(group.members.len(), group.tokens(), most, chance, |_, _, n| {
        Some(group.rows(group.base + n))
    });
    match planned.rate > group.tokens() / group.rows(group.base) {
        true => planned.lengths(),
        false => vec![0; group.members.len()],
    }
}

/// The offer that each text drafts from.
type Way = Vec<Option<Offer>>;

/// A plan of which texts draft how many tokens.
#[derive(Default)]
pub(super) struct Planned {
    pub texts: usize,
    /// The text of each token, likeliest first.
    pub order: Vec<usize>,
    /// How many of them give the best rate.
    pub tokens: usize,
    /// Tokens of the round over its cost.
    pub rate: f64,
}

impl Planned {
    /// Takes tokens in order of their chances, at most so many, and finds how many of them give the best rate: at least one.
    /// `chance(text, index)` is that of a text's token by its index in the draft, if those before it are accepted. `cost(text, index,
    /// n)` is that of the round with this token as the last of `n`, `None` where that is too much.
    pub(super) fn likeliest(
        texts: usize,
        plain_tokens: f64,
        most: usize,
        chance: impl Fn(usize, usize) -> Option<f64>,
        mut cost: impl FnMut(usize, usize, usize) -> Option<f64>,
    ) -> Self {
        let mut planned = Planned { texts, ..Planned::default() };
        let mut expected = plain_tokens;
        // For each text the chance of its next token, and the token's index.
        let mut next: Vec<(Option<f64>, usize)> = (0..texts).map(|text| (chance(text, 0), 0)).collect();
        for n in 1..=most {
            let likely = next.iter().enumerate().filter_map(|(text, next)| Some((text, next.0?)));
            let likeliest = likely.reduce(|best, other| if other.1 > best.1 { other } else { best });
            let Some((text, survival)) = likeliest else { break };
            let index = next[text].1;
            expected += survival;
            let Some(cost) = cost(text, index, n) else { break };
            planned.order.push(text);
            if expected / cost > planned.rate {
                (planned.tokens, planned.rate) = (n, expected / cost);
            }
            // It cannot become better even if all that follow were as likely.
            if (expected + survival * (most - n) as f64) / cost < planned.rate {
                break;
            }
            next[text] = (chance(text, index + 1).map(|chance| survival * chance), index + 1);
        }
        planned
    }

    /// The number of tokens of each text.
    fn lengths(&self) -> Vec<usize> {
        let mut lengths = vec![0; self.texts];
        self.order[..self.tokens].iter().for_each(|&text| lengths[text] += 1);
        lengths
    }

    fn choices(&self, way: &Way) -> Vec<RoundChoice> {
        let choice = |(offer, most): (&Option<Offer>, usize)| match offer {
            Some(offer) if most > 0 => RoundChoice::Draft { source: offer.source, most },
            _ => RoundChoice::Plain,
        };
        std::iter::zip(way, self.lengths()).map(choice).collect()
    }
}

/// The texts of a round and what its passes cost.
struct Group<'g, 'm> {
    members: &'g [Member<'m>],
    by_itself: bool,
    /// Those of the text that knows the sources of all.
    costs: &'g Costs,
    together: &'g Together,
    /// Rows of a plain round.
    base: usize,
    /// The most tokens that may be drafted.
    most: usize,
}

impl<'g, 'm> Group<'g, 'm> {
    fn of(members: &'g [Member<'m>], terms: &RoundTerms<'g>) -> Self {
        let base = Self::base(members, terms);
        let costs = members.iter().map(|member| member.controller.costs());
        let costs = costs.max_by_key(|costs| costs.sources()).expect("a round has texts");
        let most = terms.cells.min(MOST_ROWS.saturating_sub(base));
        Group { members, by_itself: terms.by_itself, costs, together: terms.together, base, most }
    }

    fn base(members: &[Member], terms: &RoundTerms) -> usize {
        members.iter().filter(|member| member.is_going).count() + terms.prompt_rows
    }

    /// Whether a round without drafts is due, to measure its time.
    fn plain_is_due(members: &mut [Member], terms: &RoundTerms) -> bool {
        let base = Self::base(members, terms);
        match members {
            [one] if terms.by_itself => one.controller.plain_is_due(),
            _ => terms.prompt_rows == 0 && terms.together.plain_is_due(base),
        }
    }

    /// Tokens of a plain round.
    fn tokens(&self) -> f64 {
        self.members.len() as f64
    }

    /// V(n).
    fn rows(&self, n: usize) -> f64 {
        self.together.rows(self.costs, n)
    }

    /// How many plain rounds drafting may cost each of the texts.
    fn may_lose(&self) -> f64 {
        self.members.iter().map(|member| member.controller.account).fold(f64::INFINITY, f64::min)
    }

    /// By how many standard deviations to raise estimated chances, so that sources are tried.
    fn optimism(&self, way: &Way) -> f64 {
        match (self.members, &way[..]) {
            ([one], [Some(offer)]) if self.by_itself => {
                1.0 / (1.0 + one.controller.arms[offer.source].trials as f64 / 16.0)
            }
            _ => 0.0,
        }
    }

    /// The way with the best optimistic rate, of offers that are eligible.
    fn best(&self, eligible: impl Fn(&Controller, &Offer) -> bool) -> Option<Way> {
        // A text by itself saves for drafts that it cannot pay yet: cheaper drafts with a lower rate would use up its income.
        let (deviations, may_lose) =
            if self.by_itself { (1.0, f64::INFINITY) } else { (0.0, self.may_lose()) };
        let hope = |way: Way| (self.plan(&way, deviations, may_lose).rate, way);
        let ways = self.ways(eligible).into_iter().map(hope);
        ways.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, way)| way)
    }

    /// For a text by itself each of its offers. For several texts, at most one source with draft steps in common, and lookups.
    fn ways(&self, eligible: impl Fn(&Controller, &Offer) -> bool) -> Vec<Way> {
        if let ([one], true) = (self.members, self.by_itself) {
            let eligible = one.offers.iter().filter(|offer| eligible(one.controller, offer));
            return eligible.map(|&offer| vec![Some(offer)]).collect();
        }
        let offers = self.members.iter().flat_map(|member| member.offers);
        let mut sources: Vec<usize> =
            offers.map(|offer| offer.source).filter(|&source| !self.costs.looks_up(source)).collect();
        sources.sort_unstable();
        sources.dedup();
        let way = |source: Option<usize>| {
            let of = |member: &Member| {
                let may = |offer: &&Offer| {
                    (self.costs.looks_up(offer.source) || source == Some(offer.source))
                        && eligible(member.controller, offer)
                };
                let worth = |offer: &Offer| member.controller.expected_accepted(offer, self.most);
                let offers = member.offers.iter().filter(may);
                offers.max_by(|a, b| worth(a).total_cmp(&worth(b))).copied()
            };
            self.members.iter().map(of).collect()
        };
        sources.into_iter().map(Some).chain([None]).map(way).collect()
    }

    /// The drafts with the best rate in plain rounds, if no text may lose more than `may_lose` plain rounds.
    fn plan(&self, way: &Way, deviations: f64, may_lose: f64) -> Planned {
        if let ([one], [Some(offer)], true) = (self.members, &way[..], self.by_itself) {
            let most = one.controller.affordable(offer, may_lose);
            return one.controller.plan(offer, most, deviations);
        }
        let chance = |text: usize, index: usize| {
            let (offer, controller) = (way[text]?, &self.members[text].controller);
            (index < controller.most(&offer)).then(|| controller.hopeful_chance(&offer, index, deviations))
        };
        // The number of texts that take the n-th step of the source with steps, and the cost of all steps.
        let (mut texts_of_step, mut drafting): (Vec<usize>, f64) = (Vec::new(), 0.0);
        let cost = |text: usize, index: usize, n: usize| {
            if let Some(offer) = way[text].filter(|offer| !self.costs.looks_up(offer.source)) {
                let step = |texts: usize| match texts {
                    0 => 0.0,
                    texts => self.together.draft(self.costs, offer.source, texts),
                };
                texts_of_step.resize(texts_of_step.len().max(index + 1), 0);
                let texts = &mut texts_of_step[index];
                drafting += step(*texts + 1) - step(*texts);
                *texts += 1;
            }
            let rounds = self.together.plain_rounds(self.costs, self.base, n, drafting);
            (rounds - 1.0 <= may_lose).then(|| drafting + self.rows(self.base + n))
        };
        let mut planned = Planned::likeliest(way.len(), self.tokens(), self.most, chance, cost);
        planned.rate *= self.rows(self.base) / self.tokens();
        planned
    }
}

impl Controller {
    /// Whether a text by itself has to measure a plain step.
    fn plain_is_due(&mut self) -> bool {
        self.pending = None;
        let due = self.standing == Standing::On && self.plain.due(self.rate);
        due || !self.costs.anchored()
    }

    /// Whether it is time to try a source again that lost.
    fn probe_is_due(&self, offer: &Offer) -> bool {
        self.tokens >= self.arms[offer.source].probe_after
    }

    /// The choice for a text by itself: to draft if that may be faster, or else to try a source again that lost, if it is time.
    fn follow(&mut self, way: &Way, planned: &Planned, hope: f64, asked_again: Option<Way>) -> RoundChoice {
        self.rate = planned.rate.max(1.0);
        self.standing = if hope > 1.0 { Standing::On } else { Standing::Loses };
        match (self.standing, &way[..], asked_again.as_deref()) {
            (Standing::On, [Some(best)], _) => {
                // A lookup costs nothing before it is checked, so its length is decided here.
                let most =
                    if best.ready.is_some() { planned.tokens } else { self.affordable(best, self.account) };
                self.draft(best, most, planned, false)
            }
            (_, _, Some([Some(lost)])) => {
                let most = self.affordable(lost, self.account).min(1);
                self.draft(lost, most, &self.plan(lost, 1, 0.0), true)
            }
            _ => RoundChoice::Plain,
        }
    }
}
