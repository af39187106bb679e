//! The text of an answer that a model writes inside an object: text out of a string, or JSON as it is.

use super::{
    Sink,
    arguments::{RestScan, Step},
    json::{ValueScan, skip_space},
};

pub(super) enum ObjectText {
    /// The value has not begun.
    Before,
    /// In a string.
    Text,
    /// Another value, handed on as it is.
    Json(ValueScan),
    /// The end of the object.
    Rest(RestScan),
}

impl ObjectText {
    pub fn step(&mut self, pending: &mut String, sink: &mut Sink) -> Step {
        loop {
            match self {
                ObjectText::Before => {
                    pending.drain(..skip_space(pending, 0));
                    match pending.chars().next() {
                        None => return Step::More,
                        Some('"') => {
                            pending.remove(0);
                            *self = ObjectText::Text;
                        }
                        Some(_) => *self = ObjectText::Json(ValueScan::default()),
                    }
                }
                ObjectText::Text => {
                    let (text, ended) = take_string(pending);
                    sink.content(&text);
                    if !ended {
                        return Step::More;
                    }
                    *self = ObjectText::Rest(RestScan::default());
                }
                ObjectText::Json(scan) => {
                    let end = scan.feed(pending);
                    let text: String = pending.drain(..end.unwrap_or(pending.len())).collect();
                    sink.content(&text);
                    if end.is_none() {
                        return Step::More;
                    }
                    *self = ObjectText::Rest(RestScan::default());
                }
                ObjectText::Rest(scan) => {
                    let end = scan.feed(pending);
                    pending.drain(..end.unwrap_or(pending.len()));
                    return if end.is_some() { Step::Done } else { Step::More };
                }
            }
        }
    }
}

/// Takes what can be read of a JSON string that has begun, and says whether it ends there. Half an escape is left.
fn take_string(pending: &mut String) -> (String, bool) {
    let (mut at, mut ended) = (0, false);
    while let Some(c) = pending[at..].chars().next() {
        let len = match c {
            '"' => {
                ended = true;
                break;
            }
            '\\' => escape(&pending[at..]),
            other => Some(other.len_utf8()),
        };
        match len {
            Some(len) => at += len,
            None => break,
        }
    }
    let raw: String = pending.drain(..at).collect();
    if ended {
        pending.remove(0);
    }
    let text = serde_json::from_str(&format!("\"{raw}\"")).unwrap_or(raw);
    (text, ended)
}

/// How long the escape is that a text begins with; nothing if the rest of it has not come.
fn escape(text: &str) -> Option<usize> {
    match text[1..].chars().next()? {
        'u' => match unit(text) {
            Unit::More => None,
            Unit::Not => Some(2),
            // Half of a pair is no character; one that is left alone is shown as it was written.
            Unit::Of(0xd800..0xdc00) => match unit(&text[6..]) {
                Unit::More => None,
                Unit::Not => Some(6),
                Unit::Of(_) => Some(12),
            },
            Unit::Of(_) => Some(6),
        },
        other => Some(1 + other.len_utf8()),
    }
}

enum Unit {
    /// What has come may be the beginning of one.
    More,
    Not,
    Of(u32),
}

/// A backslash, a u and four digits.
fn unit(text: &str) -> Unit {
    let fits = |(at, c): (usize, char)| match at {
        0 => c == '\\',
        1 => c == 'u',
        _ => c.is_ascii_hexdigit(),
    };
    if !text.chars().take(6).enumerate().all(fits) {
        return Unit::Not;
    }
    match text.get(2..6) {
        Some(digits) => u32::from_str_radix(digits, 16).map_or(Unit::Not, Unit::Of),
        None => Unit::More,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&str]) -> (String, Step) {
        let (mut reader, mut sink, mut pending) = (ObjectText::Before, Sink::default(), String::new());
        let mut step = Step::More;
        for piece in pieces {
            pending.push_str(piece);
            step = reader.step(&mut pending, &mut sink);
        }
        let deltas = sink.take();
        let text = deltas.iter().map(|delta| match delta {
            super::super::Delta::Content(text) => text.as_str(),
            other => panic!("{other:?}"),
        });
        (text.collect(), step)
    }

    #[test]
    fn strings_are_read_wherever_they_are_cut() {
        let json = r#" "a \"b\" \\ \n é \u00e9 \ud83d\ude00 {}" , "x": {} } rest"#;
        let expected = "a \"b\" \\ \n é é 😀 {}";
        assert_eq!(read(&[json]), (expected.into(), Step::Done));
        let letters: Vec<String> = json.chars().map(String::from).collect();
        let end = letters.len() - " rest".len();
        let letters: Vec<&str> = letters[..end].iter().map(String::as_str).collect();
        assert_eq!(read(&letters), (expected.into(), Step::Done));
        for cut in 0..json.len() {
            if json.is_char_boundary(cut) {
                assert_eq!(read(&[&json[..cut], &json[cut..]]).0, expected, "{cut}");
            }
        }
    }

    #[test]
    fn other_values_are_handed_on_and_half_of_a_text_is_shown() {
        assert_eq!(read(&[r#"{"a": [1, "}"]} }"#]), (r#"{"a": [1, "}"]}"#.into(), Step::Done));
        assert_eq!(read(&["\"half \\u00"]), ("half ".into(), Step::More));
        assert_eq!(read(&["\"half \\ud83d\\u"]), ("half ".into(), Step::More));
        for odd in ["odd \\ud83d.", "odd \\ud83d\\u00é", "odd \\u1"] {
            assert_eq!(read(&[&format!("\"{odd}\"}}")]), (odd.into(), Step::Done));
        }
    }
}
