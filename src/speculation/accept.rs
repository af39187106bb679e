//! The accept rule (Leviathan, Kalman, Matias 2023): what of a draft is accepted, so that the text is distributed as
//! if every token had been drawn from the full model.
//!
//! A drafted token x, drawn from q, is accepted with probability min(1, p(x)/q(x)); the first rejected one is replaced by
//! a draw from norm(max(p - q, 0)), and after a draft accepted whole comes a draw from the next p. Greedy is the
//! case of one-hot p: a token is accepted if it is the full model's choice, which also replaces it if not.
//!
//! Pure: distributions and a random stream in, tokens out. A random number is taken only where there is a choice.

use crate::sampler::{Distribution, rng::Rng};

/// A drafted token and the distribution that it was drawn from; `None` if it was not drawn at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The token.
    pub token: u32,
    /// What it was drawn from.
    pub q: Option<Distribution>,
}

/// What of a draft is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How many proposals are accepted, from the first on.
    pub accepted: usize,
    /// The token that follows them.
    pub next: u32,
}

/// Judges a draft. `p(i)` is the full model's distribution in the place of the i-th proposal, given those before
/// it; it is asked for ascending `i` up to `draft.len()`, and not beyond the first rejected proposal.
pub fn accept(draft: &[Proposal], mut p: impl FnMut(usize) -> Distribution, rng: &mut Rng) -> Verdict {
    for (i, proposal) in draft.iter().enumerate() {
        if let Some(next) = replaced(proposal, &p(i), rng) {
            return Verdict { accepted: i, next };
        }
    }
    Verdict { accepted: draft.len(), next: pick(&p(draft.len()), rng) }
}

/// A draw that costs no random number where the outcome is certain.
pub fn pick(distribution: &Distribution, rng: &mut Rng) -> u32 {
    match distribution.entries() {
        [(only, _)] => *only,
        _ => distribution.draw(rng.next_f64()),
    }
}

/// The token that takes the proposal's place, if it is rejected.
fn replaced(proposal: &Proposal, p: &Distribution, rng: &mut Rng) -> Option<u32> {
    // A q that rules out its own token was not what drew it: as if there were none.
    let q = proposal.q.as_ref().filter(|q| q.p(proposal.token) > 0.0);
    let chance = p.p(proposal.token) / q.map_or(1.0, |q| q.p(proposal.token));
    if chance >= 1.0 || (chance > 0.0 && rng.next_f64() < chance) {
        return None;
    }
    let one_hot;
    let q = match q {
        Some(q) => q,
        None => {
            one_hot = Distribution::one_hot(proposal.token);
            &one_hot
        }
    };
    match residual(p, q) {
        Some(left) => Some(pick(&left, rng)),
        // p and q are equal but for rounding.
        None if chance > 0.0 => None,
        None => Some(pick(p, rng)),
    }
}

/// norm(max(p - q, 0)); `None` if p exceeds q nowhere.
fn residual(p: &Distribution, q: &Distribution) -> Option<Distribution> {
    let mut others = q.entries().iter().peekable();
    let left = p.entries().iter().filter_map(|&(id, p)| {
        while others.next_if(|other| other.0 < id).is_some() {}
        let q = others.next_if(|other| other.0 == id).map_or(0.0, |other| other.1);
        (p > q).then_some((id, p - q))
    });
    Distribution::normalized(left.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dist(entries: &[(u32, f64)]) -> Distribution {
        Distribution::normalized(entries.to_vec()).unwrap()
    }

    #[test]
    fn the_residual_is_what_p_has_beyond_q() {
        let p = dist(&[(1, 0.5), (3, 0.25), (7, 0.25)]);
        let q = dist(&[(0, 0.25), (1, 0.25), (7, 0.5)]);
        assert_eq!(residual(&p, &q), Some(dist(&[(1, 0.5), (3, 0.5)])));
        assert_eq!(residual(&p, &p), None);
        assert_eq!(residual(&p, &Distribution::one_hot(3)), Some(dist(&[(1, 2.0 / 3.0), (7, 1.0 / 3.0)])));
    }

    #[test]
    fn greedy_is_the_limit_and_needs_no_randomness() {
        let draft = [4, 5, 6].map(|token| Proposal { token, q: None });
        let mut rng = Rng::new(1);
        let against =
            |truth: [u32; 4], rng: &mut Rng| accept(&draft, |i| Distribution::one_hot(truth[i]), rng);
        assert_eq!(against([4, 5, 6, 9], &mut rng), Verdict { accepted: 3, next: 9 });
        assert_eq!(against([4, 8, 6, 9], &mut rng), Verdict { accepted: 1, next: 8 });
        assert_eq!(against([3, 5, 6, 9], &mut rng), Verdict { accepted: 0, next: 3 });
        assert_eq!(rng, Rng::new(1));
    }

    #[test]
    fn rows_after_the_first_that_falls_are_not_asked_for() {
        let draft = [4, 5].map(|token| Proposal { token, q: None });
        let mut asked = Vec::new();
        let p = |i| {
            asked.push(i);
            Distribution::one_hot(0)
        };
        accept(&draft, p, &mut Rng::new(1));
        assert_eq!(asked, [0]);
    }

    #[test]
    fn equal_distributions_accept_everything() {
        let p = dist(&[(0, 0.1), (1, 0.2), (2, 0.7)]);
        let mut rng = Rng::new(5);
        for token in 0..3 {
            let draft = [Proposal { token, q: Some(p.clone()) }];
            assert_eq!(accept(&draft, |_| p.clone(), &mut rng).accepted, 1);
        }
    }

    #[test]
    fn a_q_that_rules_out_its_token_is_not_believed() {
        let p = dist(&[(0, 0.5), (1, 0.5)]);
        let draft = [Proposal { token: 2, q: Some(Distribution::one_hot(0)) }];
        let mut rng = Rng::new(5);
        let firsts = (0..1000).filter(|_| accept(&draft, |_| p.clone(), &mut rng).next == 0).count();
        assert!((400..600).contains(&firsts), "{firsts} of 1000, where p says half");
    }
}
