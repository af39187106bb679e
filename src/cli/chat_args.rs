//! The flags of a conversation of one turn: the chat template, the system message.

use std::{fs, path::PathBuf};

use clap::Args;

use crate::{
    Error, Gguf, Result, Tokenizer,
    tokenizer::{ChatTemplate, Message},
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
    /// A chat template, in Jinja [default: the model's own]
    #[arg(long, value_name = "JINJA", conflicts_with = "chat_template_file")]
    chat_template: Option<String>,
    /// A file with the chat template
    #[arg(long, value_name = "FILE")]
    chat_template_file: Option<PathBuf>,
}

fn read(path: &PathBuf) -> Result<String> {
    fs::read_to_string(path).map_err(|e| Error::io(path, e))
}

impl ChatArgs {
    /// The prompt for one turn.
    pub fn prompt(&self, user: &str, gguf: &Gguf, tokenizer: &Tokenizer) -> Result<String> {
        let system = match (&self.system, &self.system_file) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(path)) => Some(read(path)?),
            (None, None) => None,
        };
        let mut messages: Vec<Message> = system.iter().map(|text| Message::new("system", text)).collect();
        messages.push(Message::new("user", user));
        self.template(gguf, tokenizer)?.render(&messages, true)
    }

    fn template(&self, gguf: &Gguf, tokenizer: &Tokenizer) -> Result<ChatTemplate> {
        let source = match (&self.chat_template, &self.chat_template_file) {
            (Some(text), _) if !text.contains("{{") && !text.contains("{%") => {
                return Err(Error::Usage(format!(
                    "--chat-template {text}: give the template itself, in Jinja, or --chat-template-file FILE; names are not known"
                )));
            }
            (Some(text), _) => text.clone(),
            (None, Some(path)) => read(path)?,
            (None, None) => return ChatTemplate::from_gguf(gguf, tokenizer),
        };
        let text = |id: Option<u32>| id.map(|id| tokenizer.token_text(id)).unwrap_or_default();
        ChatTemplate::new(&source, text(tokenizer.bos()), text(tokenizer.eos()))
    }
}
