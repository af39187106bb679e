//! An engine on a thread of its own, which many callers share.

use std::{
    sync::mpsc::{self, Receiver, Sender, TryRecvError},
    thread::JoinHandle,
};

use super::{Engine, Job, JobId, Listener, Status, TextRule};
use crate::{Error, Result};

/// A command that runs between rounds.
type Command = Box<dyn FnOnce(&mut Engine) + Send>;

/// Sends commands to the thread. It can be cloned freely.
#[derive(Clone)]
pub struct Handle {
    commands: Sender<Command>,
}

/// The thread. It ends when the last handle is gone and all jobs have ended.
pub struct Worker {
    thread: JoinHandle<Engine>,
}

impl Worker {
    /// Starts a thread for the engine.
    pub fn start(engine: Engine) -> (Worker, Handle) {
        let (commands, received) = mpsc::channel();
        (Worker { thread: std::thread::spawn(move || serve(engine, &received)) }, Handle { commands })
    }

    /// Waits for the end of the thread, and returns the engine.
    pub fn join(self) -> Engine {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Runs rounds, and commands between them. Waits where there is nothing to do.
fn serve(mut engine: Engine, commands: &Receiver<Command>) -> Engine {
    let mut idle = true;
    loop {
        let command = match idle {
            true => commands.recv().map_err(|_| TryRecvError::Disconnected),
            false => commands.try_recv(),
        };
        match command {
            Ok(command) => {
                command(&mut engine);
                idle = false;
                continue;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                engine.run();
                return engine;
            }
        }
        idle = !engine.step();
    }
}

impl Handle {
    /// As [`Engine::submit_with_rule`]. The listener is called on the engine's thread, and all texts wait while it runs.
    pub fn submit(&self, job: Job, bound: TextRule, listener: Listener) -> Result<JobId> {
        self.ask(move |engine| engine.submit_with_rule(job, bound, listener))?
    }

    /// Ends a job.
    pub fn cancel(&self, id: JobId) {
        _ = self.commands.send(Box::new(move |engine| engine.cancel(id)));
    }

    /// What the engine is doing.
    pub fn status(&self) -> Result<Status> {
        self.ask(|engine| engine.status())
    }

    /// Runs a function on the engine between its rounds, and waits for the result. All texts wait as well.
    pub fn ask<T: Send + 'static>(&self, what: impl FnOnce(&mut Engine) -> T + Send + 'static) -> Result<T> {
        let ended = || Error::Input("the engine has ended".into());
        let (reply, answer) = mpsc::channel();
        // The caller may no longer wait for the answer.
        let command: Command = Box::new(move |engine| _ = reply.send(what(engine)));
        self.commands.send(command).map_err(|_| ended())?;
        answer.recv().map_err(|_| ended())
    }
}
