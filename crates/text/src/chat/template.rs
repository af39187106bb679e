//! Chat templates: the file's own `tokenizer.chat_template`, rendered the way Hugging Face's tools do.

use minijinja::{Environment, Value as JinjaValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    caps::{self, Caps},
    conversation::{Conversation, Prompt},
    jinja, strftime,
};
use crate::{Error, Gguf, Result, Tokenizer};

const KEY: &str = "tokenizer.chat_template";
/// Some files have a second one for conversations with tools.
const TOOL_KEY: &str = "tokenizer.chat_template.tool_use";
/// The names under which the environment keeps the templates; messages of errors show them.
const NAME: &str = "chat_template";
const TOOL_NAME: &str = "chat_template.tool_use";
/// What the templates of FireFunction have in them, and no others.
const FUNCTOOLS: &str = "functools[";
/// Bytes of a template; the longest in use have some ten thousand.
const MOST_SOURCE: usize = 1 << 20;

/// A template as it stands in a file, with the tokens that it may name. It is a program that a stranger wrote, and has not
/// been looked at yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateSource {
    /// The template itself, in Jinja.
    pub text: String,
    /// Another for conversations with tools.
    #[serde(default)]
    pub tool_use: Option<String>,
    /// What `bos_token` stands for in it.
    pub bos_token: String,
    /// What `eos_token` stands for in it.
    pub eos_token: String,
}

/// A template that has been compiled. Instructions and output are limited, but one instruction may still take all
/// memory, and deep nesting the stack: render a file that nobody vouches for in a process of its own.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: TemplateSource,
}

impl TemplateSource {
    /// Whether a file has one.
    pub fn is_in(gguf: &Gguf) -> Result<bool> {
        let metadata = gguf.metadata();
        Ok(metadata.str(KEY)?.is_some() || metadata.str(TOOL_KEY)?.is_some())
    }

    /// A file without a template is an error: a guessed one would make the model answer badly and nobody
    /// would know why.
    pub fn of(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self> {
        let metadata = gguf.metadata();
        let tool_use = metadata.str(TOOL_KEY)?.map(str::to_owned);
        let text = metadata.str(KEY)?.map(str::to_owned).or_else(|| tool_use.clone()).ok_or_else(|| {
            Error::Tokenizer(format!(
                "{}: no `{KEY}` in the metadata, so how it wants a conversation written is not known; \
                 give a plain prompt, or use an instruction-tuned model",
                gguf.name()
            ))
        })?;
        let source = Self::new(text, tokenizer)?;
        Ok(TemplateSource { tool_use: tool_use.map(checked).transpose()?, ..source })
    }

    /// A template from elsewhere, for this vocabulary.
    pub fn new(text: String, tokenizer: &Tokenizer) -> Result<Self> {
        let token = |id: Option<u32>| id.map_or(String::new(), |id| tokenizer.token_text(id).into());
        let (bos_token, eos_token) = (token(tokenizer.bos()), token(tokenizer.eos()));
        Ok(TemplateSource { text: checked(text)?, tool_use: None, bos_token, eos_token })
    }

    /// The text of the template for a conversation with or without tools.
    pub fn text(&self, tools: bool) -> &str {
        self.tool_use.as_deref().filter(|_| tools).unwrap_or(&self.text)
    }
}

fn checked(text: String) -> Result<String> {
    if text.len() > MOST_SOURCE {
        return Err(Error::Tokenizer(format!(
            "the chat template is {} bytes long, and none needs more than {MOST_SOURCE}",
            text.len()
        )));
    }
    Ok(text)
}

impl ChatTemplate {
    /// Compiles the template of a file.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self> {
        Self::new(TemplateSource::of(gguf, tokenizer)?)
    }

    /// Compiles a template.
    pub fn new(source: TemplateSource) -> Result<Self> {
        let mut environment = jinja::environment()?;
        jinja::compile(&mut environment, NAME, &source.text)?;
        if let Some(text) = &source.tool_use {
            jinja::compile(&mut environment, TOOL_NAME, text)?;
        }
        Ok(ChatTemplate { environment, source })
    }

    /// What the template makes use of, for conversations with or without tools.
    pub fn caps(&self, tools: bool) -> Caps {
        let trial =
            ChatTemplate { environment: jinja::for_trials(&self.environment), source: self.source.clone() };
        caps::of(|messages, tool_list, variables| {
            let Value::Object(variables) = variables else { return None };
            trial.text(&messages, &tool_list, true, &variables, tools).ok()
        })
    }

    /// The prompt for a conversation. `caps` are [`ChatTemplate::caps`] for it.
    pub fn render(&self, conversation: &Conversation, caps: &Caps) -> Result<Prompt> {
        let with_tools = !conversation.tools.is_empty();
        let source = self.source.text(with_tools);
        let (messages, continued) = conversation.messages(source, caps)?;
        let tools = match with_tools && !conversation.is_told_of_tools(source) {
            true => conversation.tools.iter().map(super::Tool::to_json).collect(),
            // Hugging Face's renderer always passes them.
            false => Value::Null,
        };
        let open = conversation.add_generation_prompt || continued.is_some();
        let variables = conversation.variables();
        let text = self.text(&messages, &tools, open, &variables, with_tools)?;
        Ok(Prompt::new(text, continued, source, conversation.thinking))
    }

    fn text(
        &self,
        messages: &Value,
        tools: &Value,
        open: bool,
        variables: &Map<String, Value>,
        with_tools: bool,
    ) -> Result<String> {
        let mut all = json!({
            "messages": messages,
            "tools": tools,
            "documents": null,
            "add_generation_prompt": open,
            "bos_token": self.source.bos_token,
            "eos_token": self.source.eos_token,
            // Templates that cannot ask for the date expect it here.
            "date_string": strftime::now("%d %b %Y"),
            "datetime": strftime::now("%b %d %Y"),
        });
        let source = self.source.text(with_tools);
        if source.contains(FUNCTOOLS) {
            // FireFunction's name for the tools, as text; there has to be some.
            all["functions"] = match tools {
                Value::Null => "".into(),
                tools => serde_json::to_string_pretty(tools).expect("plain data").into(),
            };
        }
        for (name, value) in variables {
            all[name] = value.clone();
        }
        let name = if with_tools && self.source.tool_use.is_some() { TOOL_NAME } else { NAME };
        let variables: JinjaValue = jinja::value(&all);
        jinja::render(&self.environment, name, variables)
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::{
        super::{Message, Tool},
        *,
    };
    use crate::tokenizer::golden;

    fn conversation() -> Vec<Message> {
        vec![
            Message::new("system", "Be brief."),
            Message::new("user", " Hi! "),
            Message::new("assistant", "Hello."),
            Message::new("user", "1 < 2 & \"so\"?"),
        ]
    }

    fn prompt(source: &str, conversation: &Conversation) -> Result<Prompt> {
        let (bos_token, eos_token) = ("<s>".into(), "</s>".into());
        let source = TemplateSource { text: source.into(), tool_use: None, bos_token, eos_token };
        let template = ChatTemplate::new(source)?;
        template.render(conversation, &template.caps(!conversation.tools.is_empty()))
    }

    fn render(source: &str, messages: &[Message], open: bool) -> Result<String> {
        let conversation =
            Conversation { add_generation_prompt: open, ..Conversation::new(messages.to_vec()) };
        Ok(prompt(source, &conversation)?.text)
    }

    /// `tests/golden/templates.py` has run Python's jinja2.
    #[test]
    fn conversations_are_rendered_as_by_python() {
        let test = "conversations_are_rendered_as_by_python";
        let Some(golden) = golden(test, "templates.json") else { return };
        for template in golden["templates"].as_array().unwrap() {
            for (name, expected) in template["rendered"].as_object().unwrap() {
                let messages: Vec<Message> =
                    serde_json::from_value(golden["conversations"][name].clone()).unwrap();
                let rendered = render(template["source"].as_str().unwrap(), &messages, true).unwrap();
                assert_eq!(rendered, expected.as_str().unwrap(), "{}, {name}", template["name"]);
            }
        }
    }

    #[test]
    fn calls_of_tools_are_rendered_as_by_python() {
        let Some(golden) = golden("calls_of_tools_are_rendered_as_by_python", "templates.json") else {
            return;
        };
        let calling = &golden["calling"];
        let messages: Vec<Message> = serde_json::from_value(calling["messages"].clone()).unwrap();
        let tools: Vec<Tool> = serde_json::from_value(calling["tools"].clone()).unwrap();
        for template in calling["templates"].as_array().unwrap() {
            let talk = Conversation { tools: tools.clone(), ..Conversation::new(messages.clone()) };
            let rendered = prompt(template["source"].as_str().unwrap(), &talk).unwrap().text;
            assert_eq!(rendered, template["rendered"].as_str().unwrap(), "{}", template["name"]);
        }
    }

    /// As Llama 3's and others' do.
    #[test]
    fn parts_are_joined_for_a_template_that_would_write_out_their_list() {
        let parts = json!({ "role": "user", "content": [{ "type": "text", "text": "One" }, { "type": "text", "text": "Two" }] });
        let message = Message::from_json(&parts).unwrap();
        for source in
            ["{% for m in messages %}{{ m['content'] | trim }}{% endfor %}", "{{ messages[0].content }}"]
        {
            assert_eq!(render(source, std::slice::from_ref(&message), true).unwrap(), "One\nTwo");
        }
        let by_parts = "{% for part in messages[0].content %}<{{ part.text }}>{% endfor %}";
        assert_eq!(render(by_parts, &[message], true).unwrap(), "<One><Two>");
    }

    /// As Python does it; nothing comes of nothing.
    #[test]
    fn what_is_reversed_may_be_empty_and_json_may_be_ascii() {
        let names = "{% for m in messages[::-1] %}{{ m.role[0] }}{% endfor %}|{{ 'abc'[::-1] }}|{{ ''[::-1] }}|[::-1]";
        assert_eq!(render(names, &conversation()[1..], true).unwrap(), "uau|cba||[::-1]");
        assert_eq!(render(names, &[], true).unwrap(), "|cba||[::-1]");
        let json = "{{ 'é😀<'|tojson(ensure_ascii=true) }}{{ 'é<'|tojson(ensure_ascii=False) }}";
        assert_eq!(render(json, &[], true).unwrap(), "\"\\u00e9\\ud83d\\ude00<\"\"é<\"");
    }

    /// Texts that Python's jinja2 3.1.6 gave, set up as transformers does it.
    #[test]
    fn json_and_indents_are_pythons() {
        for (source, want) in [
            (
                "{{ {'b':1,'a':[1,{'d':', :','c':2}]}|tojson(separators=(',',':')) }}",
                r#"{"b":1,"a":[1,{"d":", :","c":2}]}"#,
            ),
            (
                "{{ {'b':1,'a':{'d':'\"','c':2}}|tojson(sort_keys=true) }}",
                r#"{"a": {"c": 2, "d": "\""}, "b": 1}"#,
            ),
            ("{{ {'b':[1,2]}|tojson(indent=1,separators=(';','=')) }}", "{\n \"b\"=[\n  1;\n  2\n ]\n}"),
            ("{{ 'a\n'|indent(4, first=true) }}b", "    a\nb"),
            ("{{ 'a\n\nb\n'|indent }}|{{ ''|indent(2, true) }}|", "a\n\n    b\n|  |"),
            ("{{ 'a\n\nb'|indent(width=2, blank=true) }}", "a\n  \n  b"),
        ] {
            assert_eq!(render(source, &[], true).unwrap(), want, "{source}");
        }
        let refused = render("{{ 1|tojson(separators=[',']) }}", &[], true).unwrap_err();
        assert!(refused.to_string().contains("separators"), "{refused}");
    }

    /// Python's texts.
    #[test]
    fn slices_go_backwards_as_in_python() {
        for (slice, long, short, none) in [
            ("::-1", "fedcba", "a", ""),
            ("2::-1", "cba", "a", ""),
            ("9:1:-1", "fedc", "", ""),
            (":0:-1", "fedcb", "", ""),
            (":-9:-1", "fedcba", "a", ""),
            ("-9:-5:-1", "", "", ""),
            ("2:9:-1", "", "", ""),
            ("0:0:-1", "", "", ""),
            ("::-2", "fdb", "a", ""),
            ("-2::-3", "eb", "", ""),
            ("-1:0:-2", "fdb", "", ""),
            ("4:-5:-1", "edc", "a", ""),
        ] {
            for (text, want) in [("abcdef", long), ("a", short), ("", none)] {
                let source = format!("{{{{ '{text}'[{slice}] }}}}|{{{{ ('{text}'|list)[{slice}]|join }}}}");
                assert_eq!(render(&source, &[], true).unwrap(), format!("{want}|{want}"), "{source}");
            }
        }
        let written = "{% set n = 1 %}{{ [1, 2, 3][ n : : -1 ] }}{{ 'abc'[:n - 1:-1] }}{{ {'a:-1]': 'b'}['a:-1]'] }}[2:0:-1]";
        assert_eq!(render(written, &[], true).unwrap(), "[2, 1]cbb[2:0:-1]");
    }

    #[test]
    fn chatml_with_a_default_system_message() {
        let source = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
            {{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{% endif %}\
            {{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}\
            {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
        assert_eq!(
            render(source, &[Message::new("user", "Hi")], true).unwrap(),
            "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        );
        assert_eq!(
            render(source, &conversation()[..2], false).unwrap(),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi! <|im_end|>\n"
        );
    }

    /// What llama-server renders for Qwen2.5 and SmolLM2 (build 7e4c0a9), whose templates look at the first message.
    #[test]
    fn a_conversation_without_messages_is_rendered() {
        let qwen = "{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- message.content }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}";
        let expected = "<|im_start|>system\nYou are Qwen.<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(render(qwen, &[], true).unwrap(), expected);
        let smol = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
            {{ 'You help.' }}{% endif %}{{ message['content'] }}{% endfor %}\
            {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
        assert_eq!(render(smol, &[], true).unwrap(), "<|im_start|>assistant\n");
        let far = "{{ messages[5].role }}|{{ messages[0].x.y }}|{{ nothing.x }}|";
        assert_eq!(render(far, &conversation(), true).unwrap(), "|||");
    }

    #[test]
    fn headers_dates_and_stripped_blocks_as_in_llama_3() {
        let source = "{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = '26 Jul 2024' %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{%- if tools is not none %}
    {{- 'TOOLS' }}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' + date_string + '\\n\\n' }}
{{- system_message }}
{{- '<|eot_id|>' }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
";
        let mut talk = Conversation::new(conversation()[..2].to_vec());
        talk.variables.insert("date_string".into(), "1 Jan 2020".into());
        assert_eq!(
            prompt(source, &talk).unwrap().text,
            "<s><|start_header_id|>system<|end_header_id|>\n\nToday: 1 Jan 2020\n\nBe brief.<|eot_id|>\
             <|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\n"
        );
    }

    /// Mistral's kind: alternation is checked, the system message goes into the last user's turn.
    const MISTRAL: &str = "{%- if messages[0].role == 'system' %}
    {%- set system_message = messages[0].content %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if (message.role == 'user') != (ns.index % 2 == 0) %}
        {{- raise_exception('roles must alternate user/assistant') }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message.role == 'user' %}
        {%- if loop.last and system_message is defined %}
            {{- '[INST] ' + system_message + '\\n\\n' + message.content + '[/INST]' }}
        {%- else %}
            {{- '[INST] ' + message.content + '[/INST]' }}
        {%- endif %}
    {%- else %}
        {{- ' ' + message.content + eos_token }}
    {%- endif %}
{%- endfor %}";

    #[test]
    fn namespaces_and_exceptions_as_in_mistral() {
        assert_eq!(
            render(MISTRAL, &conversation(), true).unwrap(),
            "<s>[INST]  Hi! [/INST] Hello.</s>[INST] Be brief.\n\n1 < 2 & \"so\"?[/INST]"
        );
        let twice = [Message::new("user", "a"), Message::new("user", "b")];
        let error = render(MISTRAL, &twice, true).unwrap_err().to_string();
        assert!(error.contains("roles must alternate user/assistant"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn tools_and_the_date_as_in_firefunction() {
        let source = "{%- set suffix = 'functools[' + functions -%}{{ suffix }}|{{ datetime }}";
        let talk = Conversation::new(conversation()[..2].to_vec());
        let text = prompt(source, &talk).unwrap().text;
        assert!(text.starts_with("functools[|") && text.ends_with(&strftime::now("%b %d %Y")), "{text}");
        let tools = vec![Tool { name: "f".into(), description: String::new(), parameters: json!({}) }];
        let text = prompt(source, &Conversation { tools, ..talk }).unwrap().text;
        assert!(text.contains("\"name\": \"f\""), "{text}");
    }

    #[test]
    fn pythons_methods_and_loop_controls() {
        let source = "{% for m in messages %}{% if m.role == 'assistant' %}{% continue %}{% endif %}\
            {{ m.content.strip().upper() }};{% if loop.index > 1 %}{% break %}{% endif %}{% endfor %}\
            {% set d = {'a': 1} %}{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}\
            {{ 'x</think>y'.split('</think>')[-1] }}{{ 'abc'.startswith('ab') }}";
        assert_eq!(render(source, &conversation(), false).unwrap(), "BE BRIEF.;HI!;a=1yTrue");
    }

    #[test]
    fn blocks_leave_no_blank_lines() {
        let source =
            "{% for m in messages %}\n    {% if true %}\n{{ m.role }}\n    {% endif %}\n{% endfor %}\nend\n";
        assert_eq!(render(source, &conversation()[1..3], false).unwrap(), "user\nassistant\nend");
    }

    #[test]
    fn json_is_pythons() {
        let source = r#"{{ {"b": ["<a> & 'q'", "\\u003c", 1, true, none], "a": {}} | tojson }}"#;
        assert_eq!(
            render(source, &[], false).unwrap(),
            r#"{"b": ["<a> & 'q'", "\\u003c", 1, true, null], "a": {}}"#
        );
        let source = "{{ messages[0] | tojson(indent=2, ensure_ascii=False) }}";
        assert_eq!(
            render(source, &conversation(), false).unwrap(),
            "{\n  \"role\": \"system\",\n  \"content\": \"Be brief.\"\n}"
        );
    }

    #[test]
    fn generation_blocks_are_plain_text() {
        let source =
            "{% for m in messages %}{%- generation -%} {{ m.role }} {%- endgeneration %}{% endfor %}";
        assert_eq!(render(source, &conversation()[1..3], false).unwrap(), "userassistant");
    }

    #[test]
    fn the_date_has_the_form_that_was_asked_for() {
        let date = render("{{ strftime_now('%d %b %Y') }}", &[], false).unwrap();
        assert!(Regex::new(r"^\d\d [A-Z][a-z]{2} \d{4}$").unwrap().is_match(&date), "{date}");
    }

    #[test]
    fn output_and_messages_are_limited() {
        let error = |source: &str| render(source, &[], false).unwrap_err().to_string();
        let wide = error("{% for i in range(10000) %}{{ '0123456789' * 100000 }}{% endfor %}");
        assert!(wide.ends_with("it writes more than 64 MiB"), "{wide}");
        let loud = error("{{ raise_exception('\\u001b[2J\\r\\n' + 'x' * 100000) }}");
        assert!(loud.len() < 600 && !loud.contains(char::is_control), "{loud}");
    }

    #[test]
    fn a_bad_template_is_one_line() {
        let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
        for source in ["{% if", "{{ nothing.at() }}", "{{ 1 / 0 }}", "{% unknown %}", endless] {
            let error = render(source, &[], false).unwrap_err().to_string();
            assert!(error.starts_with("tokenizer: the chat template of the file failed"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
