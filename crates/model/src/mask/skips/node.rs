//! A JSON value with its place in the file, for messages that say where the shape is wrong.

use std::fmt::Display;

use serde_json::{Map, Value};

use super::super::check_layer;
use crate::{Error, Result, quoted::one_line};

pub(super) struct Node<'a> {
    source: &'a str,
    /// `masks[0].skip.attention[2]`; empty at the top.
    path: String,
    pub value: &'a Value,
}

impl<'a> Node<'a> {
    pub fn root(source: &'a str, value: &'a Value) -> Self {
        Self { source, path: String::new(), value }
    }

    /// The value of a key; null counts as missing.
    pub fn get(&self, key: &str) -> Option<Node<'a>> {
        self.value.get(key).filter(|v| !v.is_null()).map(|value| self.member(key, value))
    }

    fn member(&self, key: &str, value: &'a Value) -> Node<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        Node { source: self.source, path: format!("{}{dot}{}", self.path, printable(key)), value }
    }

    pub fn object(&self) -> Result<&'a Map<String, Value>> {
        self.value.as_object().ok_or_else(|| self.expected("an object"))
    }

    pub fn entries(&self) -> Result<impl Iterator<Item = (&'a str, Node<'a>)>> {
        Ok(self.object()?.iter().map(|(key, value)| (key.as_str(), self.member(key, value))))
    }

    pub fn items(&self) -> Result<impl Iterator<Item = Node<'a>>> {
        let array = self.value.as_array().ok_or_else(|| self.expected("an array"))?;
        let item = |(i, value)| Node { source: self.source, path: format!("{}[{i}]", self.path), value };
        Ok(array.iter().enumerate().map(item))
    }

    pub fn string(&self) -> Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.expected("a string"))
    }

    pub fn whole_number(&self) -> Result<u64> {
        self.value.as_u64().ok_or_else(|| self.expected("a whole number from 0"))
    }

    pub fn number_up_to(&self, max: f64) -> Result<f64> {
        let in_range = |x: &f64| (0.0..=max).contains(x);
        self.value.as_f64().filter(in_range).ok_or_else(|| match max {
            f64::MAX => self.expected("a number from 0"),
            _ => self.expected(format_args!("a number from 0 to {max}")),
        })
    }

    pub fn layer(&self, n_layer: usize) -> Result<usize> {
        check_layer(self.whole_number()?, n_layer, || self.origin())
    }

    /// For a layer that is not this value but goes with it.
    pub fn check_layer(&self, layer: usize, n_layer: usize) -> Result<usize> {
        check_layer(layer as u64, n_layer, || self.origin())
    }

    fn origin(&self) -> String {
        match self.path.is_empty() {
            true => self.source.to_string(),
            false => format!("{}: {}", self.source, self.path),
        }
    }

    pub fn error(&self, what: impl Display) -> Error {
        Error::Mask(format!("{}: {what}", self.origin()))
    }

    pub fn expected(&self, expected: impl Display) -> Error {
        let found = match self.value {
            Value::Array(_) => "an array".into(),
            Value::Object(_) => "an object".into(),
            scalar => one_line(&scalar.to_string(), 40),
        };
        self.error(format_args!("{found} where {expected} was expected"))
    }
}

/// A name from a file, fit for a message of one line.
pub(super) fn printable(name: &str) -> String {
    one_line(name, 60)
}
