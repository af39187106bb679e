//! Chat templates as Python's jinja2 renders them.

use crate::{QWEN, SMOLLM2, golden, models, tokenizer};
use spec_run::{
    Gguf,
    chat::{ChatTemplate, Conversation, Message, Tool},
};

#[test]
fn conversations_are_written_as_jinja2_writes_them() {
    let golden = golden("templates.json");
    for (real, path) in models("conversations_are_written_as_jinja2_writes_them", &[SMOLLM2, QWEN]) {
        let (gguf, tokenizer) = (Gguf::open(&path).unwrap(), tokenizer(&path));
        let template = ChatTemplate::from_gguf(&gguf, &tokenizer).unwrap();
        let caps = [false, true].map(|tools| template.caps(tools));
        for case in golden["cases"].as_array().unwrap() {
            let name = format!("{}: {}", real.name, case["name"].as_str().unwrap());
            let messages = case["messages"].as_array().unwrap().iter();
            let messages = messages.map(|json| Message::from_json(json).unwrap()).collect();
            let tools = case["tools"].as_array().into_iter().flatten();
            let tools: Vec<Tool> = tools.filter_map(|json| Tool::from_json(json).unwrap()).collect();
            let flag = |key: &str| case[key].as_bool().unwrap();
            let source = golden["models"][real.name]["source"].as_str().unwrap();
            let is_told = !tools.is_empty() && !source.contains("tools");
            let caps = &caps[usize::from(!tools.is_empty())];
            let conversation = Conversation {
                tools,
                add_generation_prompt: flag("add_generation_prompt"),
                continue_final_message: flag("continue_final_message"),
                ..Conversation::new(messages)
            };
            let rendered = template.render(&conversation, caps);
            if is_told {
                // jinja2 leaves the tools out, and so does llama-server. Here the model is told of them in words of our own.
                let names = conversation.tools.iter().map(|tool| tool.name.as_str());
                let text = rendered.unwrap().text;
                names.for_each(|tool| assert!(text.contains(tool), "{name}: {text}"));
                continue;
            }
            let want = &case["results"][real.name];
            match want["rendered"].as_str() {
                Some(want) => assert_eq!(rendered.unwrap().text, want, "{name}"),
                None if want["llama_server"]["rendered"].is_string() => {
                    // What is not there is nothing here, as in llama-server.
                    assert_eq!(rendered.unwrap().text, want["llama_server"]["rendered"], "{name}");
                }
                // Parts are joined for a template that cannot take them, where jinja2 fails.
                None if case["messages"].as_array().unwrap().iter().any(|m| m["content"].is_array()) => {
                    assert!(rendered.is_ok(), "{name}: jinja2 says {}", want["error"]);
                }
                None => assert!(rendered.is_err(), "{name}: jinja2 says {}", want["error"]),
            }
        }
    }
}
