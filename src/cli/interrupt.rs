//! Ctrl-C: the first asks the work to end after the token or chunk at hand, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Exit code of a process that an interrupt ended.
const INTERRUPTED: i32 = 130;

/// Installs the handler; the returned function says whether the user wants to stop.
pub fn flag() -> impl Fn() -> bool + Copy {
    // Fails only if a handler is there already, which then does the same.
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
    });
    || ASKED.load(Ordering::Relaxed)
}
