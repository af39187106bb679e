//! Programs that tests start. None runs for ever, and each ends by the signals that end it in a terminal, also where the tests
//! themselves run with these ignored, as behind `nohup` or in some CI.

use std::{
    ops::{Deref, DerefMut},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use serde_json::Value;

/// Far more than any of them takes.
const LIMIT: Duration = Duration::from_secs(600);

/// A program that is killed when it has not ended in time.
pub struct Limited {
    command: String,
    child: Child,
    /// Its end is told by dropping this.
    _watch: Sender<()>,
}

pub trait Start {
    fn start(&mut self) -> Limited;

    /// Nothing on its standard input; all that it says is kept.
    fn ended(&mut self) -> Ended;
}

impl Start for Command {
    fn start(&mut self) -> Limited {
        #[cfg(unix)]
        with_usual_signals(self);
        let command = format!("{self:?}");
        let child = self.spawn().unwrap_or_else(|e| panic!("{command}: {e}"));
        let what = command.clone();
        let (watch, ended) = channel::<()>();
        let id = child.id().to_string();
        thread::spawn(move || {
            if ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                eprintln!("killed, because it had not ended in {LIMIT:?}: {what}");
                let (kill, args) =
                    if cfg!(windows) { ("taskkill", &["/F", "/PID"][..]) } else { ("kill", &["-KILL"][..]) };
                let _ = Command::new(kill).args(args).arg(id).status();
            }
        });
        Limited { command, child, _watch: watch }
    }

    fn ended(&mut self) -> Ended {
        self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).start().output()
    }
}

impl Deref for Limited {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Limited {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Limited {
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub fn output(self) -> Ended {
        Ended { command: self.command, output: self.child.wait_with_output().unwrap() }
    }

    #[cfg(unix)]
    pub fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap().success());
    }
}

/// A program that has ended, and what it wrote.
pub struct Ended {
    command: String,
    output: Output,
}

impl Deref for Ended {
    type Target = Output;

    fn deref(&self) -> &Output {
        &self.output
    }
}

impl Ended {
    /// Its standard output.
    pub fn printed(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// Its standard error.
    pub fn said(&self) -> String {
        String::from_utf8(self.stderr.clone()).unwrap()
    }

    /// The standard output of a program that went well.
    #[track_caller]
    pub fn done(&self) -> String {
        assert!(self.status.success(), "{}: {}", self.command, self.said());
        self.printed()
    }

    /// The same where it is one value.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.done()).unwrap_or_else(|e| panic!("{}: {e}", self.command))
    }

    /// It ended with this code. The last line that it said is its only error, and has all of `words`.
    #[track_caller]
    pub fn broke_off(&self, code: i32, words: &[&str]) {
        let (command, said) = (&self.command, self.said());
        assert_eq!(self.status.code(), Some(code), "{command}: {said}");
        let last = said.lines().last().unwrap_or_default();
        let errors = said.lines().filter(|line| line.starts_with("spec-run: ")).count();
        assert!(errors == 1 && last.starts_with("spec-run: "), "{command}: {said}");
        assert!(!said.contains("panicked"), "{command}: {said}");
        for word in words {
            assert!(last.contains(word), "{command}: `{word}` is not in: {said}");
        }
    }

    /// The same, and it printed nothing.
    #[track_caller]
    pub fn failed(&self, code: i32, words: &[&str]) {
        self.broke_off(code, words);
        assert_eq!(self.printed(), "", "{}", self.command);
    }

    /// The same, and it said nothing but that line.
    #[track_caller]
    pub fn refused(&self, code: i32, words: &[&str]) {
        self.failed(code, words);
        assert_eq!(self.said().lines().count(), 1, "{}: {}", self.command, self.said());
    }
}

#[cfg(unix)]
fn with_usual_signals(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: only `signal` is called between fork and exec, which may be.
    unsafe {
        command.pre_exec(|| {
            for number in [libc::SIGINT, libc::SIGTERM] {
                libc::signal(number, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}
