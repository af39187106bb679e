//! An embedder on a thread of its own, for many callers, whose texts share passes.

use std::{
    sync::mpsc::{self, Receiver, Sender},
    thread::JoinHandle,
};

use super::{Embedder, Embedding};
use crate::{Error, Result};

/// Waits for embeddings.
pub trait Listener: Send {
    /// Whether the caller no longer waits.
    fn is_gone(&self) -> bool;

    /// Takes the result.
    fn tell(self: Box<Self>, made: Result<Vec<Embedding>>);
}

/// Texts of one caller.
pub struct Asked {
    /// Their tokens, none of which the embedder refuses.
    pub texts: Vec<Vec<u32>>,
    /// Gets the embeddings.
    pub listener: Box<dyn Listener>,
}

/// Sends texts to the thread. It can be cloned freely.
#[derive(Clone)]
pub struct Handle {
    asked: Sender<Asked>,
}

/// The thread. It ends when the last handle is gone and all listeners were called.
pub struct Worker {
    thread: JoinHandle<()>,
}

impl Worker {
    /// Starts a thread for the embedder.
    pub fn start(embedder: Embedder) -> (Worker, Handle) {
        let (asked, received) = mpsc::channel();
        (Worker { thread: std::thread::spawn(move || serve(embedder, &received)) }, Handle { asked })
    }

    /// Waits for the end.
    pub fn join(self) {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

impl Handle {
    /// Asks for embeddings. The listener is called on the embedder's thread.
    pub fn ask(&self, asked: Asked) -> Result<()> {
        self.asked.send(asked).map_err(|_| Error::Input("the embedder has ended".into()))
    }
}

/// A caller's texts, and the embeddings that are ready.
struct Waiting {
    asked: Asked,
    made: Vec<Embedding>,
}

fn serve(mut embedder: Embedder, asked: &Receiver<Asked>) {
    let mut waiting: Vec<Waiting> = Vec::new();
    let wait = |asked: Asked| Waiting { asked, made: Vec::new() };
    loop {
        if waiting.is_empty() {
            match asked.recv() {
                Ok(first) => waiting.push(wait(first)),
                Err(_) => return,
            }
        }
        waiting.extend(asked.try_iter().map(wait));
        waiting.retain(|one| !one.asked.listener.is_gone());
        pass(&mut embedder, &mut waiting);
        for done in waiting.extract_if(.., |one| one.made.len() == one.asked.texts.len()) {
            done.asked.listener.tell(Ok(done.made));
        }
    }
}

/// One pass over texts of all callers, a text of each in turn.
fn pass(embedder: &mut Embedder, waiting: &mut Vec<Waiting>) {
    let chosen = choose(waiting, embedder.tokens_at_once());
    let texts: Vec<&[u32]> = chosen.iter().map(|&(one, text)| &*waiting[one].asked.texts[text]).collect();
    if let Ok(made) = embedder.embed(&texts) {
        chosen.iter().zip(made).for_each(|(&(one, _), made)| waiting[one].made.push(made));
        return;
    }
    // One of the texts cannot be embedded; the others still can.
    for one in std::mem::take(waiting) {
        one.asked.listener.tell(embedder.embed(&one.asked.texts));
    }
}

/// The callers and texts of the next pass: as many as have at most `tokens` tokens together, or one.
fn choose(waiting: &[Waiting], tokens: usize) -> Vec<(usize, usize)> {
    let mut next: Vec<usize> = waiting.iter().map(|one| one.made.len()).collect();
    let (mut chosen, mut sum) = (Vec::new(), 0);
    loop {
        let before = chosen.len();
        for (one, next) in next.iter_mut().enumerate() {
            let Some(text) = waiting[one].asked.texts.get(*next) else { continue };
            if chosen.is_empty() || sum + text.len() <= tokens {
                chosen.push((one, *next));
                sum += text.len();
                *next += 1;
            }
        }
        if chosen.len() == before {
            return chosen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Listener for Nobody {
        fn is_gone(&self) -> bool {
            false
        }

        fn tell(self: Box<Self>, _: Result<Vec<Embedding>>) {}
    }

    #[test]
    fn everybody_has_a_text_in_a_pass_before_anybody_has_two() {
        let waiting: Vec<Waiting> = [&[2, 2, 2][..], &[3], &[9, 1]]
            .iter()
            .map(|lens| {
                let texts = lens.iter().map(|&len| vec![0; len]).collect();
                Waiting { asked: Asked { texts, listener: Box::new(Nobody) }, made: Vec::new() }
            })
            .collect();
        assert_eq!(choose(&waiting, 100), [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1), (0, 2)]);
        // The third one's first text has no room beside the others.
        assert_eq!(choose(&waiting, 9), [(0, 0), (1, 0), (0, 1), (0, 2)]);
        // A text that is longer than all goes alone.
        assert_eq!(choose(&waiting[2..], 4), [(0, 0)]);
    }
}
