//! Ctrl-C and SIGTERM, on Windows Ctrl-C and Ctrl-Break: the first asks the work to end after the token or chunk at hand and to keep what is done, the
//! second ends the process at once.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

#[cfg(windows)]
use signal_hook::consts::SIGBREAK as SECOND;
#[cfg(not(windows))]
use signal_hook::consts::SIGTERM as SECOND;
use signal_hook::{consts::SIGINT, low_level};

/// By shells' custom, 128 and the number of the signal.
const EXIT_CODES: [(i32, i32); 2] = [(SIGINT, 128 + SIGINT), (SECOND, 128 + SECOND)];

/// The exit code that the first signal asks for; 0 before.
static ASKED: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// From here on the first signal only asks; the returned function says whether one did. Call it when there is
/// something to keep: before, while a model is loaded or a pipe is read, a signal ends the process as ever.
pub fn flag() -> impl Fn() -> bool + Copy {
    let asked = ASKED.get_or_init(|| {
        let (signals, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for (signal, code) in EXIT_CODES {
            let (signals, asked) = (signals.clone(), asked.clone());
            let act = move || {
                // Two of them may come at once, each to a thread of its own.
                if signals.fetch_add(1, Ordering::Relaxed) > 0 {
                    low_level::exit(code);
                }
                asked.store(code as usize, Ordering::Relaxed);
            };
            // Where there can be no handler, a signal ends the process.
            // SAFETY: it does nothing but what is allowed in a handler: atomics, and leaving the process.
            let _ = unsafe { low_level::register(signal, act) };
        }
        asked
    });
    move || asked.load(Ordering::Relaxed) != 0
}

/// The exit code of an interrupted run; `None` if nobody interrupted it.
pub fn exit_code() -> Option<u8> {
    let code = ASKED.get()?.load(Ordering::Relaxed);
    u8::try_from(code).ok().filter(|&code| code != 0)
}
