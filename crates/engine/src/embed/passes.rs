//! Distributes texts over passes.

use std::ops::Range;

/// Distributes texts in their order over passes of at most `tokens` tokens for which there is room. A longer text has a pass of
/// its own.
pub fn passes(lens: &[usize], tokens: usize, has_room: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut passes = Vec::new();
    let mut begin = 0;
    while begin < lens.len() {
        let (mut end, mut sum) = (begin + 1, lens[begin]);
        while end < lens.len() && sum + lens[end] <= tokens && has_room(end + 1 - begin) {
            sum += lens[end];
            end += 1;
        }
        passes.push(begin..end);
        begin = end;
    }
    passes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_share_passes_in_their_order() {
        let all = |_: usize| true;
        assert_eq!(passes(&[3, 4, 3, 1, 20, 2, 8], 10, all), [0..3, 3..4, 4..5, 5..7]);
        assert_eq!(passes(&[1; 5], 10, |texts| texts <= 2), [0..2, 2..4, 4..5]);
        assert!(passes(&[], 10, all).is_empty());
    }
}
