//! `print!` and its variants for all commands, which never end a command.
//!
//! The standard ones panic when the reader is gone (`siltstone verify DIR | head -1`). These print
//! nothing from then on: the command continues and exits with its own status, so that `verify |
//! head` still reports damage. Any other fault, such as a full disk under `> file`, is reported
//! once, at the end ([`finish`]), with the status of failed I/O.

use std::fmt;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::sync::OnceLock;

use crate::outcome::Failure;

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

/// A fault of standard error is ignored: there is nowhere to report it.
pub(crate) fn err(text: fmt::Arguments<'_>) {
    let _ = stderr().lock().write_fmt(text);
}

/// Flushes the output, and reports its first fault unless the reader has closed it.
pub(crate) fn finish() -> Result<(), Failure> {
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
