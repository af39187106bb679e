//! Gemma 4's calls: `NAME{key:<|"|>text<|"|>,list:[1,true]}`.

use serde_json::Value;

/// Stands before and behind a text.
pub(in crate::chat) const QUOTE: &str = "<|\"|>";
const CLOSE: &str = "<tool_call|>";
/// Deeper values are no arguments.
const MOST_DEPTH: usize = 64;

#[derive(Debug, PartialEq)]
pub(super) enum Read {
    /// It is not whole yet.
    More,
    /// It is no call.
    Not,
    Call {
        name: String,
        arguments: String,
        end: usize,
    },
}

/// Reads a call when its end has come.
pub(super) fn call(text: &str) -> Read {
    let Some(close) = text.find(CLOSE) else { return Read::More };
    let Some(open) = text.find('{').filter(|open| *open < close) else { return Read::Not };
    let name = text[..open].trim();
    let mut reader = Reader { rest: &text[open..], out: String::new() };
    if name.is_empty() || reader.object(0).is_none() {
        return Read::Not;
    }
    let end = text.len() - reader.rest.len();
    Read::Call { name: name.to_owned(), arguments: reader.out, end }
}

struct Reader<'a> {
    rest: &'a str,
    out: String,
}

impl Reader<'_> {
    fn takes(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(token)?;
        Some(())
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.takes("{")?;
        self.list("{", "}", |reader| {
            let (key, rest) = match reader.rest.trim_start().strip_prefix(QUOTE) {
                Some(quoted) => quoted.split_once(QUOTE)?,
                None => reader.rest.split_at(reader.rest.find(':')?),
            };
            reader.rest = rest;
            reader.takes(":")?;
            reader.out.push_str(&Value::from(key.trim().trim_matches('"')).to_string());
            reader.out.push_str(": ");
            reader.value(depth + 1)
        })
    }

    /// Members or elements up to the closing bracket.
    fn list(&mut self, open: &str, close: &str, one: impl Fn(&mut Self) -> Option<()>) -> Option<()> {
        self.out.push_str(open);
        let mut first = true;
        while self.takes(close).is_none() {
            if !first {
                self.takes(",")?;
                self.out.push_str(", ");
            }
            first = false;
            one(self)?;
        }
        self.out.push_str(close);
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        if depth > MOST_DEPTH {
            return None;
        }
        self.rest = self.rest.trim_start();
        if let Some(quoted) = self.rest.strip_prefix(QUOTE) {
            let (text, rest) = quoted.split_once(QUOTE)?;
            self.out.push_str(&Value::from(text).to_string());
            self.rest = rest;
            return Some(());
        }
        match self.rest.chars().next()? {
            '{' => self.object(depth),
            '[' => {
                self.takes("[")?;
                self.list("[", "]", |reader| reader.value(depth + 1))
            }
            _ => {
                let end = match self.rest.starts_with('"') {
                    true => super::json::ValueScan::first(self.rest)?.len(),
                    false => self.rest.find([',', '}', ']'])?,
                };
                let (word, rest) = self.rest.split_at(end);
                if word.trim().is_empty() {
                    return None;
                }
                // A number, a word, or a text whose quotes were forgotten.
                let json = serde_json::from_str::<Value>(word.trim()).unwrap_or_else(|_| word.trim().into());
                self.out.push_str(&json.to_string());
                self.rest = rest;
                Some(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Option<String> {
        match call(&format!("f{text}<tool_call|>")) {
            Read::Call { name, arguments, end } => {
                assert_eq!((name.as_str(), end), ("f", 1 + text.len()));
                Some(arguments)
            }
            Read::More | Read::Not => None,
        }
    }

    #[test]
    fn objects_become_json() {
        let cases = [
            ("{}", "{}"),
            (r#"{city:<|"|>San "F" <|"|>}"#, r#"{"city": "San \"F\" "}"#),
            ("{a:1,b:-2.5,c:true,d:null}", r#"{"a": 1, "b": -2.5, "c": true, "d": null}"#),
            (r#"{l:[<|"|>x<|"|>,{y:[]}],o:{p:{}}}"#, r#"{"l": ["x", {"y": []}], "o": {"p": {}}}"#),
            (r#"{<|"|>a b<|"|>: bare, "c": "d"}"#, r#"{"a b": "bare", "c": "d"}"#),
        ];
        for (text, json) in cases {
            assert_eq!(arguments(text).as_deref(), Some(json), "{text}");
        }
    }

    #[test]
    fn what_is_no_object_is_no_call() {
        for text in ["", "{", "{a}", "{a:}", "{a:1", r#"{a:<|"|>x}"#, &format!("{{a:{}", "[".repeat(99))] {
            assert_eq!(arguments(text), None, "{text}");
        }
        assert_eq!(call("f{a:1}"), Read::More);
    }
}
