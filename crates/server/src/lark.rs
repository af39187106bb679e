//! Patterns of answers as grammars for llguidance.

use std::fmt::Write;

use serde_json::Value;

use crate::{Tokenizer, chat::Pattern, constraint::with_settings};

/// The texts of control tokens, which are no text for a grammar.
pub struct Controls(Vec<(String, u32)>);

impl Controls {
    /// Those of a vocabulary.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        let ids = (0..tokenizer.vocab_size() as u32).filter(|id| tokenizer.is_control(*id));
        let texts = ids.map(|id| (tokenizer.token_text(id).to_owned(), id));
        let mut all: Vec<(String, u32)> = texts.filter(|(text, _)| !text.is_empty()).collect();
        // Of two that begin alike the longer is meant.
        all.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        Controls(all)
    }

    /// The first one in a text: where it begins, where it ends, and which it is.
    fn first(&self, text: &str) -> Option<(usize, usize, u32)> {
        let found = self.0.iter().filter_map(|(control, id)| {
            let at = text.find(control.as_str())?;
            Some((at, at + control.len(), *id))
        });
        found.min_by_key(|(at, end, _)| (*at, std::cmp::Reverse(*end)))
    }
}

/// A grammar whose texts have this form.
pub fn grammar(pattern: &Pattern, controls: &Controls) -> String {
    let mut writer = Writer { controls, rules: String::new(), next: 0 };
    let start = writer.expression(pattern);
    format!("start: {start}\n{}", writer.rules)
}

struct Writer<'c> {
    controls: &'c Controls,
    rules: String,
    next: usize,
}

impl Writer<'_> {
    fn rule(&mut self, attributes: &str, body: &str) -> String {
        let name = format!("rule_{}", self.next);
        self.next += 1;
        // Writing to a string cannot fail.
        let _ = writeln!(self.rules, "{name}{attributes}: {body}");
        name
    }

    fn expression(&mut self, pattern: &Pattern) -> String {
        const ANY: &str = "/(?s:.*)/";
        match pattern {
            Pattern::Text(text) => self.literal(text),
            Pattern::Until(end) => match self.controls.first(end) {
                // Text never has a control token in it.
                Some((0, ..)) => format!("{} {}", self.rule("", ANY), self.literal(end)),
                Some((at, ..)) => {
                    let before = self.rule(&format!("[suffix={}]", Value::from(&end[..at])), ANY);
                    format!("{before} {}", self.literal(&end[at..]))
                }
                None => self.rule(&format!("[suffix={}]", Value::from(end.as_str())), ANY),
            },
            // Not without an end: a model that may write blanks for ever will.
            Pattern::Space => self.rule("", "/[ \\n]{0,4}/"),
            Pattern::Json(schema) => self.rule("", &format!("%json {}", with_settings(schema.clone()))),
            Pattern::Row(all) => {
                let all: Vec<String> = all.iter().map(|one| self.expression(one)).collect();
                all.join(" ")
            }
            Pattern::Either(all) => {
                let all: Vec<String> = all.iter().map(|one| self.expression(one)).collect();
                format!("({})", all.join(" | "))
            }
            Pattern::Maybe(one) => format!("({})?", self.expression(one)),
            Pattern::Many(one) => format!("({})+", self.expression(one)),
        }
    }

    fn literal(&self, mut text: &str) -> String {
        let mut parts = Vec::new();
        while let Some((at, end, id)) = self.controls.first(text) {
            if at > 0 {
                parts.push(Value::from(&text[..at]).to_string());
            }
            parts.push(format!("<[{id}]>"));
            text = &text[end..];
        }
        if !text.is_empty() || parts.is_empty() {
            parts.push(Value::from(text).to_string());
        }
        parts.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        chat::{Opening, Syntax, Tool, ToolChoice},
        constraint::{Grammar, Vocabulary},
    };

    #[test]
    fn control_tokens_are_named_by_their_numbers() {
        let controls = Controls(vec![("<call>".into(), 7), ("</think>".into(), 8)]);
        let row = Pattern::Row(vec![
            Pattern::Maybe(Box::new(Pattern::Until("\n</think>".into()))),
            Pattern::Text("a\"<call>\n".into()),
            Pattern::Many(Box::new(Pattern::Json(json!({ "type": "object" })))),
        ]);
        assert_eq!(
            grammar(&row, &controls),
            format!(
                "start: (rule_0 <[8]>)? \"a\\\"\" <[7]> \"\\n\" (rule_1)+\n\
                 rule_0[suffix=\"\\n\"]: /(?s:.*)/\nrule_1: %json {}\n",
                with_settings(json!({ "type": "object" }))
            )
        );
    }

    /// What is asked of each kind of model can be compiled.
    #[test]
    fn all_calls_are_grammars() {
        let Ok(gguf) = spec_run_gguf::embedded::open() else {
            eprintln!("NOT RUN: no embedded model");
            return;
        };
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        let vocabulary = Vocabulary::new(&tokenizer).unwrap();
        let controls = Controls::of(&tokenizer);
        let properties = json!({ "city": { "type": "string" }, "days": { "type": "integer" } });
        let parameters = json!({ "type": "object", "properties": properties, "required": ["city"] });
        let tools = [Tool { name: "f".into(), description: String::new(), parameters }];
        for template in [
            "<tool_call></think>",
            "<tool_call><function=<parameter=",
            "<tool_call><arg_key>",
            "<|python_tag|>",
            "[TOOL_CALLS][/THINK]",
            "<｜tool▁calls▁begin｜>```json",
            "<|START_ACTION|>",
            "<|tool_call>call:",
            "<start_of_turn>",
            "<|channel|>",
            "no syntax for calls",
        ] {
            for (may_think, thinking, parallel) in [(true, false, true), (false, true, false)] {
                let opening = Opening { syntax: Syntax::of(template), may_think, thinking };
                let calls = Pattern::calls(opening, &tools, &ToolChoice::Required, parallel, None).unwrap();
                let text = grammar(&calls, &controls);
                let compiled = vocabulary.compile(&Grammar::Lark(text.clone()));
                assert!(compiled.is_ok(), "{template}: {}\n{text}", compiled.err().unwrap());
            }
        }
    }
}
