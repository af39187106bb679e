//! How text looks at a terminal.

use std::env;

#[cfg(windows)]
use crate::windows::console_takes_colors;

pub const PLAIN: &str = "\x1b[0m";
pub const DIM: &str = "\x1b[2m";

/// Whether the user lets programs colour what they write; see no-color.org.
pub fn allowed() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && console_takes_colors()
}

/// Terminals of other systems do.
#[cfg(not(windows))]
fn console_takes_colors() -> bool {
    true
}

/// A drafted token's: green where something was computed for it, blue where it was looked up.
pub fn of_drafted(looked_up: bool) -> &'static str {
    if looked_up { "\x1b[34m" } else { "\x1b[32m" }
}
