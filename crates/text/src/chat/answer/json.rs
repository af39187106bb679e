//! JSON that arrives in pieces.

/// Looks for the end of a value. What is inside it is not judged.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueScan {
    kind: Kind,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Kind {
    #[default]
    Unknown,
    /// Ends with its own bracket or quote.
    Closed,
    /// A number or a word: ends where something else begins.
    Open,
}

impl ValueScan {
    /// Where the value ends in the next piece; nothing if it goes on behind it.
    pub fn feed(&mut self, text: &str) -> Option<usize> {
        for (at, c) in text.char_indices() {
            if self.kind == Kind::Unknown {
                self.kind = if matches!(c, '{' | '[' | '"') { Kind::Closed } else { Kind::Open };
            }
            if self.kind == Kind::Open {
                if matches!(c, ',' | '}' | ']') || c.is_whitespace() {
                    return Some(at);
                }
                continue;
            }
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' if self.in_string => self.escaped = true,
                '"' => self.in_string = !self.in_string,
                '{' | '[' if !self.in_string => self.depth += 1,
                '}' | ']' if !self.in_string => self.depth = self.depth.saturating_sub(1),
                _ => (),
            }
            if self.depth == 0 && !self.in_string {
                return Some(at + c.len_utf8());
            }
        }
        None
    }

    /// The first value of a text.
    pub fn first(text: &str) -> Option<&str> {
        ValueScan::default().feed(text).map(|end| &text[..end])
    }
}

/// How a call in JSON begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Head {
    /// Not known yet.
    More,
    /// It is no call.
    Not,
    /// A call.
    Call {
        name: String,
        id: Option<String>,
        /// Arguments that stood before the name.
        arguments: Option<String>,
        /// Where the arguments begin, or else the end of the object.
        at: usize,
        /// How many objects are open there.
        objects: usize,
    },
}

/// Reads the members of an object until its name is known and its arguments begin. `at` counts from the start of `text`.
pub(super) fn head(text: &str) -> Head {
    let mut at = skip_space(text, 0);
    match text[at..].chars().next() {
        None => return Head::More,
        Some('{') => at += 1,
        Some(_) => return Head::Not,
    }
    members(text, at, 1)
}

fn members(text: &str, mut at: usize, objects: usize) -> Head {
    let (mut name, mut id, mut arguments) = (None, None, None);
    loop {
        at = skip_space(text, at);
        match (text[at..].chars().next(), &name) {
            (None, _) => return Head::More,
            (Some(','), _) => {
                at += 1;
                continue;
            }
            (Some('}'), Some(_)) => break,
            (Some('"'), _) => (),
            (Some(_), _) => return Head::Not,
        }
        let Some(key) = ValueScan::first(&text[at..]) else { return Head::More };
        at = skip_space(text, at + key.len());
        match text[at..].chars().next() {
            None => return Head::More,
            Some(':') => at = skip_space(text, at + 1),
            Some(_) => return Head::Not,
        }
        let rest = &text[at..];
        let Some(first) = rest.chars().next() else { return Head::More };
        let key = key.trim_matches('"');
        let is_arguments = matches!(key, "arguments" | "parameters" | "args");
        if is_arguments && name.is_some() && arguments.is_none() {
            break;
        }
        // OpenAI's shape has the call one level deeper.
        if key == "function" && first == '{' && objects == 1 {
            return members(text, at + 1, objects + 1);
        }
        let Some(value) = ValueScan::first(rest) else { return Head::More };
        let string = || serde_json::from_str::<String>(value).ok();
        match key {
            "name" | "tool_name" | "function" => match string() {
                Some(text) if !text.is_empty() => name = Some(text),
                _ => return Head::Not,
            },
            "id" | "tool_call_id" => id = string(),
            "type" => (),
            _ if is_arguments => arguments = Some(value.to_owned()),
            _ => return Head::Not,
        }
        at += value.len();
    }
    let name = name.unwrap_or_default();
    Head::Call { name, id, arguments, at, objects }
}

/// The first member of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Member {
    /// Not known yet.
    More,
    /// It is no object, or has no member.
    Not,
    /// Its key, and where its value begins.
    Of { key: String, at: usize },
}

/// Reads the first key of an object.
pub(super) fn member(text: &str) -> Member {
    let mut at = skip_space(text, 0);
    for expected in ['{', '"'] {
        match text[at..].chars().next() {
            None => return Member::More,
            Some(c) if c != expected => return Member::Not,
            // The key's own quote is part of it.
            Some('{') => at = skip_space(text, at + 1),
            Some(_) => (),
        }
    }
    let Some(key) = ValueScan::first(&text[at..]) else { return Member::More };
    at = skip_space(text, at + key.len());
    match text[at..].chars().next() {
        None => Member::More,
        Some(':') => Member::Of { key: key.trim_matches('"').to_owned(), at: skip_space(text, at + 1) },
        Some(_) => Member::Not,
    }
}

/// The place of the first character from `at` on that is not a space.
pub(super) fn skip_space(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_with_its_last_bracket() {
        for (text, value) in [
            (r#"{"a": "}\"", "b": [1, {}]} x"#, r#"{"a": "}\"", "b": [1, {}]}"#),
            (r#""a\\" , "#, r#""a\\""#),
            ("12.5, ", "12.5"),
            ("true}", "true"),
            ("[[]]]", "[[]]"),
        ] {
            assert_eq!(ValueScan::first(text), Some(value), "{text}");
            let mut scan = ValueScan::default();
            let pieces = text.char_indices().map(|(at, c)| (at, scan.feed(c.encode_utf8(&mut [0; 4]))));
            let end = pieces.filter_map(|(at, end)| end.map(|end| at + end)).next();
            assert_eq!(end, Some(value.len()), "{text}");
        }
        assert_eq!(ValueScan::first(r#"{"a": "}"#), None);
        assert_eq!(ValueScan::first("12"), None);
    }

    #[test]
    fn the_first_member_of_an_object() {
        let of = |key: &str, at: usize| Member::Of { key: key.into(), at };
        assert_eq!(member(" { \"a\" : 1}"), of("a", 9));
        for more in ["", "{", "{ \"a", "{\"a\"", "{\"a\" "] {
            assert_eq!(member(more), Member::More, "{more:?}");
        }
        for not in ["x", "[", "{}", "{1", "{\"a\", "] {
            assert_eq!(member(not), Member::Not, "{not:?}");
        }
    }

    fn call(name: &str, id: Option<&str>, arguments: Option<&str>, at: usize, objects: usize) -> Head {
        Head::Call {
            name: name.into(),
            id: id.map(Into::into),
            arguments: arguments.map(Into::into),
            at,
            objects,
        }
    }

    #[test]
    fn heads_of_calls() {
        assert_eq!(head(r#" {"name": "f", "arguments": {"#), call("f", None, None, 28, 1));
        assert_eq!(
            head(r#"{"parameters": {"x": 1}, "name": "f"}"#),
            call("f", None, Some(r#"{"x": 1}"#), 36, 1)
        );
        assert_eq!(head(r#"{"tool_call_id": "0", "tool_name": "f"}"#), call("f", Some("0"), None, 38, 1));
        let nested = r#"{"type": "function", "function": {"name": "f", "arguments": "{}"}}"#;
        assert_eq!(head(nested), call("f", None, None, 60, 2));
        for end in 0..28 {
            assert_eq!(head(&r#" {"name": "f", "arguments": {"#[..end]), Head::More, "{end}");
        }
        for not in
            ["x", "[", "{}", "{1", r#"{"name" 1"#, r#"{"name": 1,"#, r#"{"name": "","#, r#"{"city": "x","#]
        {
            assert_eq!(head(not), Head::Not, "{not}");
        }
    }
}
