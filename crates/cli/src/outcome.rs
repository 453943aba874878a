//! The outcome of a command, and the message of a failure.

use std::fmt;
use std::io::ErrorKind;

use siltstone::Error;

/// A command that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit status 0.
    Done,
    /// Exit status 1: not found, or a check failed.
    No,
}

/// The result of a command.
pub(crate) type CommandResult = Result<Outcome, Failure>;

/// A command that could not run.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit status 2: usage, or refused input.
    Usage(String),
    /// Exit status 3: I/O, corruption, a directory that is not a store.
    Store(String),
    /// Exit status 128 plus the signal's number: SIGINT or SIGTERM ended it early.
    Interrupted { signal: u8, text: String },
    /// The reader of the output has closed it (`siltstone scan … | head`): no failure.
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
            Error::TooLarge { .. }
            | Error::InvalidOptions(_)
            | Error::Unsupported { .. }
            | Error::Invalid(_) => Failure::Usage(text),
            _ if error.is_corruption() => Failure::Store(format!(
                "{text}\n(`siltstone verify DIR` lists the damage; `siltstone repair DIR` repairs it as far as possible)"
            )),
            Error::Io { kind: ErrorKind::PermissionDenied, operation, ref file, .. }
                if !matches!(operation, "bind to" | "listen on") && !file.contains("://") =>
            {
                Failure::Store(format!(
                    "{text}\n(reading a store needs read permission for its directory and everything in it, writing also \
                     write permission: run this as the user who owns it)"
                ))
            }
            Error::Io { kind: ErrorKind::ReadOnlyFilesystem, .. } => Failure::Store(format!(
                "{text}\n(the file system is mounted read-only: get, scan, stats, verify, inspect, export and \
                 checkpoint work there)"
            )),
            Error::Io { kind: ErrorKind::FileTooLarge, .. } => Failure::Store(format!(
                "{text}\n(earlier writes are safe and readable; raise the limit of file sizes, `ulimit -f`, to \
                 continue writing)"
            )),
            _ if error.is_disk_full() => Failure::Store(format!(
                "{text}\n(earlier writes are safe and readable; free some space to continue writing)"
            )),
            Error::Locked { ref path, .. } if path.contains("://") => Failure::Store(format!(
                "{text}\n(wait until that process has ended; if it was killed, its lock ends after 10 minutes)"
            )),
            Error::Locked { .. } => Failure::Store(format!(
                "{text}\n(if `siltstone serve` has it open, use a client: `redis-cli -p PORT get KEY`)"
            )),
            _ => Failure::Store(text),
        }
    }
}

impl Failure {
    /// A failure of a file outside the store: the input, the output.
    pub(crate) fn file(doing: &str, path: &str, error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure::PipeClosed;
        }
        Failure::Store(format!("cannot {doing} {path}: {error}"))
    }

    /// A failure of the output.
    pub(crate) fn output(error: std::io::Error) -> Self {
        Self::file("write", "the output", &error)
    }
}
