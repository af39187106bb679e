//! Limits for grammars: llguidance goes from rule to rule and from part to part by recursion.

use serde_json::Value;

/// Of the address space; only what is used is taken. A chain took at most 6 KiB for each part in a release build, so
/// that [`MOST_PARTS`] have four times as much as they were seen to need.
const STACK: usize = 256 << 20;
/// A chain of so many terminals, each a repetition of the next, is compiled in 3 s; the time grows faster than the number.
pub(super) const MOST_RULES: usize = 2000;
pub(super) const MOST_PARTS: usize = 10_000;

/// The size of a grammar, as far as recursion depends on it.
pub(super) struct Size {
    parts: usize,
    has_schemas: bool,
}

impl Size {
    /// The size of a schema: the entries of its objects and of its lists of required names.
    pub fn of_schema(schema: &Value) -> Result<Self, String> {
        Size { parts: entries(schema), has_schemas: true }.checked("entries in its objects and in `required`")
    }

    /// The size of a text in Lark, which is not parsed for that: each rule, each bracket and each entry of a schema in it may be a
    /// step of the recursion.
    pub fn of_lark(text: &str) -> Result<Self, String> {
        let is_rule = |line: &&str| {
            let begins = line.trim_start().starts_with(|c: char| c.is_alphabetic() || "_?!".contains(c));
            begins && line.contains(':')
        };
        let rules = text.lines().filter(is_rule).count();
        if rules > MOST_RULES {
            return Err(format!("{rules} rules, {MOST_RULES} are the most: put some of them together"));
        }
        // Characters by their number have a bracket without a part in it.
        let marks = text.matches(['(', '[', '{', ':', ',']).count() - text.matches("\\x{").count();
        let size = Size { parts: marks, has_schemas: text.contains("%json") };
        size.checked("brackets, colons and commas")
    }

    fn checked(self, what: &str) -> Result<Self, String> {
        match self.parts {
            parts if parts > MOST_PARTS => {
                Err(format!("{parts} {what}, {MOST_PARTS} are the most: make it smaller"))
            }
            _ => Ok(self),
        }
    }

    /// How many readings of a text may be open at a position. The time for a token grows with their third power where a grammar has
    /// many readings of the same text, but an optional property takes four of them and almost no time.
    pub fn most_readings(&self) -> usize {
        match self.has_schemas {
            true => (500 + 4 * self.parts).min(2000),
            false => (500 + self.parts).min(1000),
        }
    }
}

fn entries(value: &Value) -> usize {
    let entry = |(name, value): (&String, &Value)| {
        let required = value.as_array().filter(|_| name == "required").map_or(0, Vec::len);
        1 + required + entries(value)
    };
    match value {
        Value::Object(object) => object.iter().map(entry).sum(),
        Value::Array(list) => list.iter().map(entries).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Runs work with deep recursion on a large stack.
pub(super) fn with_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("grammar".into()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, work);
        let thread = thread.map_err(|e| format!("no thread with a stack of 256 MiB for reading it: {e}"))?;
        thread.join().map_err(|_| "it could not be read".into())
    })
}
