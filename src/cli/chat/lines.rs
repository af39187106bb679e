//! Where the lines of a conversation come from, and Ctrl-C.

use std::{
    fs,
    io::{BufRead, IsTerminal},
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

use crate::{Error, Result, cli::learned_args::cache};

/// Set by Ctrl-C while an answer is made.
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    static FLAG: std::sync::OnceLock<Arc<AtomicBool>> = std::sync::OnceLock::new();
    if let Some(flag) = FLAG.get() {
        return Ok(flag.clone());
    }
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, flag.clone())
        .map_err(|source| Error::Io { path: "Ctrl-C".into(), source })?;
    Ok(FLAG.get_or_init(|| flag).clone())
}

/// Where lines come from.
pub enum Lines {
    Edited(Box<rustyline::DefaultEditor>, Option<PathBuf>),
    Plain(std::io::StdinLock<'static>),
}

impl Lines {
    pub fn open() -> Result<Self> {
        if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
            return Ok(Lines::Plain(std::io::stdin().lock()));
        }
        let mut editor = rustyline::DefaultEditor::new().map_err(at_terminal)?;
        let history = cache().map(|directory| directory.join("chat_history"));
        if let Some(path) = &history {
            // The first time there is none.
            let _ = editor.load_history(path);
        }
        Ok(Lines::Edited(Box::new(editor), history))
    }

    pub fn is_edited(&self) -> bool {
        matches!(self, Lines::Edited(..))
    }

    /// The next message; `None` at the end.
    pub fn next(&mut self) -> Result<Option<String>> {
        let mut whole = String::new();
        loop {
            let Some(line) = self.line(if whole.is_empty() { "> " } else { "… " })? else {
                return Ok((!whole.is_empty()).then_some(whole));
            };
            match line.strip_suffix('\\') {
                Some(line) => {
                    whole.push_str(line);
                    whole.push('\n');
                }
                None => {
                    whole.push_str(&line);
                    break;
                }
            }
        }
        if let Lines::Edited(editor, history) = self {
            let _ = editor.add_history_entry(&whole);
            if let Some(path) = history {
                let _ = path.parent().map(fs::create_dir_all);
                let _ = editor.save_history(path);
            }
        }
        Ok(Some(whole))
    }

    fn line(&mut self, prompt: &str) -> Result<Option<String>> {
        use rustyline::error::ReadlineError;
        match self {
            Lines::Edited(editor, _) => match editor.readline(prompt) {
                Ok(line) => Ok(Some(line)),
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
                Err(error) => Err(at_terminal(error)),
            },
            Lines::Plain(stdin) => {
                let mut line = String::new();
                let read =
                    stdin.read_line(&mut line).map_err(|source| Error::io("standard input", source))?;
                Ok((read > 0).then(|| line.trim_end_matches(['\n', '\r']).into()))
            }
        }
    }
}

fn at_terminal(error: rustyline::error::ReadlineError) -> Error {
    Error::Input(format!("the terminal cannot be read: {error}"))
}
