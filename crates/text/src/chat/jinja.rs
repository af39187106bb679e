//! What templates expect of Jinja beyond the language: the functions, filters and methods that Hugging Face's tools give
//! them, as Python has them.

use std::io;

use minijinja::{
    Environment, Error as JinjaError, ErrorKind, UndefinedBehavior, Value, filters,
    syntax::SyntaxConfig,
    value::{Kwargs, ValueKind},
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
/// Levels of a value whose keys are sorted.
const DEEPEST: usize = 128;

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
    environment.add_filter("indent", indent);
    environment.add_filter("backwards", backwards);
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
    let source = backwards_by_filters(&without_generation_blocks(source)?)?;
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

/// Slices that go backwards are written as filters. minijinja 3.0.5 ends them one item late where the end is 0 or out of range,
/// and panics on `[::-1]` of what is empty; its filter `reverse` gives the same as that, and nothing for nothing.
fn backwards_by_filters(source: &str) -> Result<String> {
    let broken = |e: regex::Error| Error::Tokenizer(format!("slices that go backwards: {e}"));
    let tag = Regex::new(r"(?s)\{\{.*?\}\}|\{%.*?%\}").map_err(broken)?;
    // Not where more of the same value follows: a filter would take that too.
    let slice = r#"\[(?P<start>[^\[\]:"'{}]*):(?P<stop>[^\[\]:"'{}]*):\s*-(?P<step>\d+)\s*\](?P<next>\s*(?:[^\[.(\s]|$))"#;
    let slice = Regex::new(slice).map_err(broken)?;
    let filter = |found: &Captures| {
        let part = |name: &str| Some(found[name].trim()).filter(|it: &&str| !it.is_empty()).unwrap_or("none");
        match [part("start"), part("stop"), &found["step"]] {
            ["none", "none", "1"] => format!("|reverse{}", &found["next"]),
            [start, stop, step] => format!("|backwards({start}, {stop}, {step}){}", &found["next"]),
        }
    };
    Ok(tag
        .replace_all(source, |found: &Captures| slice.replace_all(&found[0], filter).into_owned())
        .into_owned())
}

/// `[start:stop:-step]` as in Python.
fn backwards(value: &Value, start: Option<i64>, stop: Option<i64>, step: usize) -> Result<Value, JinjaError> {
    let items: Vec<Value> = if value.is_none() { Vec::new() } else { value.try_iter()?.collect() };
    let count = items.len() as i64;
    // -1 is before the first.
    let at = |given: i64| (if given < 0 { given.saturating_add(count) } else { given }).clamp(-1, count - 1);
    let (first, last) = (at(start.unwrap_or(i64::MAX)), stop.map_or(-1, at) + 1);
    let taken = (last..=first).rev().step_by(step.max(1)).filter_map(|at| items.get(at as usize).cloned());
    Ok(match value.kind() {
        ValueKind::String => Value::from(taken.map(|it| it.to_string()).collect::<String>()),
        _ => taken.collect(),
    })
}

/// JSON as Python writes it: like minijinja's, without the escapes that it adds for HTML.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, JinjaError> {
    let indent: Option<Value> = options.get("indent")?;
    let sorts = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let value = &if sorts { sorted(value, DEEPEST)? } else { value.clone() };
    let json = filters::tojson(value, indent, Kwargs::from_iter(Vec::<(&str, Value)>::new()))?;
    let mut json = without_html_escapes(json.as_str().unwrap_or_default());
    if let Some(separators) = options.get::<Option<Vec<String>>>("separators")? {
        let [item, key] = &separators[..] else {
            let what = "tojson's separators are two texts: between items, and behind a key";
            return Err(JinjaError::new(ErrorKind::InvalidOperation, what));
        };
        json = separated(&json, item, key);
    }
    let ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    Ok(Value::from(if ascii { in_ascii(&json) } else { json }))
}

/// Objects have their keys in order, those within others too.
fn sorted(value: &Value, depth: usize) -> Result<Value, JinjaError> {
    let within = |value: &Value| match depth.checked_sub(1) {
        Some(depth) => sorted(value, depth),
        None => {
            Err(JinjaError::new(ErrorKind::InvalidOperation, "tojson cannot sort what is nested so deeply"))
        }
    };
    match value.kind() {
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            keys.sort_by_key(ToString::to_string);
            let pairs = keys.into_iter().map(|key| Ok((key.clone(), within(&value.get_item(&key)?)?)));
            Ok(Value::from_pairs(pairs.collect::<Result<Vec<_>, JinjaError>>()?))
        }
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?.map(|it| within(&it)).collect(),
        _ => Ok(value.clone()),
    }
}

/// JSON with other texts between items and behind keys than a comma and a colon, each with a blank.
fn separated(json: &str, item: &str, key: &str) -> String {
    let (mut out, mut is_text) = (String::with_capacity(json.len()), false);
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ',' | ':' if !is_text => {
                out.push_str(if c == ',' { item } else { key });
                chars.next_if_eq(&' ');
                continue;
            }
            '\\' => out.extend([c, chars.next().unwrap_or_default()]),
            _ => out.push(c),
        }
        is_text ^= c == '"';
    }
    out
}

/// As in Python: minijinja's loses a newline at the end.
fn indent(
    text: &str,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<String, JinjaError> {
    let flag = |given: Option<bool>, name| match given {
        Some(given) => Ok(given),
        None => options.get::<Option<bool>>(name).map(Option::unwrap_or_default),
    };
    let width = match width {
        Some(width) => width,
        None => options.get::<Option<usize>>("width")?.unwrap_or(4),
    };
    let (first, blank) = (flag(first, "first")?, flag(blank, "blank")?);
    let blanks = " ".repeat(width);
    let mut out = String::new();
    for (n, line) in text.split('\n').enumerate() {
        out.push_str(if n > 0 { "\n" } else { "" });
        let line = line.strip_suffix('\r').unwrap_or(line);
        let is_indented = if n == 0 { first } else { blank || !line.is_empty() };
        out.push_str(if is_indented { &blanks } else { "" });
        out.push_str(line);
    }
    Ok(out)
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
