//! Why a command failed, and its exit status.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use siltstone_engine::Error;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit status 2: usage or invalid input.
    Usage(String),
    /// Exit status 3: I/O or a failure of an engine.
    Store(String),
    /// Exit status 0: the reader of the output has closed it.
    OutputClosed,
}

impl Failure {
    /// Prints the reason; the result is the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        let (text, status) = match self {
            Failure::Usage(text) => (text, 2),
            Failure::Store(text) => (text, 3),
            Failure::OutputClosed => return ExitCode::SUCCESS,
        };
        // Without standard error there is nowhere to report a failed write.
        let _ = writeln!(std::io::stderr(), "siltstone-experiments: {text}");
        ExitCode::from(status)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::InvalidOptions(_) | Error::Unsupported { .. } | Error::Invalid(_) => {
                Failure::Usage(text)
            }
            _ => Failure::Store(text),
        }
    }
}

/// A fault of writing to standard output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Store(format!("cannot write the output: {error}")),
        }
    }
}
