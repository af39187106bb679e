//! What an answer has to look like when tools have to be called: literal text and JSON in turn, in the model's own syntax.

use serde_json::{Map, Value, json};

use super::{
    Tool, ToolChoice,
    syntax::{Body, CALL, Calls, Marked, RESPONSE, Syntax, Tags},
};

/// A form for text.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Exactly this.
    Text(String),
    /// Any text up to this, and this.
    Until(String),
    /// Spaces and line breaks, if any.
    Space,
    /// JSON of a schema.
    Json(Value),
    /// One after the other.
    Row(Vec<Pattern>),
    /// One of them.
    Either(Vec<Pattern>),
    /// It or nothing.
    Maybe(Box<Pattern>),
    /// Once or more often.
    Many(Box<Pattern>),
}

/// What is known before an answer begins.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// How the model marks things.
    pub syntax: Syntax,
    /// It may think first.
    pub may_think: bool,
    /// The prompt has begun what it thinks.
    pub thinking: bool,
}

fn text(text: impl Into<String>) -> Pattern {
    Pattern::Text(text.into())
}

impl Pattern {
    /// One call of a tool, or more if they may be `parallel`. Nothing if tools need not be called, or if the syntax has no
    /// calls; where the model is told a form for calls, this form, and then `answer_schema` is the schema of an answer without a call.
    pub fn calls(
        opening: Opening,
        tools: &[Tool],
        choice: &ToolChoice,
        parallel: bool,
        answer_schema: Option<&Value>,
    ) -> Option<Pattern> {
        let told = opening.syntax.is_told();
        let allowed = |tool: &&Tool| match choice {
            ToolChoice::None => false,
            ToolChoice::Auto => told,
            ToolChoice::Required => true,
            ToolChoice::Named(name) => tool.name == *name,
        };
        let tools: Vec<&Tool> = tools.iter().filter(allowed).collect();
        if tools.is_empty() {
            return None;
        }
        let calls = match opening.syntax.calls {
            Calls::None => return None,
            Calls::Harmony => Pattern::Either(tools.iter().map(|tool| harmony(tool)).collect()),
            Calls::Marked(marked) if *choice == ToolChoice::Auto => {
                Pattern::Either(vec![marked_calls(marked, &tools, parallel), told_answer(answer_schema)])
            }
            Calls::Marked(marked) => marked_calls(marked, &tools, parallel),
        };
        Some(Pattern::after_thinking(opening, calls))
    }

    /// This behind what the model thinks, if it does.
    pub fn after_thinking(opening: Opening, then: Pattern) -> Pattern {
        let until = |end: &str| Pattern::Until(end.to_owned());
        let thought = match (opening.syntax.calls, opening.syntax.reasoning) {
            (Calls::Harmony, _) if opening.may_think => {
                let start = text("<|channel|>analysis<|message|>");
                Pattern::Maybe(Box::new(Pattern::Row(vec![
                    start,
                    until("<|end|>"),
                    text("<|start|>assistant"),
                ])))
            }
            (_, Some((_, close))) if opening.thinking => Pattern::Row(vec![until(close), Pattern::Space]),
            (_, Some((open, close))) if opening.may_think => {
                Pattern::Maybe(Box::new(Pattern::Row(vec![text(open), until(close), Pattern::Space])))
            }
            (Calls::Harmony | Calls::None | Calls::Marked(_), _) => return then,
        };
        Pattern::Row(vec![thought, then])
    }

    /// JSON in the channel where gpt-oss answers.
    pub fn final_json(opening: Opening, schema: Value) -> Pattern {
        let json = Pattern::Json(schema);
        let then = match opening.syntax.calls {
            Calls::Harmony => Pattern::Row(vec![text("<|channel|>final <|constrain|>json<|message|>"), json]),
            Calls::None | Calls::Marked(_) => json,
        };
        Pattern::after_thinking(opening, then)
    }
}

fn harmony(tool: &Tool) -> Pattern {
    let header = format!("<|channel|>commentary to=functions.{} <|constrain|>json<|message|>", tool.name);
    Pattern::Row(vec![text(header), Pattern::Json(tool.parameters.clone())])
}

/// What is said instead of a call, in the form that the model is told.
fn told_answer(answer_schema: Option<&Value>) -> Pattern {
    let schema = answer_schema.cloned().unwrap_or_else(|| json!({ "type": "string" }));
    Pattern::Row(vec![text(format!("{{\"{RESPONSE}\": ")), Pattern::Json(schema), text("}")])
}

fn marked_calls(marked: &Marked, tools: &[&Tool], parallel: bool) -> Pattern {
    let open = marked.opens.first().copied().unwrap_or_default();
    let each = |one: &dyn Fn(&Tool) -> Pattern| Pattern::Either(tools.iter().map(|tool| one(tool)).collect());
    let many = |one: Pattern| if parallel { Pattern::Many(Box::new(one)) } else { one };
    match &marked.body {
        Body::Json { bare, name, arguments, listed } => {
            let objects = tools.iter().map(|tool| object(tool, name, arguments));
            let one = json!({ "anyOf": objects.collect::<Vec<_>>() });
            if *listed {
                let mut list = json!({ "type": "array", "items": one, "minItems": 1 });
                if !parallel {
                    list["maxItems"] = 1.into();
                }
                let close = marked.skips.first().copied().unwrap_or_default();
                return Pattern::Row(vec![text(open), Pattern::Json(list), text(close)]);
            }
            if *bare {
                return Pattern::Json(one);
            }
            let close = format!("\n{}\n", marked.skips.first().copied().unwrap_or_default());
            many(Pattern::Row(vec![text(format!("{open}\n")), Pattern::Json(one), text(close)]))
        }
        Body::Named { prefix, ends, in_id } => {
            // The first of the ends that stand before arguments; an id's is left out.
            let end = ends.iter().find(|end| **end != "[CALL_ID]").copied().unwrap_or_default();
            let fence = end.contains("```");
            let number = if *in_id { ":0" } else { "" };
            let prefix = if fence || *in_id { prefix } else { "" };
            let close = marked.skips.iter().find(|skip| skip.contains("end") || skip.starts_with("</"));
            let close = format!("{}{}", if fence { "\n```" } else { "" }, close.copied().unwrap_or_default());
            let one = each(&|tool| {
                let head =
                    format!("{open}{prefix}{}{number}{end}{}", tool.name, if fence { "\n" } else { "" });
                Pattern::Row(vec![text(head), Pattern::Json(tool.parameters.clone()), text(close.as_str())])
            });
            // An id says how many calls came before.
            if *in_id { one } else { many(one) }
        }
        Body::Tagged(tags) => many(each(&|tool| tagged(marked, tags, tool))),
        Body::Gemma => many(each(&|tool| {
            Pattern::Row(vec![text(format!("{open}{}{{", tool.name)), Pattern::Until("}<tool_call|>".into())])
        })),
        Body::Told => {
            let objects = tools.iter().map(|tool| object(tool, "name", "arguments"));
            let one = json!({ "anyOf": objects.collect::<Vec<_>>() });
            Pattern::Row(vec![text(format!("{{\"{CALL}\": ")), Pattern::Json(one), text("}")])
        }
        Body::Python { close } => each(&|tool| {
            let head = format!("{open}\n{}(", tool.name);
            Pattern::Row(vec![text(head), Pattern::Until(format!(")\n{close}"))])
        }),
    }
}

/// The schema of a call that is an object.
fn object(tool: &Tool, name: &str, arguments: &str) -> Value {
    let mut properties = Map::new();
    properties.insert(name.into(), json!({ "const": tool.name }));
    properties.insert(arguments.into(), tool.parameters.clone());
    json!({
        "type": "object",
        "properties": properties,
        "required": [name, arguments],
        "additionalProperties": false,
    })
}

/// Arguments in the order of the schema; those that are not required may be missing.
fn tagged(marked: &Marked, tags: &Tags, tool: &Tool) -> Pattern {
    let line = if tags.own_line { "\n" } else { "" };
    // Qwen's calls stand in a second pair of tags.
    let outer = marked.skips.first().copied().zip(marked.skips.get(1).copied()).filter(|_| tags.own_line);
    let name_end = tags.name_ends[0];
    let mut row = Vec::new();
    let start = outer.map_or(String::new(), |(open, _)| format!("{open}\n"));
    row.push(text(format!("{start}{}{}{name_end}{line}", marked.opens[0], tool.name)));
    let required = |key: &str| {
        let list = tool.parameters["required"].as_array().into_iter().flatten();
        list.into_iter().any(|name| name.as_str() == Some(key))
    };
    for (key, schema) in tool.parameters["properties"].as_object().into_iter().flatten() {
        let head = format!("{}{key}{}{}{line}", tags.key_open, tags.key_close, tags.value_open);
        let close = tags.value_closes[0].to_owned();
        let is_text = schema["type"].as_str().is_none_or(|kind| kind == "string");
        let mut argument = vec![text(head)];
        match is_text {
            true => argument.push(Pattern::Until(close)),
            false => argument.extend([Pattern::Json(schema.clone()), text(close)]),
        }
        argument.push(Pattern::Space);
        let argument = Pattern::Row(argument);
        row.push(if required(key) { argument } else { Pattern::Maybe(Box::new(argument)) });
    }
    let end = outer.map_or(String::new(), |(_, close)| format!("\n{close}\n"));
    row.push(text(format!("{}{end}", tags.end)));
    Pattern::Row(row)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Answer, AnswerReader, Reading},
        *,
    };

    fn tools() -> Vec<Tool> {
        let parameters = json!({
            "type": "object",
            "properties": { "city": { "type": "string" }, "days": { "type": "integer" } },
            "required": ["city"],
        });
        let tool = |name: &str| Tool {
            name: name.into(),
            description: String::new(),
            parameters: parameters.clone(),
        };
        vec![tool("weather"), tool("time")]
    }

    /// A text of this form.
    fn example(pattern: &Pattern, out: &mut String) {
        match pattern {
            Pattern::Text(text) => out.push_str(text),
            Pattern::Until(end) => {
                let any = match end.as_str() {
                    // What a model would write there.
                    "}<tool_call|>" => "city:<|\"|>Oslo<|\"|>",
                    end if end.starts_with(')') => "city='Oslo'",
                    _ => "Oslo",
                };
                out.push_str(any);
                out.push_str(end);
            }
            Pattern::Space => out.push('\n'),
            Pattern::Json(schema) => out.push_str(&value(schema).to_string()),
            Pattern::Row(all) => all.iter().for_each(|one| example(one, out)),
            Pattern::Either(all) => example(&all[0], out),
            Pattern::Maybe(_) => (),
            Pattern::Many(one) => {
                example(one, out);
                example(one, out);
            }
        }
    }

    /// A value of a schema.
    fn value(schema: &Value) -> Value {
        if let Some(it) = schema.get("const") {
            return it.clone();
        }
        if let Some(all) = schema["anyOf"].as_array() {
            return value(&all[0]);
        }
        match schema["type"].as_str() {
            Some("object") => {
                let names = schema["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                names.map(|name| (name.to_owned(), value(&schema["properties"][name]))).collect()
            }
            Some("array") => json!([value(&schema["items"])]),
            Some("string") => json!("Oslo"),
            _ => json!(1),
        }
    }

    /// What has the form of a call is read as one.
    #[test]
    fn the_reader_finds_the_calls_that_were_asked_for() {
        let templates = [
            "<tool_call></think>",
            "<tool_call><function=<parameter=",
            "<tool_call><arg_key>",
            "<|python_tag|>",
            "[TOOL_CALLS][/THINK]",
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁begin｜>```json",
            "<|tool_calls_section_begin|><|tool_call_begin|>",
            "<function=",
            "<minimax:tool_call><invoke name=",
            "<|START_ACTION|>",
            "<|tool_call|>",
            "<|tool_call>call:",
            "<start_of_turn>",
            "<|channel|>",
            "no syntax for calls",
        ];
        for template in templates {
            let (syntax, tools) = (Syntax::of(template), tools());
            for (may_think, thinking) in [(false, false), (true, false), (true, true)] {
                let opening = Opening { syntax, may_think, thinking };
                let named = ToolChoice::Named("time".into());
                for (choice, name) in [(ToolChoice::Required, "weather"), (named, "time")] {
                    let mut text = String::new();
                    example(&Pattern::calls(opening, &tools, &choice, false, None).unwrap(), &mut text);
                    let mut reader =
                        AnswerReader::new(Reading { syntax, tools: &tools, reasoning: true, thinking });
                    let mut answer = Answer::default();
                    reader.push(&text).iter().chain(&reader.finish()).for_each(|delta| answer.add(delta));
                    assert_eq!(
                        (answer.content.as_str(), answer.calls.len()),
                        ("", 1),
                        "{template}: {text:?}"
                    );
                    assert_eq!(answer.calls[0].name, name, "{template}: {text:?}");
                    let arguments: Value = serde_json::from_str(&answer.calls[0].arguments).unwrap();
                    assert_eq!(arguments, json!({ "city": "Oslo" }), "{template}: {text:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_forced_where_tools_need_not_be_called() {
        let opening = Opening { syntax: Syntax::of("<tool_call>"), may_think: false, thinking: false };
        for choice in [ToolChoice::Auto, ToolChoice::None, ToolChoice::Named("unknown".into())] {
            assert_eq!(Pattern::calls(opening, &tools(), &choice, true, None), None);
        }
        let plain = Opening { syntax: Syntax::PLAIN, ..opening };
        assert_eq!(Pattern::calls(plain, &tools(), &ToolChoice::Required, true, None), None);
    }
}
