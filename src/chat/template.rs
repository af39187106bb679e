//! Chat templates: the file's own `tokenizer.chat_template`, rendered the way Hugging Face's tools do.

use std::io;

use minijinja::{
    Environment, Error as JinjaError, ErrorKind, Value, context, filters, syntax::SyntaxConfig, value::Kwargs,
};
use minijinja_contrib::pycompat::unknown_method_callback;
use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};

use super::strftime;
use crate::{Error, Gguf, Result, Tokenizer, quoted::one_line};

const KEY: &str = "tokenizer.chat_template";
/// The name under which the environment keeps the template; messages of errors show it.
const NAME: &str = "chat_template";
/// Instructions that a template may take; real ones need some hundreds per message.
const FUEL: u64 = 20_000_000;
/// Bytes of a template; the longest in use have some ten thousand.
const MOST_SOURCE: usize = 1 << 20;
/// Bytes of a rendered conversation: more than any context holds.
const MOST_OUTPUT: usize = 64 << 20;

/// A template as it stands in a file, with the tokens that it may name. It is a program that a stranger wrote, and has not
/// been looked at yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateSource {
    /// The template itself, in Jinja.
    pub text: String,
    /// What `bos_token` stands for in it.
    pub bos_token: String,
    /// What `eos_token` stands for in it.
    pub eos_token: String,
}

/// A template that has been compiled. Instructions and output are limited, but one instruction may still take all
/// memory, and deep nesting the stack: render a file that nobody vouches for in a process of its own.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of this role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Message { role: role.into(), content: content.into() }
    }
}

impl TemplateSource {
    /// A file without a template is an error: a guessed one would make the model answer badly and nobody
    /// would know why.
    pub fn of(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self> {
        let source = gguf.metadata().str(KEY)?.ok_or_else(|| {
            Error::Tokenizer(format!(
                "{}: no `{KEY}` in the metadata, so how it wants a conversation written is not known; \
                 give a plain prompt, or use an instruction-tuned model",
                gguf.name()
            ))
        })?;
        Self::new(source.into(), tokenizer)
    }

    /// A template from elsewhere, for this vocabulary.
    pub fn new(text: String, tokenizer: &Tokenizer) -> Result<Self> {
        if text.len() > MOST_SOURCE {
            return Err(Error::Tokenizer(format!(
                "the chat template is {} bytes long, and none needs more than {MOST_SOURCE}",
                text.len()
            )));
        }
        let token = |id: Option<u32>| id.map_or(String::new(), |id| tokenizer.token_text(id).into());
        let (bos_token, eos_token) = (token(tokenizer.bos()), token(tokenizer.eos()));
        Ok(TemplateSource { text, bos_token, eos_token })
    }
}

impl ChatTemplate {
    /// Compiles the template of a file.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self> {
        Self::new(TemplateSource::of(gguf, tokenizer)?)
    }

    /// Compiles a template.
    pub fn new(source: TemplateSource) -> Result<Self> {
        let TemplateSource { text, bos_token, eos_token } = source;
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(failed)?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_test("iterable", is_iterable);
        environment.add_test("sequence", |value: &Value| is_iterable(value) && value.len().is_some());
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", |format: &str| strftime::now(format));
        environment.add_template_owned(NAME, without_generation_blocks(&text)?).map_err(failed)?;
        Ok(ChatTemplate { environment, bos_token, eos_token })
    }

    /// The prompt for a conversation. Encode it with `parse_special` and without `add_special`: what the model
    /// needs at the start, the template has written. `add_generation_prompt` opens the assistant's turn.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| context! { role => message.role.as_str(), content => message.content.as_str() })
            .collect();
        let template = self.environment.get_template(NAME).map_err(failed)?;
        let mut output = Limited(Vec::new());
        let rendered = template.render_captured_to(
            context! {
                messages,
                add_generation_prompt,
                bos_token => self.bos_token.as_str(),
                eos_token => self.eos_token.as_str(),
                // There as in Hugging Face's renderer, which always passes them.
                tools => Value::from(()),
                documents => Value::from(()),
            },
            &mut output,
        );
        match rendered {
            _ if output.0.len() > MOST_OUTPUT => Err(Error::Tokenizer(format!(
                "the chat template of the file failed: it writes more than {} MiB",
                MOST_OUTPUT >> 20
            ))),
            Err(error) => Err(failed(error)),
            Ok(_) => String::from_utf8(output.0)
                .map_err(|e| Error::Tokenizer(format!("the chat template of the file failed: {e}"))),
        }
    }
}

/// Takes a little more than a template may write, and then no more.
struct Limited(Vec<u8>);

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() > MOST_OUTPUT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let taken = bytes.len().min(MOST_OUTPUT + 1 - self.0.len());
        self.0.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failed(error: JinjaError) -> Error {
    let line = error.line().map(|line| format!(", line {line}")).unwrap_or_default();
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    Error::Tokenizer(format!("the chat template of the file failed{line}: {}", one_line(&what, 300)))
}

fn raise_exception(message: &str) -> Result<String, JinjaError> {
    Err(JinjaError::new(ErrorKind::InvalidOperation, message.to_owned()))
}

/// As in Python, where nothing comes out of `none`, and strings and maps are sequences.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Marks what the assistant said, for training; here it is plain text.
fn without_generation_blocks(source: &str) -> Result<String> {
    let tag = Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")
        .map_err(|e| Error::Tokenizer(format!("generation blocks: {e}")))?;
    let plain = tag.replace_all(source, |found: &Captures| {
        let block = if found.get(2).is_some() { "endif" } else { "if true" };
        format!("{{%{} {block} {}%}}", &found[1], &found[3])
    });
    Ok(plain.into_owned())
}

/// JSON as Python writes it: like minijinja's, without the escapes that it adds for HTML.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, JinjaError> {
    let indent: Option<Value> = options.get("indent")?;
    let json = filters::tojson(value, indent, Kwargs::from_iter(Vec::<(&str, Value)>::new()))?;
    Ok(Value::from(without_html_escapes(json.as_str().unwrap_or_default())))
}

fn without_html_escapes(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at..];
        let plain = [(r"\u003c", '<'), (r"\u003e", '>'), (r"\u0026", '&'), (r"\u0027", '\'')]
            .into_iter()
            .find_map(|(escaped, plain)| Some((escape.strip_prefix(escaped)?, plain)));
        match plain {
            Some((after, plain)) => {
                out.push(plain);
                rest = after;
            }
            None => {
                // The backslash and what it escapes, which may be another backslash.
                let end = escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end);
                out.push_str(&escape[..end]);
                rest = &escape[end..];
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::golden;

    fn conversation() -> Vec<Message> {
        vec![
            Message::new("system", "Be brief."),
            Message::new("user", " Hi! "),
            Message::new("assistant", "Hello."),
            Message::new("user", "1 < 2 & \"so\"?"),
        ]
    }

    fn render(source: &str, messages: &[Message], open: bool) -> Result<String> {
        let source =
            TemplateSource { text: source.into(), bos_token: "<s>".into(), eos_token: "</s>".into() };
        ChatTemplate::new(source)?.render(messages, open)
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
        assert_eq!(
            render(source, &conversation()[..2], true).unwrap(),
            "<s><|start_header_id|>system<|end_header_id|>\n\nToday: 26 Jul 2024\n\nBe brief.<|eot_id|>\
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
    fn pythons_methods_and_loop_controls() {
        let source = "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}\
            {{ m.content.strip().upper() }};{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}\
            {% set d = {'a': 1} %}{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}\
            {{ 'x</think>y'.split('</think>')[-1] }}{{ 'abc'.startswith('ab') }}";
        assert_eq!(render(source, &conversation(), false).unwrap(), "HI!;HELLO.;a=1yTrue");
    }

    #[test]
    fn blocks_leave_no_blank_lines() {
        let source =
            "{% for m in messages %}\n    {% if true %}\n{{ m.role }}\n    {% endif %}\n{% endfor %}\nend\n";
        assert_eq!(render(source, &conversation()[..2], false).unwrap(), "system\nuser\nend");
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
        assert_eq!(render(source, &conversation()[..2], false).unwrap(), "systemuser");
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
        for source in ["{% if", "{{ nothing.at.all }}", "{{ 1 / 0 }}", "{% unknown %}", endless] {
            let error = render(source, &[], false).unwrap_err().to_string();
            assert!(error.starts_with("tokenizer: the chat template of the file failed"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
