//! Words that depend on a number.

/// `1 chunk`, `2 chunks`: for nouns whose plural has an s.
pub fn count(n: usize, noun: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{s}")
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|n| count(n, "chunk")), ["0 chunks", "1 chunk", "2 chunks"]);
    }
}
