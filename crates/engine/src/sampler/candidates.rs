//! Tokens that may still be chosen, and the stages that reduce them. Arithmetic, order of additions and order of candidates are
//! llama.cpp's, so that a random number chooses the same token as there.

use std::cmp::Ordering;

use crate::scores::Scores;

#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub id: u32,
    pub logit: f32,
    /// A share of the whole after [`Candidates::softmax`].
    p: f32,
}

impl Candidate {
    pub fn new(id: u32, logit: f32) -> Self {
        Candidate { id, logit, p: 0.0 }
    }
}

/// Best first; among equals the lower id.
pub(super) fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

/// How many are sorted at first where a stage starts with the best and may end soon.
const SORTED_FIRST: usize = 256;

#[derive(Clone, Copy, Default, PartialEq)]
enum Order {
    #[default]
    Id,
    /// Best first.
    Rank,
    Other,
}

#[derive(Default)]
pub(super) struct Candidates {
    entries: Vec<Candidate>,
    order: Order,
    distances: Vec<(f32, Candidate)>,
}

impl Candidates {
    /// Takes all possible tokens, by id. NaN and -inf are not possible, and +inf counts as the highest number.
    pub fn fill(&mut self, scores: Scores) {
        self.entries.clear();
        match scores {
            Scores::All(logits) => {
                self.order = Order::Id;
                self.entries.extend((0..).zip(logits).map(|(id, &logit)| Candidate::new(id, logit)));
            }
            Scores::Top(top) => {
                self.entries.extend(top.best.iter().map(|&(id, logit)| Candidate::new(id, logit)));
                self.order = Order::Rank;
            }
        }
        self.drop_impossible();
    }

    /// As [`Candidates::fill`] and [`Candidates::top_k`], without looking at each of them twice.
    pub fn fill_top(&mut self, scores: Scores, k: usize) {
        match scores {
            Scores::All(logits) => {
                select_top(logits, k, &mut self.entries);
                self.order = Order::Other;
                self.sort();
            }
            Scores::Top(_) => self.fill(scores),
        }
        self.entries.truncate(k);
        self.drop_impossible();
    }

    fn drop_impossible(&mut self) {
        self.entries.retain_mut(|c| {
            if c.logit == f32::INFINITY {
                c.logit = f32::MAX;
            }
            c.logit > f32::NEG_INFINITY
        });
    }

    /// Changes the logit of a token that is still there.
    pub fn change(&mut self, id: u32, change: impl FnOnce(f32) -> f32) {
        let place = match self.order {
            Order::Id => self.entries.binary_search_by_key(&id, |c| c.id).ok(),
            Order::Rank | Order::Other => self.entries.iter().position(|c| c.id == id),
        };
        if let Some(place) = place {
            self.entries[place].logit = change(self.entries[place].logit);
            if self.order == Order::Rank {
                self.order = Order::Other;
            }
        }
    }

    /// After [`Candidates::change`].
    pub fn changed(&mut self) {
        self.drop_impossible();
    }

    pub fn best(&self) -> Option<u32> {
        self.entries.iter().min_by(|a, b| by_rank(a, b)).map(|c| c.id)
    }

    /// The weights that a draw goes by.
    pub fn weights(&self) -> impl Iterator<Item = (u32, f64)> {
        let max = self.highest();
        self.entries.iter().map(move |c| (c.id, f64::from(exp(c.logit - max))))
    }

    fn highest(&self) -> f32 {
        self.entries.iter().fold(f32::NEG_INFINITY, |max, c| max.max(c.logit))
    }

    fn sort(&mut self) {
        if self.order != Order::Rank {
            self.entries.sort_unstable_by(by_rank);
            self.order = Order::Rank;
        }
    }

    fn softmax(&mut self) {
        let max = self.highest();
        let mut sum = 0.0f32;
        for c in &mut self.entries {
            c.p = exp(c.logit - max);
            sum += c.p;
        }
        self.entries.iter_mut().for_each(|c| c.p /= sum);
    }

    /// Keeps the `k` best; 0: all.
    pub fn top_k(&mut self, k: usize) {
        if k == 0 {
            return;
        }
        if self.order != Order::Rank && k < self.entries.len() {
            self.entries.select_nth_unstable_by(k, by_rank);
            self.order = Order::Other;
        }
        self.entries.truncate(k);
        self.sort();
    }

    /// Keeps the tokens whose information lies nearest to the entropy, until they hold more than `p`; nearest first.
    pub fn typical(&mut self, p: f32) {
        self.sort();
        self.softmax();
        let entropy = self.entropy();
        self.distances.clear();
        self.distances.extend(self.entries.iter().map(|&c| ((-ln(c.p) - entropy).abs(), c)));
        self.distances.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(by_rank(&a.1, &b.1)));
        let mut held = 0.0f32;
        let enough = self.distances.iter().position(|(_, c)| {
            held += c.p;
            held > p
        });
        self.entries.clear();
        let kept = enough.map_or(self.distances.len(), |last| last + 1);
        self.entries.extend(self.distances[..kept].iter().map(|(_, c)| c));
        self.order = Order::Other;
    }

    /// Keeps the fewest of the best tokens that hold at least `p` together.
    pub fn top_p(&mut self, p: f32) {
        self.softmax();
        let (mut held, mut kept) = (0.0f32, 0);
        let mut known = self.sort_some(SORTED_FIRST);
        loop {
            let enough = self.entries[kept..known].iter().position(|c| {
                held += c.p;
                held >= p
            });
            kept = enough.map_or(known, |last| kept + last + 1);
            if enough.is_some() || known == self.entries.len() {
                break;
            }
            known = self.sort_some(usize::MAX);
        }
        self.entries.truncate(kept);
        self.order = Order::Rank;
    }

    /// Sorts about `count` of the best to the front, and returns how many these are.
    fn sort_some(&mut self, count: usize) -> usize {
        if self.order == Order::Rank || count >= self.entries.len() {
            self.sort();
            return self.entries.len();
        }
        self.entries.select_nth_unstable_by(count, by_rank);
        self.entries[..count].sort_unstable_by(by_rank);
        self.order = Order::Other;
        count
    }

    /// Keeps the tokens at least `p` times as likely as the likeliest.
    pub fn min_p(&mut self, p: f32) {
        let least = self.highest() + ln(p);
        self.entries.retain(|c| c.logit >= least);
    }

    /// At 0 and below only the best is left.
    pub fn temperature(&mut self, temp: f32) {
        if temp <= 0.0 {
            let best = self.best();
            return self.entries.retain(|c| Some(c.id) == best);
        }
        let highest = self.highest();
        match (highest / temp).is_finite() {
            true => self.entries.iter_mut().for_each(|c| c.logit /= temp),
            // Not even the next lower number would have a probability above 0.
            false => self.entries.retain(|c| c.logit == highest),
        }
    }
}

impl Candidates {
    /// Applies a temperature between `temp` minus and plus `range`, depending on the entropy relative to the greatest possible one.
    pub fn dynamic_temperature(&mut self, temp: f32, range: f32, exponent: f32) {
        if self.entries.len() <= 1 {
            return;
        }
        let (low, high) = ((temp - range).max(0.0), temp + range);
        self.sort();
        self.softmax();
        let share = self.entropy() / -ln(1.0 / self.entries.len() as f32);
        self.temperature(low + (high - low) * pow(share, exponent));
    }

    fn entropy(&self) -> f32 {
        let possible = self.entries.iter().filter(|c| c.p > 0.0);
        possible.fold(0.0f32, |sum, c| sum - c.p * ln(c.p))
    }

    /// Makes tokens impossible that are more than `n` standard deviations below the best. They still count as candidates.
    pub fn top_n_sigma(&mut self, n: f32) {
        if self.entries.len() <= 1 {
            return;
        }
        let possible = |&logit: &f32| logit > f32::NEG_INFINITY;
        let logits = || self.entries.iter().map(|c| c.logit).filter(possible);
        let count = logits().count() as f32;
        let mean = logits().fold(0.0f32, |sum, logit| sum + logit) / count;
        let squares = logits().fold(0.0f32, |sum, l| (f64::from(sum) + f64::from(l - mean).powi(2)) as f32);
        let least = self.highest() - n * (squares / count).sqrt();
        let unlikely = self.entries.iter_mut().filter(|c| c.logit < least);
        unlikely.for_each(|c| c.logit = f32::NEG_INFINITY);
    }

    /// Removes all tokens with at least `threshold` but the least likely of them, if `strikes` says so. That is only asked if there are
    /// two candidates or more.
    pub fn xtc(&mut self, threshold: f32, strikes: impl FnOnce() -> bool) {
        if self.entries.len() < 2 || !strikes() {
            return;
        }
        self.sort();
        self.softmax();
        let likely = self.entries.iter().take_while(|c| c.p >= threshold).count();
        self.entries.drain(..likely.saturating_sub(1));
    }

    /// Mirostat: keeps so many tokens that the surprise is about `mu` bits, assuming that probabilities fall as those of the first
    /// hundred do.
    pub fn mirostat_one(&mut self, mu: f32, n_vocab: usize) {
        self.sort();
        self.softmax();
        let (mut products, mut squares) = (0.0f32, 0.0f32);
        for (i, pair) in (1..100).zip(self.entries.windows(2)) {
            let step = ln((i + 1) as f32 / i as f32);
            products += step * ln(pair[0].p / pair[1].p);
            squares += step * step;
        }
        let fall = products / squares;
        let beyond = fall - 1.0;
        let tokens = pow(beyond * pow(2.0, mu) / (1.0 - pow(n_vocab as f32, -beyond)), 1.0 / fall);
        // Where probabilities do not fall, this is NaN, and one token is kept.
        self.entries.truncate((tokens as usize).max(1));
    }

    /// Mirostat 2.0: keeps the tokens that surprise by at most `mu` bits.
    pub fn mirostat_two(&mut self, mu: f32) {
        self.sort();
        self.softmax();
        let kept = self.entries.iter().take_while(|c| -log2(c.p) <= mu).count();
        self.entries.truncate(kept.max(1));
    }
}

/// Rounded from f64: the systems' own exponentials of f32 differ in the last bit, and a seed has to give the same text everywhere.
fn exp(x: f32) -> f32 {
    f64::from(x).exp() as f32
}

fn ln(x: f32) -> f32 {
    f64::from(x).ln() as f32
}

pub(super) fn log2(x: f32) -> f32 {
    f64::from(x).log2() as f32
}

fn pow(x: f32, exponent: f32) -> f32 {
    f64::from(x).powf(f64::from(exponent)) as f32
}

/// The `k` best possible tokens. Takes one pass over the logits, and a selection among 2k candidates whenever that many were
/// collected.
pub(super) fn select_top(logits: &[f32], k: usize, best: &mut Vec<Candidate>) {
    let full = k.saturating_mul(2).max(64);
    let mut threshold = f32::NEG_INFINITY;
    best.clear();
    for (id, &logit) in logits.iter().enumerate() {
        // NaN fails this too. A token equal to the k-th best has a higher id and is not taken.
        if logit > threshold {
            best.push(Candidate::new(id as u32, logit));
            if best.len() == full {
                best.select_nth_unstable_by(k - 1, by_rank);
                best.truncate(k);
                threshold = best[k - 1].logit;
            }
        }
    }
    if best.len() > k {
        best.select_nth_unstable_by(k - 1, by_rank);
        best.truncate(k);
    }
}
