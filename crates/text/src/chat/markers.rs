//! Looks for markers in a text that arrives in pieces.

/// What a text holds of some markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The first marker, `which` of the list; of two at the same place the longer.
    Marker {
        /// Where it begins.
        at: usize,
        /// Where it ends.
        end: usize,
        /// Its place in the list.
        which: usize,
    },
    /// None; what is behind this place may be the beginning of one.
    Not(usize),
}

/// What comes out does not depend on where the text was cut: what more text could change is left undecided, unless this is
/// the `last` of it.
pub(super) fn find<M: AsRef<str>>(text: &str, markers: &[M], last: bool) -> Found {
    for (at, _) in text.char_indices() {
        let rest = &text[at..];
        let mut longest: Option<(usize, usize)> = None;
        let mut unfinished = false;
        for (which, marker) in markers.iter().map(AsRef::as_ref).enumerate() {
            if rest.starts_with(marker) {
                longest = longest.filter(|(len, _)| *len >= marker.len()).or(Some((marker.len(), which)));
            } else if !last && marker.starts_with(rest) {
                unfinished = true;
            }
        }
        // One that is not finished is longer than all that are.
        match longest {
            _ if unfinished => return Found::Not(at),
            Some((len, which)) => return Found::Marker { at, end: at + len, which },
            None => (),
        }
    }
    Found::Not(text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_marker_is_found_and_half_of_one_is_held() {
        let markers = ["<a>", "<ab", "b"];
        let found = |text| find(text, &markers, false);
        assert_eq!(found("x<a>b"), Found::Marker { at: 1, end: 4, which: 0 });
        assert_eq!(found("xéb<a>"), Found::Marker { at: 3, end: 4, which: 2 });
        assert_eq!(found("x <"), Found::Not(2));
        assert_eq!(found("x <a"), Found::Not(2));
        assert_eq!(found("x <x"), Found::Not(4));
        assert_eq!(find("x <", &markers, true), Found::Not(3));
        // `abc` may still come.
        assert_eq!(find("xab", &["ab", "abc"], false), Found::Not(1));
        assert_eq!(find("xab", &["ab", "abc"], true), Found::Marker { at: 1, end: 3, which: 0 });
        assert_eq!(find("xabc", &["ab", "abc"], false), Found::Marker { at: 1, end: 4, which: 1 });
    }

    proptest! {
        /// What is decided of a beginning stays when the rest comes.
        #[test]
        fn more_text_changes_nothing_that_was_decided(text in "[ab<é]{0,12}", cut in 0usize..12) {
            let markers = ["<a", "<ab", "aa", "é<"];
            let cut = (0..=cut.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            let whole = find(&text, &markers, true);
            match find(&text[..cut], &markers, false) {
                found @ Found::Marker { .. } => prop_assert_eq!(found, whole),
                Found::Not(safe) => match whole {
                    Found::Marker { at, .. } => prop_assert!(at >= safe),
                    Found::Not(_) => (),
                },
            }
        }
    }
}
