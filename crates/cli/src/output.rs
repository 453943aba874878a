//! What the program prints: `print!` and its kin for all commands, which end no command.
//!
//! The standard ones panic when nobody reads any more (`siltstone verify DIR | head -1`). Ours, of the
//! same names, are silent from then on: the command goes on and ends with the status that it has anyway, so
//! that `verify | head` still tells damage. Any other fault, such as a full disk under `> file`, is kept
//! and told once, at the end ([`end`]), with the status of I/O that failed.

use std::fmt;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::sync::OnceLock;

use crate::Failure;

/// The first fault of standard output; nothing is printed there after it.
static FAULT: OnceLock<std::io::Error> = OnceLock::new();

macro_rules! print {
    ($($text:tt)*) => { $crate::output::out(format_args!($($text)*)) };
}

macro_rules! println {
    ($($text:tt)*) => { $crate::output::out(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprint {
    ($($text:tt)*) => { $crate::output::err(format_args!($($text)*)) };
}

macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::err(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) fn out(text: fmt::Arguments<'_>) {
    if FAULT.get().is_none()
        && let Err(error) = stdout().lock().write_fmt(text)
    {
        let _ = FAULT.set(error);
    }
}

/// Where nobody hears of a fault there is nobody to tell that they don't.
pub(crate) fn err(text: fmt::Arguments<'_>) {
    let _ = stderr().lock().write_fmt(text);
}

/// Sends what is left, and tells whether all has arrived that somebody wanted to read.
pub(crate) fn end() -> Result<(), Failure> {
    if let Err(error) = stdout().flush() {
        let _ = FAULT.set(error);
    }
    match FAULT.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Store(format!("cannot write the output: {error}")))
        }
        _ => Ok(()),
    }
}
