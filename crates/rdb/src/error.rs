//! Errors of reading, with the offset in the input.

use std::{fmt, io};

/// Result of reading.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why input cannot be read.
#[derive(Debug)]
pub enum Error {
    /// The bytes are not of the format, or damaged.
    Malformed {
        /// Offset of the value or of the field that is wrong.
        offset: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// The value is valid, and this version cannot read its kind.
    Unsupported {
        /// Offset of the value.
        offset: u64,
        /// What it is.
        what: String,
    },
    /// A value exceeds the reader's limit.
    TooLarge {
        /// Offset at which the limit is exceeded.
        offset: u64,
        /// The limit, in bytes of memory.
        limit: u64,
    },
    /// The input cannot be read.
    Io {
        /// Offset of the failing read.
        offset: u64,
        /// The error of the system.
        error: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Malformed { offset, reason } => write!(f, "offset {offset}: {reason}"),
            Error::Unsupported { offset, what } => {
                write!(f, "offset {offset}: {what}, which this version cannot read")
            }
            Error::TooLarge { offset, limit } => {
                write!(f, "offset {offset}: a value needs more than {limit} bytes of memory")
            }
            Error::Io { offset, error } => write!(f, "offset {offset}: {error}"),
        }
    }
}

impl std::error::Error for Error {}
