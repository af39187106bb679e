//! For templates that say nothing of tools: the model is told of them in the system message, and what was called and answered
//! before is written as it is to write it itself.

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::{
    Message, Tool,
    syntax::{CALL, RESPONSE},
};

/// The member in which the model gets what a tool answered.
const RESULT: &str = "tool_result";

/// The same conversation in words that any template can write.
pub(super) fn told(messages: Vec<Message>, tools: &[Tool]) -> Vec<Message> {
    let called: Vec<_> = messages.iter().flat_map(|message| message.tool_calls.clone()).collect();
    let name_of = |message: &Message| {
        let by_id = || called.iter().find(|call| message.tool_call_id.as_deref() == Some(&*call.id));
        message.name.clone().or_else(|| by_id().map(|call| call.name.clone()))
    };
    let mut all: Vec<Message> = Vec::new();
    // Whether the last message is a tool's answer. What comes of the user then belongs to it: many templates want turns.
    let mut answered = false;
    for message in messages {
        let is_answer = message.role == "tool";
        let message = match message.role.as_str() {
            "assistant" => answer(message),
            "tool" => Message::new("user", result(name_of(&message), &message)),
            _ => message,
        };
        match all.last_mut() {
            Some(last) if answered && message.role == "user" => {
                let text = format!("{}\n\n{}", last.content.text("\n"), message.content.text("\n"));
                last.content = text.into();
            }
            _ => all.push(message),
        }
        answered = is_answer;
    }
    match all.first_mut() {
        Some(first) if first.role == "system" => {
            first.content = format!("{}\n\n{}", first.content.text("\n"), of(tools)).into();
        }
        _ => all.insert(0, Message::new("system", of(tools))),
    }
    all
}

fn of(tools: &[Tool]) -> String {
    let line = |tool: &Tool| {
        let Tool { name, description, parameters } = tool;
        json!({ "name": name, "description": description, "parameters": parameters }).to_string()
    };
    let lines: Vec<String> = tools.iter().map(line).collect();
    format!(
        "There are tools that you can call:\n{}\n\n\
         Write each answer as one JSON object, in one of two forms. This calls a tool, with arguments as its parameters ask for them:\n\
         {{\"{CALL}\": {{\"name\": \"NAME\", \"arguments\": {{}}}}}}\n\
         This says something:\n\
         {{\"{RESPONSE}\": \"TEXT\"}}\n\
         What a tool gives comes back to you as {{\"{RESULT}\": {{\"name\": \"NAME\", \"content\": \"TEXT\"}}}}.",
        lines.join("\n")
    )
}

/// An earlier answer: text, calls, or both.
fn answer(message: Message) -> Message {
    let mut lines = Vec::new();
    if !message.content.is_empty() || message.tool_calls.is_empty() {
        lines.push(format!("{{\"{RESPONSE}\": {}}}", Value::from(message.content.text("\n"))));
    }
    for call in &message.tool_calls {
        let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
        lines.push(format!(
            "{{\"{CALL}\": {{\"name\": {}, \"arguments\": {}}}}}",
            Value::from(&*call.name),
            as_json(arguments)
        ));
    }
    Message { content: lines.join("\n").into(), tool_calls: Vec::new(), ..message }
}

fn result(name: Option<String>, message: &Message) -> String {
    let name = name.map_or(String::new(), |name| format!("\"name\": {}, ", Value::from(name)));
    let content = message.content.text("\n");
    format!("{{\"{RESULT}\": {{{name}\"content\": {}}}}}", as_json(&content))
}

/// What is JSON is not put into a string once more.
fn as_json(text: &str) -> String {
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => text.trim().to_owned(),
        Err(_) => Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::ToolCall, *};

    fn tools() -> [Tool; 1] {
        [Tool {
            name: "weather".into(),
            description: "Tells".into(),
            parameters: json!({ "type": "object" }),
        }]
    }

    #[test]
    fn calls_and_their_answers_are_text_in_turns() {
        let call = |id: &str, city: &str| ToolCall {
            id: id.into(),
            name: "weather".into(),
            arguments: format!("{{\"city\":\"{city}\"}}"),
        };
        let answer =
            |id: &str, text: &str| Message { tool_call_id: Some(id.into()), ..Message::new("tool", text) };
        let calls = vec![call("1", "Oslo"), call("2", "Rome")];
        let all = told(
            vec![
                Message::new("system", "Be brief."),
                Message::new("user", "Weather?"),
                Message { tool_calls: calls, ..Message::new("assistant", "Let me see.") },
                answer("1", "rain"),
                answer("2", "{\"sky\": \"clear\"}"),
                Message::new("user", "And now?"),
                Message::new("assistant", "Go \"out\"."),
            ],
            &tools(),
        );
        let roles: Vec<&str> = all.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
        let texts: Vec<String> = all.iter().map(|message| message.content.text("")).collect();
        assert!(texts[0].starts_with("Be brief.\n\nThere are tools"), "{}", texts[0]);
        assert!(texts[0].contains("{\"name\":\"weather\",\"description\":\"Tells\""), "{}", texts[0]);
        assert_eq!(
            texts[2],
            "{\"response\": \"Let me see.\"}\n\
             {\"tool_call\": {\"name\": \"weather\", \"arguments\": {\"city\":\"Oslo\"}}}\n\
             {\"tool_call\": {\"name\": \"weather\", \"arguments\": {\"city\":\"Rome\"}}}"
        );
        assert_eq!(
            texts[3],
            "{\"tool_result\": {\"name\": \"weather\", \"content\": \"rain\"}}\n\n\
             {\"tool_result\": {\"name\": \"weather\", \"content\": {\"sky\": \"clear\"}}}\n\nAnd now?"
        );
        assert_eq!(texts[4], "{\"response\": \"Go \\\"out\\\".\"}");
        assert!(all.iter().all(|message| message.tool_calls.is_empty()));
    }

    #[test]
    fn without_a_system_message_there_is_one() {
        let all = told(vec![Message::new("user", "Hi")], &tools());
        assert_eq!((all[0].role.as_str(), all[1].content.text("")), ("system", "Hi".into()));
        assert_eq!(told(Vec::new(), &tools()).len(), 1);
    }
}
