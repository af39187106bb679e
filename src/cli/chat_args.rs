//! The flags of a conversation of one turn: the chat template, the system message.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{chat_template, common::MOST_TEXT};
use crate::{
    Error, Gguf, Result, Tokenizer,
    chat::{Conversation, Message, TemplateSource},
    files::read_limited,
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
    /// A chat template, in Jinja [default: the model's own]
    #[arg(long, value_name = "JINJA", conflicts_with = "chat_template_file")]
    chat_template: Option<String>,
    /// A file with the chat template
    #[arg(long, value_name = "FILE")]
    chat_template_file: Option<PathBuf>,
}

fn read(path: &Path) -> Result<String> {
    String::from_utf8(read_limited(path, MOST_TEXT)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::Input(format!("{}: not UTF-8 at byte {at}; convert it first, e.g. with iconv", path.display()))
    })
}

impl ChatArgs {
    /// The prompt for one turn.
    pub fn prompt(&self, user: &str, gguf: &Gguf, tokenizer: &Tokenizer) -> Result<String> {
        let system = match (&self.system, &self.system_file) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(path)) => Some(read(path)?),
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
    /// The template that the flags name, or the model's.
    pub fn source(&self, gguf: &Gguf, tokenizer: &Tokenizer) -> Result<TemplateSource> {
        let source = match (&self.chat_template, &self.chat_template_file) {
            (Some(text), _) if !text.contains("{{") && !text.contains("{%") => {
                return Err(Error::Usage(format!(
                    "--chat-template {text}: give the template itself, in Jinja, or --chat-template-file FILE; names are not known"
                )));
            }
            (Some(text), _) => text.clone(),
            (None, Some(path)) => read(path)?,
            (None, None) => return TemplateSource::of(gguf, tokenizer),
        };
        TemplateSource::new(source, tokenizer)
    }
}
