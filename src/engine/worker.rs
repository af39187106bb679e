//! An engine on a thread of its own, for many that ask.

use std::{
    sync::mpsc::{self, Receiver, Sender},
    thread::JoinHandle,
};

use super::{Bound, Engine, Job, JobId, Listener, Status};
use crate::{Error, Result};

enum Command {
    Submit(Box<(Job, Bound)>, Listener, Sender<Result<JobId>>),
    Cancel(JobId),
    Status(Sender<Status>),
}

/// Sends jobs to the thread; as many clones as one likes.
#[derive(Clone)]
pub struct Handle {
    commands: Sender<Command>,
}

/// The thread. It ends when the last handle is gone and all jobs have ended.
pub struct Worker {
    thread: JoinHandle<Engine>,
}

impl Worker {
    /// Gives the engine a thread.
    pub fn start(engine: Engine) -> (Worker, Handle) {
        let (commands, received) = mpsc::channel();
        (Worker { thread: std::thread::spawn(move || serve(engine, &received)) }, Handle { commands })
    }

    /// Waits for the end, and gives the engine back.
    pub fn join(self) -> Engine {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Between rounds it hears what is asked; without anything to do it waits.
fn serve(mut engine: Engine, commands: &Receiver<Command>) -> Engine {
    let mut idle = true;
    loop {
        let command = match idle {
            true => commands.recv().map_err(|_| mpsc::TryRecvError::Disconnected),
            false => commands.try_recv(),
        };
        match command {
            Ok(command) => {
                obey(&mut engine, command);
                idle = false;
                continue;
            }
            Err(mpsc::TryRecvError::Empty) => {}
            Err(mpsc::TryRecvError::Disconnected) => {
                engine.run();
                return engine;
            }
        }
        idle = !engine.step();
    }
}

/// Nobody may wait for an answer any more.
fn obey(engine: &mut Engine, command: Command) {
    match command {
        Command::Submit(asked, listener, reply) => {
            let (job, bound) = *asked;
            _ = reply.send(engine.submit_bound(job, bound, listener));
        }
        Command::Cancel(id) => engine.cancel(id),
        Command::Status(reply) => _ = reply.send(engine.status()),
    }
}

impl Handle {
    /// As [`Engine::submit_bound`]. The listener is called from the engine's thread, and holds up all texts while it runs.
    pub fn submit(&self, job: Job, bound: Bound, listener: Listener) -> Result<JobId> {
        self.ask(|reply| Command::Submit(Box::new((job, bound)), listener, reply))?
    }

    /// Ends a job.
    pub fn cancel(&self, id: JobId) {
        _ = self.commands.send(Command::Cancel(id));
    }

    /// What the engine is at.
    pub fn status(&self) -> Result<Status> {
        self.ask(Command::Status)
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T> {
        let ended = || Error::Input("the engine has ended".into());
        let (reply, answer) = mpsc::channel();
        self.commands.send(command(reply)).map_err(|_| ended())?;
        answer.recv().map_err(|_| ended())
    }
}
