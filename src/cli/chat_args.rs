//! The flags of a conversation of one turn: the chat template, the system message.

use std::path::PathBuf;

use clap::Args;

use super::{
    chat_template,
    common::{MOST_TEXT, read_text, unescape},
};
use crate::{
    Error, Gguf, Result, Tokenizer,
    chat::{Conversation, KNOWN_TEMPLATES, Message, TemplateSource, known_template},
};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Chat")]
pub struct ChatArgs {
    /// Take the prompt as one user message and put it through the chat template
    #[arg(long)]
    pub chat: bool,
    /// A system message for --chat
    #[arg(
        long,
        alias = "system-prompt",
        value_name = "TEXT",
        requires = "chat",
        conflicts_with = "system_file"
    )]
    system: Option<String>,
    /// A file with the system message
    #[arg(long, alias = "system-prompt-file", value_name = "FILE", requires = "chat")]
    system_file: Option<PathBuf>,
    #[command(flatten)]
    pub template: TemplateArgs,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Chat")]
pub struct TemplateArgs {
    /// A chat template in Jinja, or one of these names: chatml, llama3, command-r [default: the model's own]
    #[arg(long, value_name = "JINJA", conflicts_with = "chat_template_file")]
    chat_template: Option<String>,
    /// A file with the chat template
    #[arg(long, value_name = "FILE")]
    chat_template_file: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct StopArgs {
    /// End where the text comes to TEXT (repeatable)
    #[arg(short = 'r', long, visible_alias = "stop", value_name = "TEXT", allow_hyphen_values = true)]
    reverse_prompt: Vec<String>,
}

impl StopArgs {
    /// Texts that end another one. `escapes`: \n and the like in them are what they stand for.
    pub fn texts(&self, escapes: bool) -> impl Iterator<Item = String> {
        let text = move |s: &String| if escapes { unescape(s) } else { s.clone() };
        self.reverse_prompt.iter().map(text).filter(|s| !s.is_empty())
    }
}

impl ChatArgs {
    /// The prompt for one turn.
    pub fn prompt(&self, user: &str, gguf: &Gguf, tokenizer: &Tokenizer) -> Result<String> {
        let system = match (&self.system, &self.system_file) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(path)) => Some(read_text(path, MOST_TEXT)?),
            (None, None) => None,
        };
        let mut messages: Vec<Message> =
            system.iter().map(|text| Message::new("system", text.as_str())).collect();
        messages.push(Message::new("user", user));
        let conversation = Conversation::new(messages);
        Ok(chat_template::render(self.template.source(gguf, tokenizer)?, conversation)?.text)
    }
}

impl TemplateArgs {
    /// Whether the flags name one.
    #[cfg(feature = "server")]
    pub fn is_given(&self) -> bool {
        self.chat_template.is_some() || self.chat_template_file.is_some()
    }

    /// The template that the flags name, or the model's.
    pub fn source(&self, gguf: &Gguf, tokenizer: &Tokenizer) -> Result<TemplateSource> {
        let source = match (&self.chat_template, &self.chat_template_file) {
            (Some(text), _) if is_template(text) => text.clone(),
            (Some(name), _) => known_template(name).map(str::to_owned).ok_or_else(|| {
                Error::Usage(format!(
                    "--chat-template {name}: give the template itself, in Jinja, --chat-template-file FILE, or one of the names {}",
                    KNOWN_TEMPLATES.join(", ")
                ))
            })?,
            (None, Some(path)) => read_text(path, MOST_TEXT)?,
            (None, None) => return TemplateSource::of(gguf, tokenizer),
        };
        TemplateSource::new(source, tokenizer)
    }
}

/// Names are one word; a template without a variable says the same whatever it is given, as llama.cpp lets it.
fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::is_template;

    #[test]
    fn names_are_told_from_templates() {
        assert!(["{{ x }}", "{%if x%}", "no template, it is"].into_iter().all(is_template));
        assert!(!["chatml", "vicuna", "command-r"].into_iter().any(is_template));
    }
}
