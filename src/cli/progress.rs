//! A bar for files that take long to write.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// On a terminal; hidden elsewhere.
pub fn bytes_bar(bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
    ProgressBar::new(bytes).with_style(style.expect("a valid template"))
}
