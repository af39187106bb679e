//! What a conversation consists of. In JSON all of it has the shape of OpenAI's API, in which templates expect it too.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value, json};

/// One turn of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: String,
    /// What is said.
    pub content: Content,
    /// What an assistant thought before it spoke.
    pub reasoning_content: Option<String>,
    /// The tools that an assistant wants to be called.
    pub tool_calls: Vec<ToolCall>,
    /// Which call a tool's message answers.
    pub tool_call_id: Option<String>,
    /// The name of the tool, or of who speaks.
    pub name: Option<String>,
}

/// The text of a message: whole, or in parts. What has no content has an empty text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// One text.
    Text(String),
    /// Several.
    Parts(Vec<String>),
}

/// A call that the model asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// What the tool's answer refers to; may be empty.
    pub id: String,
    /// The tool.
    pub name: String,
    /// JSON as the model wrote it; perhaps unfinished.
    pub arguments: String,
}

/// A function that the model may ask to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// A JSON schema of its arguments.
    pub parameters: Value,
}

/// Whether tools are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// The model is told of them, and calls are left in the text.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

impl Default for Content {
    fn default() -> Self {
        Content::Text(String::new())
    }
}

impl Content {
    /// The whole text, parts put together with this between them.
    pub fn text(&self, between: &str) -> String {
        match self {
            Content::Text(text) => text.clone(),
            Content::Parts(parts) => parts.join(between),
        }
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        match self {
            Content::Text(text) => text.is_empty(),
            Content::Parts(parts) => parts.iter().all(String::is_empty),
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Content::Text(text.into())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Content::Text(text)
    }
}

impl Message {
    /// A message of this role.
    pub fn new(role: impl Into<String>, content: impl Into<Content>) -> Self {
        Message { role: role.into(), content: content.into(), ..Message::default() }
    }

    /// Reads OpenAI's JSON; the error says what is wrong in it.
    pub fn from_json(json: &Value) -> Result<Self, String> {
        let fields = json.as_object().ok_or("a message is an object")?;
        let role = text(fields, "role")?.ok_or("a message needs a `role`")?;
        let content = content(fields.get("content").unwrap_or(&Value::Null))?;
        let tool_calls = match fields.get("tool_calls") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(calls)) => calls.iter().map(ToolCall::from_json).collect::<Result<_, _>>()?,
            Some(_) => return Err("`tool_calls` is a list".into()),
        };
        if content.is_none() && role != "assistant" {
            return Err(format!("a message of the role {role:?} needs `content`"));
        }
        let reasoning = text(fields, "reasoning_content")?;
        if content.is_none() && tool_calls.is_empty() && reasoning.is_none() {
            return Err("a message of the assistant needs `content` or `tool_calls`".into());
        }
        Ok(Message {
            role,
            content: content.unwrap_or_default(),
            reasoning_content: reasoning.filter(|text| !text.is_empty()),
            tool_calls,
            tool_call_id: text(fields, "tool_call_id")?,
            name: text(fields, "name")?,
        })
    }

    /// OpenAI's JSON.
    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        json.insert("role".into(), self.role.as_str().into());
        let content = match &self.content {
            Content::Text(text) => text.as_str().into(),
            Content::Parts(parts) => typed(parts),
        };
        json.insert("content".into(), content);
        let texts = [
            ("reasoning_content", &self.reasoning_content),
            ("name", &self.name),
            ("tool_call_id", &self.tool_call_id),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                json.insert(key.into(), text.as_str().into());
            }
        }
        if !self.tool_calls.is_empty() {
            json.insert("tool_calls".into(), self.tool_calls.iter().map(ToolCall::to_json).collect());
        }
        json.into()
    }
}

/// Content as a list of parts.
pub(super) fn typed(parts: &[String]) -> Value {
    parts.iter().map(|text| json!({ "type": "text", "text": text })).collect()
}

impl ToolCall {
    fn from_json(json: &Value) -> Result<Self, String> {
        let function = json.get("function").and_then(Value::as_object);
        let function = function.ok_or("a tool call needs a `function`, which is an object")?;
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => "{}".into(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let id = json.as_object().map(|fields| text(fields, "id")).transpose()?.flatten();
        Ok(ToolCall {
            id: id.unwrap_or_default(),
            name: text(function, "name")?.ok_or("the `function` of a tool call needs a `name`")?,
            arguments,
        })
    }

    /// OpenAI's JSON, without the id where there is none.
    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        json.insert("type".into(), "function".into());
        json.insert("function".into(), json!({ "name": self.name, "arguments": self.arguments }));
        if !self.id.is_empty() {
            json.insert("id".into(), self.id.as_str().into());
        }
        json.into()
    }
}

impl Tool {
    /// Reads OpenAI's JSON; `None` for a tool that is not a function, which only its maker can call.
    pub fn from_json(json: &Value) -> Result<Option<Self>, String> {
        let fields = json.as_object().ok_or("a tool is an object")?;
        match text(fields, "type")?.as_deref() {
            Some("function") | None => (),
            Some(_) => return Ok(None),
        }
        let function = fields.get("function").and_then(Value::as_object);
        let function = function.ok_or("a tool needs a `function`, which is an object")?;
        let name = text(function, "name")?.ok_or("the `function` of a tool needs a `name`")?;
        let parameters = match function.get("parameters") {
            None | Some(Value::Null) => json!({ "type": "object", "properties": {} }),
            Some(Value::Object(schema)) => of_object(schema.clone()),
            Some(_) => {
                return Err(format!("the `parameters` of the tool {name:?} are a JSON schema, an object"));
            }
        };
        Ok(Some(Tool { name, description: text(function, "description")?.unwrap_or_default(), parameters }))
    }

    /// OpenAI's JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "type": "function",
            "function": { "name": self.name, "description": self.description, "parameters": self.parameters },
        })
    }
}

/// Arguments are an object; a schema that does not say what they are would allow any JSON.
fn of_object(mut schema: Map<String, Value>) -> Value {
    const SAY: [&str; 8] = ["type", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "enum", "const"];
    if !SAY.iter().any(|key| schema.contains_key(*key)) {
        schema.insert("type".into(), "object".into());
        schema.entry("properties").or_insert_with(|| json!({}));
    }
    schema.into()
}

impl ToolChoice {
    /// Reads OpenAI's JSON: a word, or an object that names a function.
    pub fn from_json(json: &Value) -> Result<Self, String> {
        match json {
            Value::Null => Ok(ToolChoice::Auto),
            Value::String(word) => match word.as_str() {
                "auto" => Ok(ToolChoice::Auto),
                "none" => Ok(ToolChoice::None),
                "required" | "any" => Ok(ToolChoice::Required),
                other => Err(format!("{other:?}; `auto`, `none`, `required` or a function is possible")),
            },
            // In chat completions the name is one level deeper than in responses.
            json => match json.pointer("/function/name").or(json.get("name")).and_then(Value::as_str) {
                Some(name) => Ok(ToolChoice::Named(name.into())),
                None => Err("an object needs `function` with a `name`".into()),
            },
        }
    }
}

/// A text that may be missing or null.
fn text(fields: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{key}` is a string")),
    }
}

fn content(json: &Value) -> Result<Option<Content>, String> {
    let part = |part: &Value| match part {
        Value::String(text) => Ok(Some(text.clone())),
        Value::Object(fields) => match fields.get("type").and_then(Value::as_str) {
            Some("text" | "input_text" | "output_text") => {
                Ok(Some(text(fields, "text")?.ok_or("a part of the type `text` needs a `text`")?))
            }
            // What an assistant declined to say, and did not.
            Some("refusal") => Ok(None),
            Some("image_url" | "input_image" | "image") => {
                Err("image input is not supported: models here read text only".into())
            }
            Some(other) => Err(format!("a part of the type {other:?}; only `text` is read")),
            None => Err("a part of `content` needs a `type`".into()),
        },
        _ => Err("a part of `content` is an object".into()),
    };
    match json {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(Content::Text(text.clone()))),
        Value::Array(parts) => {
            let parts = parts.iter().filter_map(|one| part(one).transpose());
            Ok(Some(Content::Parts(parts.collect::<Result<_, String>>()?)))
        }
        _ => Err("`content` is a string or a list of parts".into()),
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Message::from_json(&Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl Serialize for Tool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Tool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tool = Tool::from_json(&Value::deserialize(deserializer)?).map_err(de::Error::custom)?;
        tool.ok_or_else(|| de::Error::custom("a tool that is not a function"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(json: Value) -> Result<Message, String> {
        Message::from_json(&json)
    }

    #[test]
    fn messages_are_read_as_clients_send_them() {
        let parts = message(json!({
            "role": "user",
            "content": [{ "type": "text", "text": "a" }, { "type": "input_text", "text": "b" }, "c"],
        }));
        assert_eq!(parts.unwrap().content, Content::Parts(vec!["a".into(), "b".into(), "c".into()]));
        let call = json!({
            "role": "assistant",
            "content": null,
            "reasoning_content": "hm",
            "tool_calls": [
                { "id": "1", "type": "function", "function": { "name": "f", "arguments": "{\"x\": 1}" } },
                { "id": "2", "type": "function", "function": { "name": "g", "arguments": { "y": [1.5, "z"] } } },
                { "function": { "name": "h" } },
            ],
        });
        let call = message(call).unwrap();
        assert_eq!((call.content.text(""), call.reasoning_content.as_deref()), (String::new(), Some("hm")));
        let arguments: Vec<&str> = call.tool_calls.iter().map(|call| call.arguments.as_str()).collect();
        assert_eq!(arguments, ["{\"x\": 1}", "{\"y\":[1.5,\"z\"]}", "{}"]);
        let answer = json!({ "role": "tool", "tool_call_id": "1", "content": "42" });
        assert_eq!(message(answer).unwrap().tool_call_id.as_deref(), Some("1"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let call = ToolCall { id: "1".into(), name: "f".into(), arguments: "{}".into() };
        let messages = [
            Message::new("user", Content::Parts(vec!["a".into(), "b".into()])),
            Message {
                reasoning_content: Some("hm".into()),
                tool_calls: vec![call.clone(), ToolCall { id: String::new(), ..call }],
                ..Message::new("assistant", "")
            },
            Message { tool_call_id: Some("1".into()), name: Some("f".into()), ..Message::new("tool", "42") },
        ];
        for it in messages {
            assert_eq!(message(it.to_json()).unwrap(), it);
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let cases = [
            (json!(123), "is an object"),
            (json!({}), "`role`"),
            (json!({ "role": 123 }), "`role` is a string"),
            (json!({ "role": "system", "content": 123 }), "`content` is a string or a list"),
            (json!({ "role": "user" }), "needs `content`"),
            (json!({ "role": "assistant" }), "`content` or `tool_calls`"),
            (json!({ "role": "user", "content": [{ "type": "image_url" }] }), "image input is not supported"),
            (json!({ "role": "user", "content": [{ "type": "audio" }] }), "\"audio\""),
            (json!({ "role": "assistant", "tool_calls": [{}] }), "`function`"),
            (json!({ "role": "assistant", "tool_calls": [{ "function": {} }] }), "`name`"),
            (json!({ "role": "assistant", "tool_calls": 1 }), "is a list"),
        ];
        for (json, expected) in cases {
            let error = message(json.clone()).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }

    #[test]
    fn tools_are_functions() {
        let tool = |json: Value| Tool::from_json(&json);
        let known = tool(json!({ "type": "function", "function": { "name": "f" } })).unwrap().unwrap();
        assert_eq!(known.parameters, json!({ "type": "object", "properties": {} }));
        assert_eq!(Tool::from_json(&known.to_json()).unwrap().unwrap(), known);
        let parameters = |schema: Value| {
            let json = json!({ "type": "function", "function": { "name": "f", "parameters": schema } });
            tool(json).unwrap().unwrap().parameters
        };
        assert_eq!(parameters(json!({})), known.parameters);
        let untyped = json!({ "properties": { "x": { "type": "integer" } }, "required": ["x"] });
        let typed = parameters(untyped.clone());
        assert_eq!((&typed["type"], &typed["properties"]), (&json!("object"), &untyped["properties"]));
        let either = json!({ "anyOf": [{ "type": "object" }] });
        assert_eq!(parameters(either.clone()), either);
        assert_eq!(tool(json!({ "type": "web_search" })), Ok(None));
        assert!(tool(json!({ "type": "function" })).unwrap_err().contains("`function`"));
        let schema = json!({ "type": "function", "function": { "name": "f", "parameters": 7 } });
        assert!(tool(schema).unwrap_err().contains("\"f\""));
    }

    #[test]
    fn a_choice_of_tools_is_a_word_or_a_function() {
        let choice = |json: Value| ToolChoice::from_json(&json);
        assert_eq!(choice(json!(null)), Ok(ToolChoice::Auto));
        assert_eq!(choice(json!("required")), Ok(ToolChoice::Required));
        let named = Ok(ToolChoice::Named("f".into()));
        assert_eq!(choice(json!({ "type": "function", "function": { "name": "f" } })), named);
        assert_eq!(choice(json!({ "type": "function", "name": "f" })), named);
        assert!(choice(json!("perhaps")).is_err() && choice(json!({})).is_err());
    }
}
