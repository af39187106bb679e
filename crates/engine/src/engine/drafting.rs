//! How drafts are made. Each lane says which pass it needs next, and takes its result. Several lanes that need passes under the
//! same mask share them.

use std::sync::Arc;

use super::{Lane, guided::Guided, text::TextState, unseen::Late};
use crate::{
    Batch, Context, Result, RunLayers,
    batch::{Mtp, Resume, Row},
    scores::{Scores, Want},
    shortlist::Shortlist,
    speculation::{
        LayerPasses, Offer, Passes, Supply,
        policy::Drafted,
        proposer::{
            Choice,
            confidence::{self, CANDIDATES},
        },
    },
};

/// A head is sure of a token that it gives at least this probability.
const SURE: f32 = 0.5;

/// When a draft ends, besides at its greatest length and at the text's end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// When the policy ends it.
    Policy,
    /// When it has the length that was chosen before.
    Length,
}

/// Counts of what was evaluated for drafts.
#[derive(Clone, Copy, Default)]
pub(super) struct Steps {
    pub passes: usize,
    pub rows: usize,
}

/// The state of a lane's draft while it is made.
pub struct Drafting {
    pub source: usize,
    /// The most tokens.
    pub most: usize,
    until: Until,
    /// The tokens that it chooses from; `None`: the whole vocabulary.
    shortlist: Option<Arc<Shortlist>>,
    /// The row of the last drafted token, from which it goes on.
    row: Row,
    pub(super) by: By,
}

/// What computes the next token of a draft.
pub(super) enum By {
    /// Layers: how often the row has gone on, and from what; or what guesses for them.
    Layers {
        further: usize,
        hidden: Vec<f32>,
        guided: Option<Guided>,
    },
    /// The head that predicts one token more: first with the rows that it has not seen yet, then from the output of its own last
    /// row.
    MtpFirst(Late),
    Mtp {
        before: Vec<f32>,
    },
}

/// A pass that a draft needs.
#[derive(PartialEq)]
enum Need<'a> {
    Layers { mask: &'a RunLayers, keep: Option<usize>, resume: Option<usize> },
    Mtp { after_itself: bool },
}

impl Lane<'_> {
    /// What the sources could draft now, with at most so many tokens.
    pub fn offers(&mut self, context: &Context, most: usize) -> Vec<Offer> {
        let text = self.sampler.history();
        let next = context.kv().next_pos(self.text.spec.seq);
        let sees_rows = self.text.unseen.as_ref().is_some_and(|unseen| unseen.leads_to(next));
        let offer = |(source, proposer): (usize, &mut Box<dyn crate::speculation::Proposer>)| {
            let is_blind = matches!(proposer.passes(), Some(Passes::Mtp)) && !sees_rows;
            if is_blind || proposer.reader().is_some_and(|reader| !reader.leads_to(next)) {
                return None;
            }
            let (tokens, ready) = match proposer.supply(text) {
                Supply::Nothing => return None,
                Supply::Any => (usize::MAX, None),
                Supply::Found(ready) => (ready.tokens, Some(ready)),
            };
            let most = tokens.min(most);
            (most > 0).then_some(Offer { source, most, ready, guide: None })
        };
        let mut offers: Vec<Offer> = self.proposers.iter_mut().enumerate().filter_map(offer).collect();
        self.find_guides(context, &mut offers);
        offers
    }

    /// Begins a draft. If its tokens are known or a small head computes them, it is complete at once. Returns the steps that the
    /// head has made.
    pub fn begin_draft(&mut self, context: &mut Context, offer: &Offer, most: usize, until: Until) -> usize {
        let source = offer.source;
        // The rows of the first layers are kept where the verification may go on from them.
        let keeps = until == Until::Policy
            && self.text.report.sources[source].0.prefix.is_some()
            && self.policy.resumes(source, most);
        let mut shortlist = None;
        if let Some(Passes::Layers(_) | Passes::Mtp) = self.proposers[source].passes() {
            shortlist = self.shortlist(source);
            let share = shortlist.as_ref().map_or(1.0, |list| list.share());
            self.text.report.saw_vocabulary(share);
        }
        // Texts that share their passes use the rows better for tokens of their drafts.
        let guide = offer.guide.filter(|_| until == Until::Policy && !keeps);
        let guided = guide.map(|guide| self.guided_by(guide));
        let TextState { spec, made, unseen, drafting, .. } = &mut *self.text;
        let (seq, draft) = (spec.seq, spec.draft);
        let Some(&last) = self.sampler.history().last() else { return 0 };
        let row = Row { token: last, pos: context.kv().next_pos(seq), seq: draft, logits: true };
        match (self.proposers[source].passes(), unseen) {
            (Some(Passes::Layers(passes)), _) => {
                made.kept.begin(if keeps { passes.prefix } else { 0 });
                context.fork(seq, draft);
                let by = By::Layers { further: 0, hidden: Vec::new(), guided };
                *drafting = Some(Drafting { source, most, until, shortlist, row, by });
            }
            (Some(Passes::Mtp), Some(unseen)) => {
                context.fork(seq, draft);
                let by = By::MtpFirst(unseen.take_with(last, draft));
                *drafting = Some(Drafting { source, most, until, shortlist, row, by });
            }
            // It was not offered.
            (Some(Passes::Mtp), None) => {}
            (Some(Passes::Head), _) => return self.draft_by_head(context, source, most, until),
            (Some(Passes::Apart), _) => return self.draft_apart(context, source, most, until),
            (None, _) => {
                let known = self.proposers[source].tokens(self.sampler.history());
                let mut known = known.into_iter();
                while self.wants_more(source, most, until)
                    && let Some(token) = known.next()
                {
                    self.push(token, 1.0, Vec::new());
                }
            }
        }
        0
    }

    /// Makes all of a head's draft, and returns its steps.
    fn draft_by_head(&mut self, context: &mut Context, source: usize, most: usize, until: Until) -> usize {
        let Some(head) = self.proposers[source].head() else { return 0 };
        head.begin();
        let n_vocab = context.model().n_vocab();
        let mut steps = 0;
        while self.wants_more(source, most, until) {
            let last = *self.sampler.history().last().expect("a draft follows a token");
            let head = self.proposers[source].head().expect("as above");
            let Choice { tokens, confidences } = head.step(last, &mut |job| context.together(job));
            let Some(&best) = tokens.first() else { break };
            // A rule may allow other tokens than the best.
            let token = match self.sampler.is_bound() {
                true => self.sampler.choose(Scores::All(&head.logits(n_vocab))),
                false => best,
            };
            if steps == 0 {
                self.text.made.consider(token, &tokens, &confidences);
            }
            let chosen = tokens.iter().position(|&of| of == token);
            self.push(token, chosen.map_or(0.0, |chosen| confidences[chosen]), tokens);
            steps += 1;
        }
        self.keep_others(context, source, until);
        steps
    }

    /// Makes all of a draft whose source has a context of its own, and returns its steps.
    fn draft_apart(&mut self, context: &Context, source: usize, most: usize, until: Until) -> usize {
        let n_vocab = context.model().n_vocab();
        let want = self.draft_want();
        let Some(apart) = self.proposers[source].apart() else { return 0 };
        // A rule needs the scores of all tokens.
        if self.sampler.is_bound() && apart.n_vocab() < n_vocab {
            return 0;
        }
        let length = self.policy.length(source, most).unwrap_or(most);
        apart.begin(self.sampler.history(), length);
        let mut steps = 0;
        while self.wants_more(source, most, until) {
            let last = *self.sampler.history().last().expect("a draft follows a token");
            let Some(apart) = self.proposers[source].apart() else { break };
            let sampler = &mut *self.sampler;
            let mut chosen = None;
            let mut confidences = Vec::new();
            apart.step(last, want, &mut |scores| {
                let token = sampler.choose(scores);
                let best = confidence::best(scores);
                if steps == 0 {
                    confidences.extend(best.iter().map(|&of| confidence::probability(scores, of)));
                }
                chosen = Some((token, confidence::probability(scores, token), best));
            });
            steps += 1;
            // The draft model's vocabulary may have more tokens.
            let Some((token, confidence, best)) = chosen.filter(|(token, ..)| (*token as usize) < n_vocab)
            else {
                break;
            };
            if steps == 1 {
                self.text.made.consider(token, &best, &confidences);
            }
            self.push(token, confidence, best);
        }
        self.keep_others(context, source, until);
        steps
    }

    /// Keeps other candidates for a draft's first token, as many as are worth a row of the verification.
    fn keep_others(&mut self, context: &Context, source: usize, until: Until) {
        let made = &mut self.text.made;
        let room = context.kv().room_to_draft().saturating_sub(made.proposals.len());
        let others = match until {
            // With recurrent layers a sequence cannot fork within a batch.
            _ if !context.model().plan.mixers.is_empty() => 0,
            Until::Policy => self.policy.others(source, made.proposals.len(), &made.others_drafted).min(room),
            // Texts that share their passes use the rows better for tokens of their drafts.
            Until::Length => 0,
        };
        made.others.truncate(others);
        made.others_drafted.truncate(others);
    }

    /// Sources with a context of their own read the prompt, if they may draft at all.
    pub fn show_prompt(&mut self) {
        for source in 0..self.proposers.len() {
            if self.policy.may_draft(source)
                && let Some(apart) = self.proposers[source].apart()
            {
                apart.read(self.sampler.history());
            }
        }
    }

    /// The tokens that drafts of a source choose from now: all of them under a rule, which may allow tokens outside of a shortlist.
    pub fn shortlist(&mut self, source: usize) -> Option<Arc<Shortlist>> {
        let frequent = self.text.frequent.as_mut().filter(|_| !self.sampler.is_bound())?;
        frequent.read(self.sampler.history());
        frequent.list_for(source)
    }

    /// Whether another token should be drafted.
    fn wants_more(&mut self, source: usize, most: usize, until: Until) -> bool {
        self.wants_another(source, most, until, false)
    }

    /// The same, if `is_paid` for a token that the step before has computed already.
    fn wants_another(&mut self, source: usize, most: usize, until: Until, is_paid: bool) -> bool {
        let made = &mut self.text.made;
        let Some(&last) = made.proposals.last() else { return most > 0 };
        let more = || until == Until::Length || self.policy.draft_more(source, &made.drafted, is_paid);
        if self.text.spec.is_end(last) || !more() {
            return false;
        }
        made.cut = made.proposals.len() >= most;
        !made.cut
    }

    fn push(&mut self, token: u32, confidence: f32, candidates: Vec<u32>) {
        self.sampler.accept(token);
        let made = &mut self.text.made;
        made.proposals.push(token);
        made.drafted.push(Drafted { confidence });
        made.candidates.push(candidates);
    }

    /// The pass that the draft waits for.
    fn need(&self, context: &Context) -> Option<Need<'_>> {
        let drafting = self.text.drafting.as_ref()?;
        let further = match drafting.by {
            By::Layers { further, .. } => further,
            By::MtpFirst(_) => return Some(Need::Mtp { after_itself: false }),
            By::Mtp { .. } => return Some(Need::Mtp { after_itself: true }),
        };
        let passes = self.layers_of(drafting.source)?;
        let after: &[(usize, RunLayers)] = if context.keeps_hidden() { &passes.further } else { &[] };
        let next = after.get(further).map(|(layer, _)| *layer);
        Some(match further.checked_sub(1) {
            None => {
                let kept = self.text.made.kept.layer;
                Need::Layers { mask: &passes.mask, keep: next.or((kept > 0).then_some(kept)), resume: None }
            }
            Some(step) => Need::Layers { mask: &after[step].1, keep: next, resume: Some(after[step].0) },
        })
    }

    /// The layers that draft for a source, if any do.
    fn layers_of(&self, source: usize) -> Option<&LayerPasses> {
        match self.proposers[source].passes()? {
            Passes::Layers(passes) => Some(passes),
            Passes::Mtp | Passes::Head | Passes::Apart => None,
        }
    }

    /// The scores that a draft needs of a row.
    fn draft_want(&self) -> Want {
        self.sampler.want().and(Want::Top(CANDIDATES))
    }

    /// Takes the result of a pass. The lane's logits begin at the `output`-th, with those of its guesses after it, and its last row
    /// is the `row`-th.
    fn take(&mut self, context: &mut Context, output: usize, row: usize) -> Result<()> {
        let Some(mut drafting) = self.text.drafting.take() else { return Ok(()) };
        let scores = context.scores(output);
        let mut guesses = Vec::new();
        if let By::Layers { further, hidden, guided } = &mut drafting.by {
            if *further == 0 && self.text.made.kept.layer > 0 {
                self.text.made.kept.add(context.hidden(row));
            }
            let goes_on =
                self.layers_of(drafting.source).is_some_and(|passes| passes.further.len() > *further);
            if goes_on && context.keeps_hidden() && !is_sure(scores) {
                *hidden = context.hidden(row).to_vec();
                *further += 1;
                self.text.drafting = Some(drafting);
                return Ok(());
            }
            if let Some(guided) = guided {
                guesses.append(&mut guided.guesses);
            }
        }
        let mut right = 0;
        let token = loop {
            let scores = context.scores(output + right);
            let token = self.sampler.choose(scores);
            let token = self.proposers[drafting.source].overrule(self.sampler.history(), token);
            self.push(token, confidence::probability(scores, token), confidence::best(scores));
            let is_guessed = guesses.get(right) == Some(&token);
            if !self.wants_another(drafting.source, drafting.most, drafting.until, is_guessed) {
                return Ok(());
            }
            if !is_guessed {
                break token;
            }
            right += 1;
        };
        let wrong = guesses.len() - right;
        if wrong > 0 {
            let draft = drafting.row.seq;
            context.truncate(draft, context.kv().len(draft) - wrong)?;
        }
        match &mut drafting.by {
            By::Layers { further, .. } => *further = 0,
            By::Mtp { before } => before.copy_from_slice(context.hidden(row)),
            By::MtpFirst(_) => drafting.by = By::Mtp { before: context.hidden(row).to_vec() },
        }
        drafting.row.token = token;
        drafting.row.pos += 1 + right as u32;
        self.text.drafting = Some(drafting);
        Ok(())
    }
}

/// Whether the best token has the probability of which a head is sure. Without any token there is no doubt either.
fn is_sure(scores: Scores) -> bool {
    let best = confidence::best(scores).first().copied();
    best.is_none_or(|best| confidence::probability(scores, best) >= SURE)
}

/// Makes the passes that the drafts of all lanes need, until none needs one.
pub(super) fn draft(context: &mut Context, lanes: &mut [Lane]) -> Result<Steps> {
    let mut steps = Steps::default();
    while let Some(first) = lanes.iter().position(|lane| lane.text.drafting.is_some()) {
        lanes.iter_mut().for_each(|lane| lane.guess(context));
        let (batch, want, members) = together(context, lanes, first);
        context.decode_for(&batch, want)?;
        let (mut output, mut end) = (0, 0);
        for Member { lane, rows, outputs } in members {
            end += rows;
            lanes[lane].take(context, output, end - 1)?;
            output += outputs;
        }
        steps.passes += 1;
        steps.rows += batch.rows.len();
    }
    Ok(steps)
}

/// A lane's rows in a pass of drafts, of which the last ones ask for logits.
struct Member {
    lane: usize,
    rows: usize,
    outputs: usize,
}

/// The pass that a lane's draft needs, with the rows of all other lanes that need the same.
fn together(context: &Context, lanes: &[Lane], first: usize) -> (Batch, Want, Vec<Member>) {
    let need = lanes[first].need(context).expect("it is drafting");
    let with = |lane: &Lane| lane.need(context).is_some_and(|other| need == other);
    let mut batch = Batch::new();
    let mut want = lanes[first].draft_want();
    let mut given = Vec::new();
    let mut lists = Vec::new();
    let mut members = Vec::new();
    for lane in (first..lanes.len()).filter(|&i| with(&lanes[i])) {
        want = want.and(lanes[lane].draft_want());
        let Drafting { row, by, shortlist, .. } = lanes[lane].text.drafting.as_ref().expect("it has a need");
        lists.push(shortlist.clone());
        let (rows, numbers) = match by {
            By::Layers { hidden, .. } => (std::slice::from_ref(row), hidden),
            By::Mtp { before } => (std::slice::from_ref(row), before),
            By::MtpFirst(late) => (&late.rows[..], &late.before),
        };
        let begin = batch.rows.len();
        batch.rows.extend(rows);
        if let By::Layers { guided: Some(guided), .. } = by {
            for (pos, &guess) in (row.pos + 1..).zip(&guided.guesses) {
                batch.push(guess, pos, row.seq, true);
            }
        }
        let own = &batch.rows[begin..];
        let outputs = own.iter().filter(|row| row.logits).count();
        members.push(Member { lane, rows: own.len(), outputs });
        given.extend_from_slice(numbers);
    }
    match need {
        Need::Layers { mask, keep, resume } => {
            batch.run_layers = Some(mask.clone());
            batch.keep_hidden = keep;
            batch.resume = resume.map(|layer| Resume { layer, hidden: given });
        }
        Need::Mtp { after_itself } => batch.mtp = Some(Mtp { before: given, after_itself }),
    }
    // Texts that share a pass choose from the tokens of all their shortlists.
    batch.shortlist = lists.into_iter().reduce(|a, b| Some(Arc::new(a?.union(&*b?)))).flatten();
    (batch, want, members)
}
