//! What the program says on stderr. A line that cannot be written is dropped: a full disk behind `2>log` costs
//! nobody their text.

use std::{
    fmt,
    io::{self, Write},
};

/// Writes to stderr whatever the verbosity: for errors.
pub fn say(text: fmt::Arguments) {
    // One write where the text is short, so that lines of several programs in one log do not mix.
    let _ = io::stderr().lock().write_all(format!("{text}").as_bytes());
}

/// A line on stderr, unless -q.
macro_rules! note {
    ($($text:tt)*) => {
        if $crate::cli::verbosity::verbosity() >= $crate::cli::verbosity::Verbosity::Normal {
            $crate::cli::output::say(format_args!("{}\n", format_args!($($text)*)));
        }
    };
}

/// A line on stderr with -v.
macro_rules! detail {
    ($($text:tt)*) => {
        if $crate::cli::verbosity::verbosity() >= $crate::cli::verbosity::Verbosity::Verbose {
            $crate::cli::output::say(format_args!("{}\n", format_args!($($text)*)));
        }
    };
}

/// A line on stderr that begins with `warning: `, unless -q.
macro_rules! warning {
    ($($text:tt)*) => {
        $crate::cli::output::note!("warning: {}", format_args!($($text)*))
    };
}

pub(crate) use {detail, note, warning};
