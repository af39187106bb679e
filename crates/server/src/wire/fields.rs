//! Reads the fields of a request's object. What is null counts as missing, numbers may be written as 8 or 8.0, and an error
//! names the field.
//!
//! Not by serde's derives: most fields may be one thing or another, and its untagged enums do not get along with numbers that
//! keep their digits.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::error::ApiError;

type Result<T> = std::result::Result<T, ApiError>;

/// The fields of an object.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// The fields of a body.
    pub fn of(body: &'a Value) -> Result<Self> {
        body.as_object().map(Fields).ok_or_else(|| ApiError::invalid("the body is a JSON object"))
    }

    /// A field that is there and not null.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A field of these names, the first that is there, and its name.
    pub fn any<'n>(&self, names: &[&'n str]) -> Option<(&'n str, &'a Value)> {
        names.iter().find_map(|name| Some((*name, self.get(name)?)))
    }

    /// True or false.
    pub fn bool(&self, name: &str) -> Result<Option<bool>> {
        let read =
            |value: &Value| value.as_bool().ok_or_else(|| ApiError::field(name, "true or false is needed"));
        self.get(name).map(read).transpose()
    }

    /// A text.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>> {
        let read =
            |value: &'a Value| value.as_str().ok_or_else(|| ApiError::field(name, "a string is needed"));
        self.get(name).map(read).transpose()
    }

    /// A text, or several.
    pub fn texts(&self, name: &str) -> Result<Vec<String>> {
        let wrong = || ApiError::field(name, "a string or a list of strings is needed");
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(vec![text.clone()]),
            Some(Value::Array(all)) => {
                all.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    /// A list.
    pub fn list(&self, name: &str) -> Result<Option<&'a Vec<Value>>> {
        let read =
            |value: &'a Value| value.as_array().ok_or_else(|| ApiError::field(name, "a list is needed"));
        self.get(name).map(read).transpose()
    }

    /// An object.
    pub fn object(&self, name: &str) -> Result<Option<Fields<'a>>> {
        let read = |value: &'a Value| {
            value.as_object().map(Fields).ok_or_else(|| ApiError::field(name, "an object is needed"))
        };
        self.get(name).map(read).transpose()
    }

    /// A finite number.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        let read = |value: &Value| {
            let number = value.as_f64().filter(|number| number.is_finite());
            number.ok_or_else(|| ApiError::field(name, "a number is needed"))
        };
        self.get(name).map(read).transpose()
    }

    /// A whole number of this range, by the first of these names that is there.
    pub fn integer(&self, names: &[&str], range: RangeInclusive<i64>) -> Result<Option<i64>> {
        let Some((name, value)) = self.any(names) else { return Ok(None) };
        let whole = |x: f64| x.fract() == 0.0 && x.abs() < 9e15;
        let number = value.as_i64().or_else(|| value.as_f64().filter(|x| whole(*x)).map(|x| x as i64));
        let number = number.ok_or_else(|| ApiError::field(name, "a whole number is needed"))?;
        if !range.contains(&number) {
            let (from, to) = (range.start(), range.end());
            return Err(ApiError::field(name, format!("{number} is not between {from} and {to}")));
        }
        Ok(Some(number))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_read_leniently_and_errors_name_them() {
        let body = json!({ "a": 8.0, "b": null, "c": "x", "d": ["x", "y"], "e": "1", "f": 2.5, "g": 12345678901u64 });
        let fields = Fields::of(&body).unwrap();
        assert_eq!(fields.integer(&["b", "a"], 0..=10), Ok(Some(8)));
        assert_eq!(fields.integer(&["b"], 0..=10), Ok(None));
        assert_eq!(fields.number("f"), Ok(Some(2.5)));
        assert_eq!((fields.texts("c").unwrap().len(), fields.texts("d").unwrap().len()), (1, 2));
        for error in [
            fields.integer(&["a"], 0..=7).unwrap_err(),
            fields.integer(&["c"], 0..=7).unwrap_err(),
            fields.bool("a").map(|_| 0).unwrap_err(),
            fields.texts("a").map(|_| 0).unwrap_err(),
            fields.object("a").map(|_| 0).unwrap_err(),
        ] {
            assert!(error.message.starts_with("`a`: ") || error.message.starts_with("`c`: "), "{error:?}");
        }
        assert!(fields.number("e").is_err() && fields.integer(&["f"], 0..=9).is_err());
        assert!(Fields::of(&json!([])).is_err());
    }
}
