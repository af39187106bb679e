//! Bars for what takes long.

use std::{io::IsTerminal, ops::ControlFlow, time::Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::interrupt;
use crate::Result;

/// On a terminal; hidden elsewhere. The template is indicatif's.
pub fn bar(length: u64, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.expect("a valid template"))
}

/// Writes so many bytes, which are told as they are written, until that is done or interrupted; how many seconds it took.
pub fn write_under_bar(
    bytes: u64,
    write: impl FnOnce(&mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<()>,
) -> Result<f64> {
    let interrupted = interrupt::flag();
    let start = Instant::now();
    let bar = bar(bytes, "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
    write(&mut |written| {
        bar.set_position(written);
        if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bar.finish_and_clear();
    Ok(start.elapsed().as_secs_f64())
}

/// Of things that are counted, of which some may be done already.
pub fn count_bar(all: usize, done: usize, what: &str) -> ProgressBar {
    let template = format!("{{bar:30}} {{pos}}/{{len}} {what}, {{eta}} left{{msg}}");
    bar(all as u64, &template).with_position(done as u64)
}
