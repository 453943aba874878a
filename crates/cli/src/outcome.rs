//! How a command ends: its exit status, and the words for a failure.

use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;

use siltstone::Error;

use crate::output;

/// A command that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit status 0.
    Done,
    /// Exit status 1: the answer is no.
    No,
}

/// A command that could not run.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit status 2: usage, or input that was refused.
    Usage(String),
    /// Exit status 3: I/O, corruption, a directory that is not a store.
    Store(String),
    /// Exit status 128 and the signal's number: SIGINT or SIGTERM ended it before its work was done.
    Interrupted { signal: u8, text: String },
    /// The reader of our output has gone away (`siltstone scan … | head`): no failure at all.
    PipeClosed,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Store(text) => f.write_str(text),
            Failure::Interrupted { text, .. } if text.is_empty() => f.write_str("interrupted"),
            Failure::Interrupted { text, .. } => write!(f, "interrupted: {text}"),
            Failure::PipeClosed => f.write_str("the output was closed"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::EmptyKey
            | Error::TooLarge { .. }
            | Error::InvalidOptions(_)
            | Error::Unsupported { .. }
            | Error::Invalid(_) => Failure::Usage(text),
            _ if error.is_corruption() => Failure::Store(format!(
                "{text}\n(`siltstone verify DIR` tells what is damaged; `siltstone repair DIR` saves what can be saved)"
            )),
            Error::Io { kind: ErrorKind::PermissionDenied, operation, .. }
                if !matches!(operation, "bind to" | "listen on") =>
            {
                Failure::Store(format!(
                    "{text}\n(a store is read with rights to read its directory and all in it, and changed with rights to write \
                     them, too: run this as the user whose it is)"
                ))
            }
            Error::Io { kind: ErrorKind::ReadOnlyFilesystem, .. } => Failure::Store(format!(
                "{text}\n(the file system is mounted read-only: get, scan, stats, verify, inspect, export and \
                 checkpoint work there)"
            )),
            Error::Io { kind: ErrorKind::FileTooLarge, .. } => Failure::Store(format!(
                "{text}\n(what was written before is safe and can be read; raise the limit of file sizes, `ulimit -f`, to \
                 write on)"
            )),
            _ if error.is_disk_full() => Failure::Store(format!(
                "{text}\n(what was written before is safe and can be read; free some space to write on)"
            )),
            Error::Locked { .. } => Failure::Store(format!(
                "{text}\n(if that is `siltstone serve`, its clients reach the store: `redis-cli -p PORT get KEY`)"
            )),
            _ => Failure::Store(text),
        }
    }
}

impl Failure {
    /// A fault of a file that is not the store's: the input, the output.
    pub(crate) fn file(doing: &str, path: &str, error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure::PipeClosed;
        }
        Failure::Store(format!("cannot {doing} {path}: {error}"))
    }

    /// A fault in writing the answer.
    pub(crate) fn output(error: std::io::Error) -> Self {
        Self::file("write", "the output", &error)
    }
}

/// Says what went wrong on standard error, and gives the exit status.
pub(crate) fn exit(outcome: Result<Outcome, Failure>) -> ExitCode {
    // A command's own failure comes first: what it printed matters less.
    match outcome.and_then(|outcome| output::end().map(|()| outcome)) {
        Ok(Outcome::Done) | Err(Failure::PipeClosed) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        Err(failure) => {
            eprintln!("siltstone: {failure}");
            ExitCode::from(match failure {
                Failure::Usage(_) => 2,
                Failure::Interrupted { signal, .. } => 128 + signal,
                _ => 3,
            })
        }
    }
}
