//! Ctrl-C and SIGTERM: the first asks the work to end after the token or chunk at hand and to keep what is done, the
//! second ends the process at once.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

/// By shells' custom, 128 and the number of the signal.
const EXIT_CODES: [(i32, i32); 2] = [(SIGINT, 130), (SIGTERM, 143)];

/// The exit code that the first signal asks for; 0 before.
static ASKED: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// From here on the first signal only asks; the returned function says whether one did. Call it when there is
/// something to keep: before, while a model is loaded or a pipe is read, a signal ends the process as ever.
pub fn flag() -> impl Fn() -> bool + Copy {
    let asked = ASKED.get_or_init(|| {
        let (again, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for (signal, code) in EXIT_CODES {
            // In this order: the first signal finds `again` unset and sets it. Where there can be no handler, a signal
            // ends the process.
            let _ = flag::register_conditional_shutdown(signal, code, again.clone());
            let _ = flag::register(signal, again.clone());
            let _ = flag::register_usize(signal, asked.clone(), code as usize);
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
