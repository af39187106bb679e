//! `spec-run chat`: a conversation at the terminal. The cache keeps what was said, so that a turn evaluates only what is new.

mod answer;
mod lines;
mod rules;
mod showing;
mod turns;

use std::{
    fmt::Write as _,
    fs,
    io::IsTerminal,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::Value;

use self::{lines::Lines, rules::Rules};
use super::{
    chat_args::{StopArgs, TemplateArgs},
    common::{MOST_TEXT, read_text},
    drafting::keep,
    engine_args::{EngineArgs, Opened, Texts},
    failure,
    output::{note, say},
    sampler_args::SamplerArgs,
};
use crate::{
    Error, Result,
    chat::{Message, StopStrings, Syntax, TemplateSource},
    files::{read_limited, write_whole},
    sampler::SamplerConfig,
    words::count,
};

const HELP: &str = "\
/read FILE    put a file's text before your next message
/system TEXT  replace the system message; without TEXT, show it
/regen        answer the last message again
/clear        forget the conversation
/save FILE    write the whole conversation as JSON; /save! FILE over another file too
/load FILE    go on with one that was written
/exit         leave (Ctrl-D too); Ctrl-C stops an answer
A line that ends with \\ goes on in the next one.";

#[derive(Args, Debug)]
pub struct ChatCommand {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    sampler: SamplerArgs,
    #[command(flatten)]
    template: TemplateArgs,
    /// A system message
    #[arg(long, alias = "system-prompt", value_name = "TEXT", help_heading = "Chat")]
    system: Option<String>,
    /// What you say first
    #[arg(short = 'p', long, value_name = "TEXT", help_heading = "Chat")]
    prompt: Option<String>,
    /// Answer the first message and leave
    #[arg(long, help_heading = "Chat")]
    single_turn: bool,
    /// The most tokens of an answer; -1 until it ends
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N", default_value_t = -1)]
    #[arg(allow_negative_numbers = true, help_heading = "Chat")]
    n_predict: i64,
    /// When the context is full, refuse a message or end the answer; without this the oldest turns are left out
    #[arg(long, help_heading = "Chat")]
    no_context_shift: bool,
    /// Print before each answer what the model is given
    #[arg(long, overrides_with = "no_display_prompt", help_heading = "Chat")]
    display_prompt: bool,
    /// Print the answers alone, which is so anyway
    #[arg(long, overrides_with = "display_prompt", help_heading = "Chat")]
    no_display_prompt: bool,
    /// Models that can think answer at once, as they do by a grammar or a schema
    #[arg(long, help_heading = "Chat")]
    no_thinking: bool,
    #[command(flatten)]
    stop: StopArgs,
    #[cfg(feature = "constraints")]
    #[command(flatten)]
    constraint: super::constraint_args::ConstraintArgs,
}

impl ChatCommand {
    /// As by these flags alone.
    pub fn of(
        engine: EngineArgs,
        sampler: SamplerArgs,
        template: TemplateArgs,
        stop: StopArgs,
        n_predict: i64,
        no_context_shift: bool,
    ) -> Self {
        ChatCommand {
            stop,
            #[cfg(feature = "constraints")]
            constraint: Default::default(),
            engine,
            sampler,
            template,
            system: None,
            prompt: None,
            single_turn: false,
            n_predict,
            no_context_shift,
            display_prompt: false,
            no_display_prompt: false,
            no_thinking: false,
        }
    }

    /// The same, and whether it prints what the model is given.
    pub fn showing(self, display_prompt: bool) -> Self {
        ChatCommand { display_prompt, ..self }
    }

    #[cfg(feature = "constraints")]
    pub fn keeping_to(self, constraint: super::constraint_args::ConstraintArgs) -> Self {
        ChatCommand { constraint, ..self }
    }
}

pub fn run(args: ChatCommand) -> Result<()> {
    args.engine.check()?;
    let mut sampler = args.sampler.config()?;
    let loaded = args.engine.load()?;
    args.sampler.complete(&mut sampler, &loaded.model, &loaded.tokenizer, true)?;
    let rule = Rules::of(&args, &loaded.tokenizer)?;
    let template = args.template.source(&loaded.gguf, &loaded.tokenizer)?;
    let texts = Texts { most: 1, divided: false };
    if args.engine.dry_run(&loaded, texts)? {
        return Ok(());
    }
    let opened = args.engine.open(&loaded, texts)?;
    note!("{}: {}", loaded.model.name, opened.described);
    let mut talk = Talk {
        syntax: Syntax::of(template.text(false)),
        template,
        sampler,
        max_tokens: usize::try_from(args.n_predict).ok(),
        thinking: !args.no_thinking && !rule.is_there(),
        rule,
        stops: StopStrings::new(args.stop.texts(true)),
        shows_drafts: args.engine.draft.is_colored(),
        messages: args.system.into_iter().map(|text| Message::new("system", text)).collect(),
        may_leave_out: !args.no_context_shift,
        shows_prompt: args.display_prompt && !args.no_display_prompt,
        left_out: 0,
        room: opened.engine.tokens_of_text(),
        read: String::new(),
        files: Vec::new(),
        unanswered: 0,
        opened,
    };
    talk.all(args.prompt, args.single_turn)?;
    keep(talk.opened.engine.controller(), &talk.opened.memory);
    talk.outcome()
}

/// A conversation as it goes on.
struct Talk {
    opened: Opened,
    template: TemplateSource,
    syntax: Syntax,
    sampler: SamplerConfig,
    max_tokens: Option<usize>,
    thinking: bool,
    rule: Rules,
    /// Texts that end an answer.
    stops: StopStrings,
    /// Accepted tokens are coloured by who drafted them.
    shows_drafts: bool,
    messages: Vec<Message>,
    /// The oldest turns may be left out where the context is full.
    may_leave_out: bool,
    /// What the model is given is printed.
    shows_prompt: bool,
    /// How many turns the model is not given any more.
    left_out: usize,
    /// The most tokens of a text: a conversation with its answer.
    room: usize,
    /// Files' texts for the next message.
    read: String,
    /// What this conversation was written to or loaded from, which /save may replace.
    files: Vec<PathBuf>,
    /// Messages whose answers failed.
    unanswered: usize,
}

/// What a line asks for.
enum Asked {
    Say(String),
    Again,
    Nothing,
    Leave,
}

impl Talk {
    fn all(&mut self, first: Option<String>, single: bool) -> Result<()> {
        let mut lines = Lines::open()?;
        let mut next = first;
        if next.is_none() && lines.is_edited() {
            note!("/help tells what else there is");
        }
        loop {
            let line = match next.take() {
                Some(line) => line,
                None => match lines.next()? {
                    Some(line) => line,
                    None => return Ok(()),
                },
            };
            let before = self.messages.clone();
            match self.obey(line) {
                Ok(Asked::Leave) => return Ok(()),
                Ok(Asked::Nothing) => continue,
                Ok(Asked::Say(text)) => {
                    self.messages.push(Message::new("user", std::mem::take(&mut self.read) + &text));
                }
                Ok(Asked::Again) => {}
                // A file that is not there is no reason to lose a conversation.
                Err(error) => {
                    note!("{}", failure::message(&error));
                    continue;
                }
            }
            match self.answer() {
                Err(error) if !single && !matches!(error, Error::ClosedPipe) => {
                    self.take_back(before, &error)
                }
                answered => answered?,
            }
            if single {
                return Ok(());
            }
        }
    }

    /// As before a message that could not be answered: a full context is no reason to lose a conversation either.
    fn take_back(&mut self, before: Vec<Message>, error: &Error) {
        let taken = if self.messages.len() > before.len() {
            "your last message is taken back"
        } else {
            "nothing is changed"
        };
        self.messages = before;
        self.unanswered += 1;
        say(format_args!("{}; {taken}: go on, or /save FILE, /clear\n", failure::message(error)));
    }

    /// Who types has seen what failed; a script sees only how the program ends.
    fn outcome(&self) -> Result<()> {
        match self.unanswered {
            0 => Ok(()),
            _ if std::io::stdin().is_terminal() => Ok(()),
            n => Err(Error::Input(format!("{} not answered; the lines above say why", count(n, "message")))),
        }
    }

    fn obey(&mut self, line: String) -> Result<Asked> {
        let Some(command) = line.strip_prefix('/') else {
            return Ok(if line.trim().is_empty() && self.read.is_empty() {
                Asked::Nothing
            } else {
                Asked::Say(line)
            });
        };
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        let file = || match rest {
            "" => Err(Error::Usage(format!("/{name} needs a file's name"))),
            path => Ok(PathBuf::from(path)),
        };
        match name {
            "exit" | "quit" | "bye" => return Ok(Asked::Leave),
            "help" | "?" => note!("{HELP}"),
            "clear" => {
                self.left_out = 0;
                self.messages.retain(|message| message.role == "system");
                self.files.clear();
            }
            "regen" => {
                while self.messages.last().is_some_and(|last| last.role == "assistant") {
                    self.messages.pop();
                }
                return Ok(if self.messages.is_empty() { Asked::Nothing } else { Asked::Again });
            }
            "read" => {
                let path = file()?;
                let text = read_text(&path, MOST_TEXT)?;
                note!(
                    "{}: {} read; it goes before your next message",
                    path.display(),
                    count(text.len(), "byte")
                );
                let _ = write!(self.read, "{text}\n\n");
            }
            "system" if rest.is_empty() => match self.messages.first().filter(|m| m.role == "system") {
                Some(message) => note!("{}", message.content.text("\n")),
                None => note!("there is no system message"),
            },
            "system" => {
                self.messages.retain(|message| message.role != "system");
                self.messages.insert(0, Message::new("system", rest));
            }
            "save" | "save!" => self.save(&file()?, name == "save!")?,
            "load" => {
                let path = file()?;
                self.messages = load(&path)?;
                self.left_out = 0;
                self.files = fs::canonicalize(&path).into_iter().collect();
                note!("{}: {}", path.display(), count(self.messages.len(), "message"));
            }
            _ => return Err(Error::Usage(format!("/{name} is not known; /help tells what is"))),
        }
        Ok(Asked::Nothing)
    }

    /// Another file that is there is replaced only with `force`; pipes and devices are written to.
    fn save(&mut self, path: &Path, force: bool) -> Result<()> {
        let own = |found: PathBuf| self.files.contains(&found);
        if !force && path.is_file() && !fs::canonicalize(path).is_ok_and(own) {
            let name = path.display();
            return Err(Error::Usage(format!(
                "{name}: exists; /save! {name} overwrites it, or give another name"
            )));
        }
        let all: Vec<Value> = self.messages.iter().map(Message::to_json).collect();
        write_whole(path, format!("{:#}\n", Value::from(all)).as_bytes())?;
        note!("{}: {} saved", path.display(), count(self.messages.len(), "message"));
        self.files.extend(fs::canonicalize(path));
        Ok(())
    }
}

fn load(path: &Path) -> Result<Vec<Message>> {
    let wrong = |what: String| Error::Input(format!("{}: {what}", path.display()));
    let bytes = read_limited(path, MOST_TEXT)?;
    let json: Value = serde_json::from_slice(&bytes).map_err(|e| wrong(format!("it is not JSON ({e})")))?;
    let list = json.as_array().or_else(|| json.get("messages")?.as_array());
    let list = list.ok_or_else(|| wrong("a list of messages is needed, as /save writes it".into()))?;
    let each = list.iter().enumerate();
    each.map(|(i, json)| Message::from_json(json).map_err(|what| wrong(format!("message {i}: {what}"))))
        .collect()
}
