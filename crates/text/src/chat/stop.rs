//! Texts that end an answer.

use super::markers::{Found, find};

/// Looks for texts that end an answer, also across the pieces in which it arrives. Nothing of such a text is ever shown.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
}

/// What may be shown of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// This, and the answer goes on.
    More(String),
    /// This, and then comes a text that ends the answer.
    Stop {
        /// What stands before it.
        text: String,
        /// Which text it is.
        word: String,
    },
}

impl StopStrings {
    /// Empty ones are left out, and so are those that begin with another one, for that one comes first.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        let all: Vec<String> = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        let is_needed = |at: usize| {
            let begins = |(other, word): (usize, &String)| {
                other != at
                    && all[at].starts_with(word.as_str())
                    && (word.len() < all[at].len() || other < at)
            };
            !all.iter().enumerate().any(begins)
        };
        let stops = (0..all.len()).filter(|at| is_needed(*at)).map(|at| all[at].clone()).collect();
        StopStrings { stops, held: String::new() }
    }

    /// The next piece of the answer.
    pub fn push(&mut self, piece: &str) -> Shown {
        self.held.push_str(piece);
        self.look(false)
    }

    /// The answer has ended otherwise: what was held back of it. A text that a longer one was waited for at is found now.
    pub fn finish(&mut self) -> Shown {
        self.look(true)
    }

    fn look(&mut self, is_last: bool) -> Shown {
        match find(&self.held, &self.stops, is_last) {
            Found::Not(safe) => Shown::More(self.held.drain(..safe).collect()),
            Found::Marker { at, which, .. } => {
                let text = self.held[..at].to_owned();
                self.held.clear();
                Shown::Stop { text, word: self.stops[which].clone() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stops(words: &[&str]) -> StopStrings {
        StopStrings::new(words.iter().map(|word| (*word).to_owned()))
    }

    /// What is shown in all, and the word.
    fn shown(mut stops: StopStrings, pieces: &[&str]) -> (String, Option<String>) {
        let mut all = String::new();
        for piece in pieces.iter().map(Some).chain([None]) {
            let shown = match piece {
                Some(piece) => stops.push(piece),
                None => stops.finish(),
            };
            match shown {
                Shown::More(text) => all += &text,
                Shown::Stop { text, word } => return (all + &text, Some(word)),
            }
        }
        (all, None)
    }

    #[test]
    fn a_stop_is_found_across_pieces() {
        let words = ["User:", "\n\n"];
        assert_eq!(shown(stops(&words), &["Hi U", "se", "r", ": x"]), ("Hi ".into(), Some("User:".into())));
        assert_eq!(shown(stops(&words), &["Hi\n", "\nUser:"]), ("Hi".into(), Some("\n\n".into())));
        assert_eq!(shown(stops(&words), &["Hi U", "se", "s"]), ("Hi Uses".into(), None));
        assert_eq!(shown(stops(&words), &["Hi User"]), ("Hi User".into(), None));
        assert_eq!(shown(stops(&[]), &["a", "b"]), ("ab".into(), None));
    }

    #[test]
    fn a_stop_within_the_beginning_of_a_longer_one_is_found_at_the_end() {
        assert_eq!(shown(stops(&["aba", "b"]), &["ab"]), ("a".into(), Some("b".into())));
        assert_eq!(shown(stops(&["aba", "b"]), &["ab", "a"]), (String::new(), Some("aba".into())));
    }

    #[test]
    fn it_is_found_as_soon_as_it_is_there() {
        let mut words = stops(&["ab", "abc", "", "ab"]);
        assert_eq!(words.push("xab"), Shown::Stop { text: "x".into(), word: "ab".into() });
    }

    proptest! {
        /// The text before the first stop, wherever the pieces are cut.
        #[test]
        fn cuts_change_nothing(pieces in prop::collection::vec("[abé]{0,4}", 0..8), words in prop::collection::vec("[abé]{0,3}", 0..4)) {
            let whole: String = pieces.concat();
            let expected = words.iter().filter(|word| !word.is_empty()).filter_map(|word| whole.find(word.as_str())).min();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let (text, word) = shown(stops(&words), &pieces);
            match expected {
                None => prop_assert_eq!((text, word), (whole, None)),
                Some(at) => {
                    prop_assert_eq!(text.as_str(), &whole[..at]);
                    prop_assert!(whole[at..].starts_with(word.unwrap().as_str()));
                }
            }
        }
    }
}
