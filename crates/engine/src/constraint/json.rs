//! JSON schemas, as they are given to llguidance.

use serde_json::{Value, json};

/// The blanks that may be between two parts, as in llama.cpp. They are limited because some models would write them without end.
const BLANKS: &str = r"( |\n{1,2}[ \t]{0,20})?";

/// Any value.
pub(super) fn any() -> Value {
    with_settings(json!({}))
}

/// Reads a schema. llguidance checks its contents.
pub(super) fn schema(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(schema @ (Value::Bool(true) | Value::Object(_))) => Ok(with_settings(schema)),
        Ok(_) => Err("an object is needed, such as {\"type\": \"object\"}".into()),
        Err(error) => Err(format!("this is not JSON: {error}")),
    }
}

/// The schemas within a schema, by their paths.
pub(super) fn parts(schema: &Value) -> Vec<(String, &Value)> {
    const SINGLE: [&str; 6] =
        ["items", "additionalProperties", "not", "contains", "propertyNames", "additionalItems"];
    const LISTS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
    const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
    let mut found = Vec::new();
    for (key, value) in schema.as_object().into_iter().flatten() {
        if SINGLE.contains(&key.as_str()) {
            found.push((key.clone(), value));
        } else if LISTS.contains(&key.as_str()) {
            let parts = value.as_array().into_iter().flatten().enumerate();
            found.extend(parts.map(|(i, part)| (format!("{key}/{i}"), part)));
        } else if NAMED.contains(&key.as_str()) {
            let parts = value.as_object().into_iter().flatten();
            found.extend(parts.map(|(name, part)| (format!("{key}/{name}"), part)));
        }
    }
    found
}

/// A part of a schema as a schema by itself, with the definitions and settings of the whole.
pub(super) fn alone(part: &Value, whole: &Value) -> Value {
    let mut alone = part.clone();
    if let Value::Object(object) = &mut alone {
        for key in ["$defs", "definitions", "x-guidance"] {
            if let Some(value) = whole.get(key) {
                object.insert(key.into(), value.clone());
            }
        }
    }
    alone
}

/// Adds settings as in llama.cpp, unless the schema has its own: blanks are limited, and any of several `oneOf` may hold.
pub fn with_settings(schema: Value) -> Value {
    let mut schema = if schema.is_object() { schema } else { json!({}) };
    let settings = &mut schema["x-guidance"];
    if settings.is_null() {
        *settings = json!({"whitespace_flexible": true, "whitespace_pattern": BLANKS, "coerce_one_of": true});
    }
    schema
}
