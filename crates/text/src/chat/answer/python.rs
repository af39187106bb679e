//! Calls as in Python: `[f(city="Paris", n=3), g()]`. They become a name and an object each.

use serde_json::Value;

/// Deeper values are no arguments.
const MOST_DEPTH: usize = 64;

/// The calls of a piece of code, with their arguments in JSON; nothing if there is anything else in it.
pub(super) fn calls(code: &str) -> Option<Vec<(String, String)>> {
    let mut reader = Reader { rest: code.trim() };
    let mut calls = Vec::new();
    let listed = reader.takes("[").is_some();
    loop {
        calls.push(reader.call()?);
        let goes_on = reader.takes(",").or_else(|| reader.takes(";")).is_some();
        let rest = reader.rest.trim_start();
        if listed && reader.takes("]").is_some() || rest.is_empty() {
            break;
        }
        // Without a list, each line is a call.
        if listed && !goes_on {
            return None;
        }
    }
    reader.rest.trim().is_empty().then_some(calls)
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn takes(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(token)?;
        Some(())
    }

    fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let end =
            rest.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '-')).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn call(&mut self) -> Option<(String, String)> {
        let name = self.word()?;
        self.takes("(")?;
        // What is called shows nothing by itself, so models print it.
        if name == "print" {
            let inner = self.call()?;
            self.takes(")")?;
            return Some(inner);
        }
        let mut members = Vec::new();
        while self.takes(")").is_none() {
            if !members.is_empty() {
                self.takes(",")?;
            }
            let key = self.word()?;
            self.takes("=")?;
            members.push(format!("{}: {}", Value::from(key), self.value(0)?));
        }
        Some((name.to_owned(), format!("{{{}}}", members.join(", "))))
    }

    fn value(&mut self, depth: usize) -> Option<String> {
        if depth > MOST_DEPTH {
            return None;
        }
        self.rest = self.rest.trim_start();
        match self.rest.chars().next()? {
            quote @ ('"' | '\'') => self.string(quote).map(|text| Value::from(text).to_string()),
            '[' => self.several("[", "]", depth, false),
            '(' => self.several("(", ")", depth, false),
            '{' => self.several("{", "}", depth, true),
            _ => {
                let negative = self.takes("-").is_some();
                let word = self.word()?;
                match word {
                    "True" | "true" => Some("true".into()),
                    "False" | "false" => Some("false".into()),
                    "None" | "null" => Some("null".into()),
                    number => {
                        let text = format!("{}{number}", if negative { "-" } else { "" });
                        serde_json::from_str::<Value>(&text).ok().filter(Value::is_number).map(|_| text)
                    }
                }
            }
        }
    }

    fn several(&mut self, open: &str, close: &str, depth: usize, keyed: bool) -> Option<String> {
        self.takes(open)?;
        let mut all = Vec::new();
        while self.takes(close).is_none() {
            if !all.is_empty() {
                self.takes(",")?;
                if self.takes(close).is_some() {
                    break;
                }
            }
            let first = self.value(depth + 1)?;
            all.push(match keyed {
                true => {
                    self.takes(":")?;
                    format!("{first}: {}", self.value(depth + 1)?)
                }
                false => first,
            });
        }
        Some(match keyed {
            true => format!("{{{}}}", all.join(", ")),
            false => format!("[{}]", all.join(", ")),
        })
    }

    fn string(&mut self, quote: char) -> Option<String> {
        let long: String = std::iter::repeat_n(quote, 3).collect();
        let short = quote.to_string();
        let close = if self.rest.starts_with(&long) { long } else { short };
        let mut rest = &self.rest[close.len()..];
        let mut text = String::new();
        loop {
            if let Some(behind) = rest.strip_prefix(&close) {
                self.rest = behind;
                return Some(text);
            }
            let mut chars = rest.chars();
            match chars.next()? {
                '\\' => match chars.next()? {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    '\n' => (),
                    c @ ('\\' | '\'' | '"') => text.push(c),
                    other => text.extend(['\\', other]),
                },
                c => text.push(c),
            }
            rest = chars.as_str();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_become_json() {
        let cases: [(&str, &[(&str, &str)]); 6] = [
            ("f()", &[("f", "{}")]),
            (
                "[f(a=1, b='it\\'s'), g.h(c=[1, -2.5, None])]",
                &[("f", r#"{"a": 1, "b": "it's"}"#), ("g.h", r#"{"c": [1, -2.5, null]}"#)],
            ),
            ("\nprint(f(x=True))\n", &[("f", r#"{"x": true}"#)]),
            ("f(d={\"a\": {'b': ()}})", &[("f", r#"{"d": {"a": {"b": []}}}"#)]),
            ("f(s=\"\"\"a\n\"b\\n\"\"\")", &[("f", r#"{"s": "a\n\"b\n"}"#)]),
            ("f(a=1)\ng(b=2)", &[("f", r#"{"a": 1}"#), ("g", r#"{"b": 2}"#)]),
        ];
        for (code, expected) in cases {
            let expected = expected.iter().map(|(name, json)| (name.to_string(), json.to_string()));
            assert_eq!(calls(code), Some(expected.collect()), "{code}");
        }
    }

    #[test]
    fn other_code_is_no_call() {
        for code in [
            "",
            "f",
            "f(",
            "f(1)",
            "x = f()",
            "[f() g()]",
            "f(a=b)",
            "f(a='x)",
            &format!("f(a={}", "[".repeat(99)),
        ] {
            assert_eq!(calls(code), None, "{code}");
        }
    }
}
