//! What templates expect of Jinja beyond the language: the functions, filters and methods that Hugging Face's tools give
//! them, as Python has them.

use std::io;

use minijinja::{
    Environment, Error as JinjaError, ErrorKind, UndefinedBehavior, Value, filters, syntax::SyntaxConfig,
    value::Kwargs,
};
use minijinja_contrib::pycompat::unknown_method_callback;
use regex::{Captures, Regex};
use serde_json::Value as Json;

use super::strftime;
use crate::{Error, Result, quoted::one_line};

/// Instructions that a template may take; real ones need some hundreds per message.
const FUEL: u64 = 20_000_000;
/// Bytes of a rendered conversation: more than any context holds.
const MOST_OUTPUT: usize = 64 << 20;

/// Jinja as Python has it.
pub(super) fn environment() -> Result<Environment<'static>> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(failed)?;
    environment.set_syntax(syntax);
    environment.set_fuel(Some(FUEL));
    // As llama.cpp has it: many templates look at the first message without asking whether there is one.
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.add_filter("tojson", to_json);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", |value: &Value| is_iterable(value) && value.len().is_some());
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", |format: &str| strftime::now(format));
    Ok(environment)
}

/// The same templates with less to spend, for conversations of a few words.
pub(super) fn for_trials(environment: &Environment<'static>) -> Environment<'static> {
    let mut environment = environment.clone();
    environment.set_fuel(Some(FUEL / 20));
    environment
}

/// Compiles a template under a name, which messages of errors show.
pub(super) fn compile(
    environment: &mut Environment<'static>,
    name: &'static str,
    source: &str,
) -> Result<()> {
    let source = reversed_by_a_filter(&without_generation_blocks(source)?)?;
    environment.add_template_owned(name, source).map_err(failed)
}

/// The text of a template.
pub(super) fn render(environment: &Environment<'static>, name: &str, variables: Value) -> Result<String> {
    let template = environment.get_template(name).map_err(failed)?;
    let mut output = Limited(Vec::new());
    let rendered = template.render_captured_to(variables, &mut output);
    match rendered {
        _ if output.0.len() > MOST_OUTPUT => Err(Error::Tokenizer(format!(
            "the chat template of the file failed: it writes more than {} MiB",
            MOST_OUTPUT >> 20
        ))),
        Err(error) => Err(failed(error)),
        Ok(_) => String::from_utf8(output.0)
            .map_err(|e| Error::Tokenizer(format!("the chat template of the file failed: {e}"))),
    }
}

/// A number is given as what it is: serde would make a map of it, because ours keep their digits.
pub(super) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(it) => Value::from(*it),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(it), _) => Value::from(it),
            (None, Some(it)) => Value::from(it),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(values) => values.iter().map(value).collect(),
        Json::Object(fields) => Value::from_pairs(fields.iter().map(|(key, it)| (key.as_str(), value(it)))),
    }
}

/// Takes a little more than a template may write, and then no more.
struct Limited(Vec<u8>);

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() > MOST_OUTPUT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let taken = bytes.len().min(MOST_OUTPUT + 1 - self.0.len());
        self.0.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failed(error: JinjaError) -> Error {
    let line = error.line().map(|line| format!(", line {line}")).unwrap_or_default();
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    Error::Tokenizer(format!("the chat template of the file failed{line}: {}", one_line(&what, 300)))
}

fn raise_exception(message: &str) -> Result<String, JinjaError> {
    Err(JinjaError::new(ErrorKind::InvalidOperation, message.to_owned()))
}

/// As in Python, where nothing comes out of `none`, and strings and maps are sequences.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Marks what the assistant said, for training; here it is plain text.
fn without_generation_blocks(source: &str) -> Result<String> {
    let tag = Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")
        .map_err(|e| Error::Tokenizer(format!("generation blocks: {e}")))?;
    let plain = tag.replace_all(source, |found: &Captures| {
        let block = if found.get(2).is_some() { "endif" } else { "if true" };
        format!("{{%{} {block} {}%}}", &found[1], &found[3])
    });
    Ok(plain.into_owned())
}

/// `[::-1]` of what is empty makes minijinja 3.0.5 panic; its filter `reverse` gives the same, and nothing for nothing.
fn reversed_by_a_filter(source: &str) -> Result<String> {
    let broken = |e: regex::Error| Error::Tokenizer(format!("slices that go backwards: {e}"));
    let tag = Regex::new(r"(?s)\{\{.*?\}\}|\{%.*?%\}").map_err(broken)?;
    // Not where more of the same value follows: a filter would take that too.
    let slice = Regex::new(r"\[\s*:\s*:\s*-1\s*\](?P<next>\s*(?:[^\[.(\s]|$))").map_err(broken)?;
    Ok(tag
        .replace_all(source, |found: &Captures| slice.replace_all(&found[0], "|reverse$next").into_owned())
        .into_owned())
}

/// JSON as Python writes it: like minijinja's, without the escapes that it adds for HTML.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, JinjaError> {
    let indent: Option<Value> = options.get("indent")?;
    let json = filters::tojson(value, indent, Kwargs::from_iter(Vec::<(&str, Value)>::new()))?;
    let json = without_html_escapes(json.as_str().unwrap_or_default());
    let ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    Ok(Value::from(if ascii { in_ascii(&json) } else { json }))
}

/// JSON with escapes for all that is not ASCII: of UTF-16, as JSON has them.
fn in_ascii(json: &str) -> String {
    let escaped = |c: char| -> String {
        let mut pair = [0; 2];
        c.encode_utf16(&mut pair).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    };
    json.chars().map(|c| if c.is_ascii() { c.to_string() } else { escaped(c) }).collect()
}

fn without_html_escapes(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at..];
        let plain = [(r"\u003c", '<'), (r"\u003e", '>'), (r"\u0026", '&'), (r"\u0027", '\'')]
            .into_iter()
            .find_map(|(escaped, plain)| Some((escape.strip_prefix(escaped)?, plain)));
        match plain {
            Some((after, plain)) => {
                out.push(plain);
                rest = after;
            }
            None => {
                // The backslash and what it escapes, which may be another backslash.
                let end = escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end);
                out.push_str(&escape[..end]);
                rest = &escape[end..];
            }
        }
    }
    out + rest
}
