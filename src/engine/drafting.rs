//! A draft in the making. A lane says which pass it needs next and takes what came of it; passes of several lanes under the
//! same mask are made together.

use super::{Lane, text::Text};
use crate::{
    Batch, Context, Result, RunLayers,
    batch::{Resume, Row},
    scores::{Scores, Want},
    speculation::{
        Offer, Supply,
        policy::Drafted,
        proposer::glance::{self, CANDIDATES},
    },
};

/// A draft whose head gives its choice at least this is sure.
const SURE: f32 = 0.5;

/// When a draft ends, but for its length and the text's end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The policy says so.
    Policy,
    /// It has the length that was chosen for it.
    Length,
}

/// What was evaluated for drafts.
#[derive(Clone, Copy, Default)]
pub(super) struct Steps {
    pub passes: usize,
    pub rows: usize,
}

/// How far a lane's draft is.
pub(crate) struct Drafting {
    pub source: usize,
    /// The most tokens.
    pub most: usize,
    until: Until,
    /// The drafted token to go on from, and where.
    row: Row,
    /// How often the row has gone on, and from what.
    further: usize,
    hidden: Vec<f32>,
}

/// A pass that a draft needs.
struct Need<'a> {
    mask: &'a RunLayers,
    keep: Option<usize>,
    resume: Option<usize>,
}

impl Need<'_> {
    fn goes_with(&self, other: &Need) -> bool {
        (self.keep, self.resume, self.mask) == (other.keep, other.resume, other.mask)
    }
}

impl Lane<'_> {
    /// What could be drafted now, of at most so many tokens.
    pub fn offers(&mut self, most: usize) -> Vec<Offer> {
        let text = self.sampler.history();
        let offer = |(source, proposer): (usize, &mut Box<dyn crate::speculation::Proposer>)| {
            let (tokens, ready) = match proposer.supply(text) {
                Supply::Nothing => return None,
                Supply::Any => (usize::MAX, None),
                Supply::Found(ready) => (ready.tokens, Some(ready)),
            };
            let most = tokens.min(most);
            (most > 0).then_some(Offer { source, most, ready })
        };
        self.proposers.iter_mut().enumerate().filter_map(offer).collect()
    }

    /// Begins a draft: with tokens that are known it is over at once. `keeps`: rows of the first layers are welcome.
    pub fn begin_draft(
        &mut self,
        context: &mut Context,
        source: usize,
        most: usize,
        keeps: bool,
        until: Until,
    ) {
        let Text { limits, made, .. } = &mut *self.text;
        let (seq, draft) = (limits.seq, limits.draft);
        let Some(&last) = self.sampler.history().last() else { return };
        let row = Row { token: last, pos: context.kv().next_pos(seq), seq: draft, logits: true };
        match self.proposers[source].passes() {
            Some(passes) => {
                made.kept.begin(if keeps { passes.prefix } else { 0 });
                context.fork(seq, draft);
                self.text.drafting =
                    Some(Drafting { source, most, until, row, further: 0, hidden: Vec::new() });
            }
            None => {
                let known = self.proposers[source].tokens(self.sampler.history());
                let mut known = known.into_iter();
                while self.wants_more(source, most, until)
                    && let Some(token) = known.next()
                {
                    self.push(token, 1.0, Vec::new());
                }
            }
        }
    }

    /// Whether another token is welcome.
    fn wants_more(&mut self, source: usize, most: usize, until: Until) -> bool {
        let made = &mut self.text.made;
        let Some(&last) = made.proposals.last() else { return most > 0 };
        let more = || until == Until::Length || self.policy.draft_more(source, &made.drafted);
        if self.text.limits.is_end(last) || !more() {
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
        let passes = self.proposers[drafting.source].passes()?;
        let further: &[(usize, RunLayers)] = if context.keeps_hidden() { &passes.further } else { &[] };
        let next = further.get(drafting.further).map(|(layer, _)| *layer);
        Some(match drafting.further.checked_sub(1) {
            None => {
                let kept = self.text.made.kept.layer;
                Need { mask: &passes.mask, keep: next.or((kept > 0).then_some(kept)), resume: None }
            }
            Some(step) => Need { mask: &further[step].1, keep: next, resume: Some(further[step].0) },
        })
    }

    /// What a draft looks at of a row.
    fn draft_want(&self) -> Want {
        self.sampler.want().and(Want::Top(CANDIDATES))
    }

    /// The pass was made, and its `output`-th row is this lane's.
    fn take(&mut self, context: &Context, output: usize) {
        let Some(mut drafting) = self.text.drafting.take() else { return };
        let scores = context.scores(output);
        if drafting.further == 0 && self.text.made.kept.layer > 0 {
            self.text.made.kept.add(context.hidden(output));
        }
        let passes = self.proposers[drafting.source].passes();
        let further = passes.is_some_and(|passes| passes.further.len() > drafting.further);
        if further && context.keeps_hidden() && !is_sure(scores) {
            drafting.hidden = context.hidden(output).to_vec();
            drafting.further += 1;
            self.text.drafting = Some(drafting);
            return;
        }
        let token = self.sampler.choose(scores);
        self.push(token, glance::probability(scores, token), glance::best(scores));
        if self.wants_more(drafting.source, drafting.most, drafting.until) {
            drafting.further = 0;
            drafting.row.token = token;
            drafting.row.pos += 1;
            self.text.drafting = Some(drafting);
        }
    }
}

/// Whether the best token has at least the share that makes a head sure; of none there is nothing to doubt.
fn is_sure(scores: Scores) -> bool {
    let best = glance::best(scores).first().copied();
    best.is_none_or(|best| glance::probability(scores, best) >= SURE)
}

/// Makes the passes that the drafts of all lanes need, until none needs one.
pub(super) fn draft(context: &mut Context, lanes: &mut [Lane]) -> Result<Steps> {
    let mut steps = Steps::default();
    while let Some(first) = lanes.iter().position(|lane| lane.text.drafting.is_some()) {
        let (batch, want, members) = together(context, lanes, first);
        context.decode_for(&batch, want)?;
        for (output, &member) in members.iter().enumerate() {
            lanes[member].take(context, output);
        }
        steps.passes += 1;
        steps.rows += members.len();
    }
    Ok(steps)
}

/// The pass that a lane's draft needs, with the rows of all that need the same.
fn together(context: &Context, lanes: &[Lane], first: usize) -> (Batch, Want, Vec<usize>) {
    let need = lanes[first].need(context).expect("it is drafting");
    let with = |lane: &Lane| lane.need(context).is_some_and(|other| need.goes_with(&other));
    let members: Vec<usize> = (first..lanes.len()).filter(|&i| with(&lanes[i])).collect();
    let drafting = |&i: &usize| lanes[i].text.drafting.as_ref().expect("it has a need");
    let rows = members.iter().map(|i| drafting(i).row).collect();
    let resume = need.resume.map(|layer| Resume {
        layer,
        hidden: members.iter().flat_map(|i| drafting(i).hidden.iter().copied()).collect(),
    });
    let batch = Batch { rows, run_layers: Some(need.mask.clone()), keep_hidden: need.keep, resume };
    let want = members.iter().map(|&i| lanes[i].draft_want()).reduce(Want::and).expect("there is a first");
    (batch, want, members)
}
