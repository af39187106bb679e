//! Texts that may hold anything, for a page or a picture.

use std::fmt::{self, Write};

use crate::quoted::one_line;

/// About the width of a letter, of the size of the text.
const LETTER: f64 = 0.56;

/// Inside an element or between quotes. What XML does not allow at all is replaced.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(c)?,
                c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A name as a label shows it: on one line, and no longer than that.
pub fn shortened(name: &str, most_chars: usize) -> String {
    match name.chars().count() > most_chars {
        true => one_line(name, most_chars - 1).trim_end_matches("..").to_string() + "…",
        false => one_line(name, most_chars),
    }
}

/// About how wide a text of that size is.
pub fn width(text: &str, size: f64) -> f64 {
    LETTER * size * text.chars().count() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(Escaped("a<b>&\"c'").to_string(), "a&lt;b&gt;&amp;&quot;c&#39;");
        assert_eq!(Escaped("a\u{1b}\0b\n").to_string(), "a\u{fffd}\u{fffd}b\n");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!((shortened("abcd", 4), shortened("abcde", 4)), ("abcd".into(), "abc…".into()));
    }
}
