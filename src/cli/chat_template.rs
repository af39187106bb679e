//! Chat templates are programs out of a file, and may nest, loop or write without an end. So each is rendered in a
//! process of its own, this program again, which may use so much memory and time and no more.

use std::{
    env,
    io::{Read, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

#[cfg(feature = "server")]
use crate::chat::Message;
use crate::{
    Error, Result,
    chat::{Caps, ChatTemplate, Conversation, Prompt, TemplateSource},
    files::read_stream_limited,
};

/// The subcommand of the other process; not for people.
pub const SUBCOMMAND: &str = "render-chat-template";
const MOST_MEMORY: u64 = 768 << 20;
/// A template needs milliseconds; a busy machine, a little more.
const MOST_TIME: Duration = Duration::from_secs(6);
const MOST_ANSWER: u64 = 256 << 20;
/// Real templates nest a few levels deep; this is for those that want thousands.
const STACK: usize = 64 << 20;

#[derive(Serialize, Deserialize)]
struct Job {
    template: TemplateSource,
    conversation: Conversation,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Prompt(Prompt, Caps),
    /// As in [`Error::Tokenizer`].
    Error(String),
}

/// The prompt for a conversation.
pub fn render(template: TemplateSource, conversation: Conversation) -> Result<Prompt> {
    Ok(run(template, conversation)?.0)
}

/// What a template makes use of.
#[cfg(feature = "server")]
pub fn caps(template: TemplateSource) -> Result<Caps> {
    Ok(run(template, Conversation::new(vec![Message::new("user", "Hi")]))?.1)
}

fn run(template: TemplateSource, conversation: Conversation) -> Result<(Prompt, Caps)> {
    let failed = |what: &str| Error::Tokenizer(format!("the chat template of the file failed: {what}"));
    let start = |e: std::io::Error| failed(&format!("no process to render it in ({e})"));
    let mut child = Command::new(env::current_exe().map_err(start)?)
        .arg(SUBCOMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(start)?;
    let job = serde_json::to_vec(&Job { template, conversation }).expect("plain data");
    let answer = converse(&mut child, job);
    // Whatever it was at, it is not needed any more.
    let _ = child.kill();
    let _ = child.wait();
    match answer {
        None => Err(failed(&format!(
            "it did not end within {} seconds; give a plain prompt instead",
            MOST_TIME.as_secs()
        ))),
        Some(bytes) => match serde_json::from_slice(&bytes) {
            Ok(Answer::Prompt(prompt, caps)) => Ok((prompt, caps)),
            Ok(Answer::Error(what)) => Err(Error::Tokenizer(what)),
            Err(_) => Err(failed(&format!(
                "it nests too deeply or needs more than {} MiB; give a plain prompt instead",
                MOST_MEMORY >> 20
            ))),
        },
    }
}

/// What the child has to say, cut short where it died; `None` if its time was up.
fn converse(child: &mut Child, job: Vec<u8>) -> Option<Vec<u8>> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // A child that died says nothing, which shows below.
        let _ = stdin.map(|mut stdin: ChildStdin| stdin.write_all(&job));
        let mut bytes = Vec::new();
        let _ = stdout.map(|stdout| stdout.take(MOST_ANSWER).read_to_end(&mut bytes));
        let _ = sender.send(bytes);
    });
    receiver.recv_timeout(MOST_TIME).ok()
}

/// The other process: a job on stdin, the answer on stdout.
pub fn serve() -> Result<()> {
    limit_memory();
    let job = read_stream_limited("standard input", std::io::stdin().lock(), MOST_ANSWER)?;
    let job: Job = serde_json::from_slice(&job)
        .map_err(|e| Error::Input(format!("standard input: not a chat template to render ({e})")))?;
    let rendering = thread::Builder::new().stack_size(STACK).spawn(move || {
        let template = ChatTemplate::new(job.template)?;
        let caps = template.caps(!job.conversation.tools.is_empty());
        Ok((template.render(&job.conversation, &caps)?, caps))
    });
    let rendered = rendering.map_err(|e| Error::io("a thread", e))?.join();
    let answer = match rendered {
        Ok(Ok((prompt, caps))) => Answer::Prompt(prompt, caps),
        Ok(Err(Error::Tokenizer(what))) => Answer::Error(what),
        Ok(Err(other)) => return Err(other),
        Err(_) => return Err(Error::Tokenizer("the chat template of the file failed".into())),
    };
    super::common::print(serde_json::to_string(&answer).expect("plain data"))
}

/// Where the system has no such limits, time alone is limited.
fn limit_memory() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let limits = [(Resource::As, MOST_MEMORY), (Resource::Data, MOST_MEMORY), (Resource::Core, 0)];
        for (resource, most) in limits {
            let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
        }
    }
}
