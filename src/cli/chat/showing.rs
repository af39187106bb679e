//! How an answer looks at the terminal.

use std::io::IsTerminal;

use crate::{
    Result,
    chat::{Answer, AnswerReader, Delta, Shown, StopStrings},
    cli::{
        colors::{self, DIM, PLAIN},
        common,
    },
};

/// An answer on its way to the terminal.
pub struct Showing {
    stops: StopStrings,
    /// A text came that ends it.
    pub is_stopped: bool,
    reader: AnswerReader,
    pub answer: Answer,
    /// What is shown is what the model thinks.
    thinks: bool,
}

impl Showing {
    pub fn new(reader: AnswerReader, stops: StopStrings) -> Self {
        Showing { stops, is_stopped: false, reader, answer: Answer::default(), thinks: false }
    }

    /// What comes behind a text that ends the answer is not shown.
    pub fn add(&mut self, text: &str, color: Option<&str>) -> Result<()> {
        let shown = if self.is_stopped { Shown::More(String::new()) } else { self.stops.push(text) };
        self.read(shown, color)
    }

    fn read(&mut self, shown: Shown, color: Option<&str>) -> Result<()> {
        self.is_stopped |= matches!(shown, Shown::Stop { .. });
        let (Shown::More(text) | Shown::Stop { text, .. }) = shown;
        let deltas = self.reader.push(&text);
        self.show(&deltas, color)
    }

    pub fn end(&mut self) -> Result<()> {
        let rest = self.stops.finish();
        self.read(rest, None)?;
        let deltas = self.reader.finish();
        self.show(&deltas, None)?;
        self.turn(false)?;
        common::print("\n")
    }

    fn show(&mut self, deltas: &[Delta], color: Option<&str>) -> Result<()> {
        for delta in deltas {
            self.answer.add(delta);
            match delta {
                Delta::Reasoning(text) => {
                    self.turn(true)?;
                    common::print(text)?;
                }
                Delta::Content(text) => {
                    self.turn(false)?;
                    match color {
                        Some(color) => common::print(format!("{color}{text}{PLAIN}"))?,
                        None => common::print(text)?,
                    }
                }
                Delta::Call { name, .. } => common::print(format!("\n{name} "))?,
                Delta::Arguments { text, .. } => common::print(text)?,
            }
        }
        Ok(())
    }

    /// From thoughts to the answer or back.
    fn turn(&mut self, thinks: bool) -> Result<()> {
        if self.thinks == thinks {
            return Ok(());
        }
        self.thinks = thinks;
        match (styled(), thinks) {
            (true, true) => common::print(DIM),
            (true, false) => common::print(format!("{PLAIN}\n")),
            (false, true) => common::print("[thinking] "),
            (false, false) => common::print("\n[answer] "),
        }
    }
}

fn styled() -> bool {
    std::io::stdout().is_terminal() && colors::allowed()
}

pub fn dimmed(text: &str) -> String {
    if styled() && std::io::stderr().is_terminal() { format!("{DIM}{text}{PLAIN}") } else { text.into() }
}
