//! Programs that tests start. None runs for ever, and each ends by the signals that end it in a terminal, also where the tests
//! themselves run with these ignored, as behind `nohup` or in some CI.

use std::{
    ops::{Deref, DerefMut},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

/// Far more than any of them takes.
const LIMIT: Duration = Duration::from_secs(600);

/// A program that is killed when it has not ended in time.
pub struct Limited {
    child: Child,
    /// Its end is told by dropping this.
    _watch: Sender<()>,
}

pub trait Start {
    fn start(&mut self) -> Limited;

    /// Nothing on its standard input; all that it says is kept.
    fn ended(&mut self) -> Output;
}

impl Start for Command {
    fn start(&mut self) -> Limited {
        #[cfg(unix)]
        with_usual_signals(self);
        let what = format!("{self:?}");
        let child = self.spawn().unwrap_or_else(|e| panic!("{what}: {e}"));
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
        Limited { child, _watch: watch }
    }

    fn ended(&mut self) -> Output {
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

    pub fn output(self) -> Output {
        self.child.wait_with_output().unwrap()
    }

    #[cfg(unix)]
    pub fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap().success());
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
