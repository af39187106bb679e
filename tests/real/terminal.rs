//! A conversation at a terminal: a pseudo-terminal, whose other end types and reads what is shown.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{FromRawFd, OwnedFd},
    process::{Command, Stdio},
    ptr::null_mut,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::{
    SMOLLM2,
    common::{
        child::{Limited, Start},
        program::{program, stdout},
    },
    models,
};

const LENGTH: [&str; 5] = ["--temp", "0", "--no-learn", "-n", "60"];
/// More than an answer takes on a busy machine.
const LONGEST: Duration = Duration::from_secs(120);

/// A program at a terminal.
struct Terminal {
    types: File,
    shown: Arc<Mutex<Vec<u8>>>,
    program: Limited,
    /// So much of what is shown has been looked at.
    seen: usize,
}

impl Terminal {
    fn start(command: &mut Command) -> Terminal {
        let (mut ours, mut theirs) = (-1, -1);
        // SAFETY: both numbers are written, and a name, settings and size that are null are not asked for.
        let made = unsafe { libc::openpty(&mut ours, &mut theirs, null_mut(), null_mut(), null_mut()) };
        assert_eq!(made, 0, "no pseudo-terminal");
        // SAFETY: both are open, and nobody else has them.
        let (ours, theirs) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let program = command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end()).start();
        // The command has ends of its own, which would keep the terminal open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut reads, kept) = (ours.try_clone().unwrap(), shown.clone());
        thread::spawn(move || {
            let mut piece = [0; 4096];
            // An error at the end: the program has closed its side.
            while let Ok(n @ 1..) = reads.read(&mut piece) {
                kept.lock().unwrap().extend_from_slice(&piece[..n]);
            }
        });
        Terminal { types: ours, shown, program, seen: 0 }
    }

    /// Waits until a text is shown, and gives what came up to its end.
    fn until(&mut self, text: &str) -> String {
        let began = Instant::now();
        loop {
            let all = without_colours(&String::from_utf8_lossy(&self.shown.lock().unwrap()));
            if let Some(at) = all[self.seen..].find(text) {
                let part = all[self.seen..self.seen + at + text.len()].to_owned();
                self.seen += part.len();
                return part;
            }
            assert!(began.elapsed() < LONGEST, "no {text:?} behind {:?}", &all[self.seen..]);
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn type_in(&mut self, keys: &str) {
        self.types.write_all(keys.as_bytes()).unwrap();
    }

    /// Says something; the answer, and how many tokens of the prompt were new, of how many.
    fn answer(&mut self, message: &str) -> (String, [usize; 2]) {
        self.type_in(message);
        self.until(message);
        self.type_in("\r");
        let all = self.until(" new\n");
        let (answer, line) = all.trim_end().rsplit_once('\n').unwrap();
        let told = line.split("second; ").nth(1).unwrap_or_else(|| panic!("{all:?}"));
        let numbers: Vec<usize> = told.split(' ').filter_map(|word| word.parse().ok()).collect();
        // A line above it may say that the answer was cut.
        let lines =
            answer.trim_start_matches('\n').lines().filter(|line| !line.starts_with("the answer was cut"));
        (lines.collect::<Vec<_>>().join("\n"), [numbers[0], numbers[1]])
    }
}

/// Lines as they would be in a file: no escape sequences, and no carriage returns.
fn without_colours(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => {
                // `ESC [`, digits, and a letter.
                let _ = chars.by_ref().skip(1).find(|c| c.is_ascii_alphabetic());
            }
            '\r' => {}
            _ => out.push(c),
        }
    }
    out
}

/// What the same lines give that come from a pipe.
fn piped(path: &str, typed: &str) -> String {
    let mut command = program();
    command.args(["chat", "-q", "-m", path, "-c", "1024"]).args(LENGTH);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).start();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    child.output().printed()
}

#[test]
fn a_conversation_at_a_terminal() {
    for (_, path) in models("a_conversation_at_a_terminal", &[SMOLLM2]) {
        let (path, home) = (path.to_str().unwrap(), tempfile::tempdir().unwrap());
        let mut command = program();
        command.args(["chat", "-m", path, "-c", "1024"]).args(LENGTH);
        // The history of what was typed is no business of the machine's user.
        for name in ["HOME", "XDG_CACHE_HOME"] {
            command.env(name, home.path());
        }
        let mut terminal = Terminal::start(&mut command);
        terminal.until("/help tells what else there is");
        terminal.until("> ");
        let question = "What is the capital of France?";
        let (first, [new, all]) = terminal.answer(question);
        assert_eq!(new, all);
        // Answered as without a terminal.
        let alone =
            stdout(&[&["-m", path, "--chat", "-q", "-p", question, "-c", "1024"], &LENGTH[..]].concat());
        assert_eq!(first.trim_end(), alone.trim_end());
        terminal.until("> ");
        // The second turn has the first before it, and evaluates what is new alone.
        let (second, [new, all]) = terminal.answer("What did I ask you about?");
        assert!(new < 40 && all > new + 60, "{new} of {all}");
        let typed = format!("{question}\nWhat did I ask you about?\n");
        assert_eq!(format!("{first}\n{second}"), piped(path, &typed).trim_end());
        terminal.until("> ");
        terminal.type_in("/clear\r");
        terminal.until("/clear");
        terminal.until("> ");
        let (again, [_, all]) = terminal.answer(question);
        assert_eq!((again, all < 60), (first, true), "{all}");
        terminal.until("> ");
        // Ctrl-D.
        terminal.type_in("\x04");
        let status = terminal.program.wait();
        let shown = terminal.shown.lock().unwrap();
        assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&shown));
    }
}
