//! How text looks at a terminal.

use std::env;

use crate::speculation::SourceKind;
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

/// A drafted token's: what the model drafted green, what was looked up blue.
pub fn of_source(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::Mask | SourceKind::Exit | SourceKind::Mtp | SourceKind::Head | SourceKind::Model => {
            "\x1b[32m"
        }
        SourceKind::Ngram | SourceKind::Other => "\x1b[34m",
    }
}
