//! Texts out of files that may be hostile, fit for a message: on one line, not longer than that, and without what
//! a terminal would obey.

use std::fmt;

/// As much of a text as a message shows, what a terminal would obey or not show spelled out.
pub fn one_line(text: &str, most_chars: usize) -> String {
    let mut line = String::new();
    for c in text.chars().take(most_chars) {
        match c {
            '\'' | '"' | '\\' => line.push(c),
            c => line.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(most_chars).is_some() {
        line.push_str("..");
    }
    line
}

/// What a driver or a server said, as words on one line.
pub fn squeezed(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(200).collect()
}

/// A name between backticks.
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", one_line(self.0, 80))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_but_text() {
        assert_eq!(one_line("it's \"a\\b\" é漢", 80), "it's \"a\\b\" é漢");
        assert_eq!(one_line("a\u{1b}[2J\r\n\0\u{202e}b", 80), "a\\u{1b}[2J\\r\\n\\0\\u{202e}b");
        assert_eq!((one_line("abc", 3), one_line("abcd", 3)), ("abc".into(), "abc..".into()));
        assert_eq!(Quoted("x\n").to_string(), "`x\\n`");
    }
}
