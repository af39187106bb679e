//! One text of an engine, token by token.

use std::{
    ops::ControlFlow,
    sync::mpsc::{Receiver, channel},
};

use super::{Ended, Engine, Event, Job, JobId, TextRule};
use crate::{Error, Result, speculation::Token};

/// One text of an engine, for callers that want it token by token.
pub struct Session<'e> {
    engine: &'e mut Engine,
    id: JobId,
    events: Receiver<Event>,
    ended: Option<Result<Box<Ended>>>,
}

impl Engine {
    /// Begins a text that is returned token by token. Other jobs go on meanwhile.
    pub fn session(&mut self, job: Job) -> Result<Session<'_>> {
        self.session_with_rule(job, TextRule::default())
    }

    /// The same for a text with a rule.
    pub fn session_with_rule(&mut self, job: Job, bound: TextRule) -> Result<Session<'_>> {
        let (send, events) = channel();
        let listener = move |event| match send.send(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        };
        let id = self.submit_with_rule(job, bound, Box::new(listener))?;
        Ok(Session { engine: self, id, events, ended: None })
    }
}

impl Session<'_> {
    /// Ends the text with the tokens that are there.
    pub fn stop(&mut self) {
        self.engine.cancel(self.id);
    }

    /// The next token; `None` at the end.
    pub fn next_token(&mut self) -> Result<Option<Token>> {
        while self.ended.is_none() {
            match self.events.try_recv() {
                Ok(Event::Token { token, .. }) => return Ok(Some(token)),
                Ok(Event::Ended(ended)) => self.ended = Some(ended),
                Ok(Event::Begun { .. } | Event::Evaluated(_)) => {}
                Err(_) => {
                    self.engine.step();
                }
            }
        }
        match &self.ended {
            Some(Err(error)) => Err(Error::Input(error.to_string())),
            _ => Ok(None),
        }
    }

    /// Makes the rest of the text, and returns the result.
    pub fn finish(mut self) -> Result<Ended> {
        while self.next_token()?.is_some() {}
        match self.ended.take() {
            Some(Ok(ended)) => Ok(*ended),
            _ => Err(Error::Input("the text has not ended".into())),
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.engine.cancel(self.id);
    }
}
