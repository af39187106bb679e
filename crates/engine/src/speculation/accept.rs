//! The rule of acceptance: a drafted token is accepted if the full model chooses it too, from its own scores at that position
//! and with the random number of that position. The first token that it does not choose is replaced by its choice, and a draft
//! that is accepted whole is followed by one more token. So the text is that of plain decoding, token for token, sampled or
//! greedy.

/// The accepted part of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How many tokens are accepted, from the first on.
    pub accepted: usize,
    /// The token that follows them.
    pub next: u32,
}

/// Compares a draft with the full model's choices. `choice(i)` is its choice in place of the i-th token, given those before. It is
/// called for ascending `i` up to `draft.len()`, and not after the first rejected token.
pub fn accept(draft: &[u32], mut choice: impl FnMut(usize) -> u32) -> Verdict {
    for (i, &token) in draft.iter().enumerate() {
        let next = choice(i);
        if next != token {
            return Verdict { accepted: i, next };
        }
    }
    Verdict { accepted: draft.len(), next: choice(draft.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_accepted_up_to_the_first_that_is_not_chosen() {
        let against = |truth: [u32; 4]| accept(&[4, 5, 6], |i| truth[i]);
        assert_eq!(against([4, 5, 6, 9]), Verdict { accepted: 3, next: 9 });
        assert_eq!(against([4, 8, 6, 9]), Verdict { accepted: 1, next: 8 });
        assert_eq!(against([3, 5, 6, 9]), Verdict { accepted: 0, next: 3 });
        assert_eq!(accept(&[], |_| 7), Verdict { accepted: 0, next: 7 });
    }

    #[test]
    fn rows_after_the_first_rejected_one_are_not_asked_for() {
        let mut asked = Vec::new();
        accept(&[4, 5], |i| {
            asked.push(i);
            0
        });
        assert_eq!(asked, [0]);
    }
}
