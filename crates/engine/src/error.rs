//! The error type of the workspace.
//!
//! Every error says what happened, where, and through its text what to do. An engine never responds
//! to a failure with a panic, a wrong value or a missing key.

use std::fmt;

/// The error codes of too many open files, of the process and of the system, which have no stable
/// [`ErrorKind`](std::io::ErrorKind). All Unix systems number them alike.
pub const TOO_MANY_FILES: &[i32] = if cfg!(windows) { &[4] } else { &[23, 24] };

/// A result with [`Error`] as its error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// A checksum, magic number or structure is invalid. The bytes at this offset are damaged;
    /// nothing was guessed.
    Corruption {
        /// The file, relative to the store.
        file: String,
        /// The offset in the file, in bytes.
        offset: u64,
        /// What is invalid.
        reason: String,
    },

    /// An I/O request failed.
    Io {
        /// The operation: `read`, `write`, `sync`, ….
        operation: &'static str,
        /// The file or directory.
        file: String,
        /// The kind of the error, e.g. to distinguish a full disk from a missing file.
        kind: std::io::ErrorKind,
        /// The operating system's error number, if the error comes from it. Some errors, such as
        /// "too many open files", have no kind.
        code: Option<i32>,
        /// The operating system's message.
        message: String,
    },

    /// A key, value or batch is over its limit. Nothing has changed.
    TooLarge {
        /// `key`, `value` or `batch`.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },

    /// The engine does not have this operation.
    Unsupported {
        /// The engine's name.
        engine: &'static str,
        /// The operation.
        operation: &'static str,
    },

    /// The time is before the watermark: versions of that time may be gone.
    BelowWatermark {
        /// The earliest time that can be read, in milliseconds since 1970.
        watermark: crate::Timestamp,
    },

    /// Invalid options, with every mistake. Nothing was opened.
    InvalidOptions(Vec<InvalidOption>),

    /// The directory or file is unsuitable: not a store, of a newer version, ….
    Refused {
        /// The directory or file.
        path: String,
        /// Why, and what to do.
        reason: String,
    },

    /// The store is open already, in another process or in this one.
    Locked {
        /// The lock file.
        path: String,
        /// The process that holds the lock, if the system reports it.
        holder: Option<u32>,
    },

    /// After an earlier error writing is unsafe: the store serves reads and rejects writes until it
    /// is reopened.
    ReadOnly {
        /// The earlier error.
        cause: String,
    },

    /// Another writer changed a key that the transaction had read. Nothing of it was applied.
    Conflict {
        /// The key that was changed.
        key: Vec<u8>,
    },

    /// The snapshot or transaction has expired. Nothing of a transaction was applied.
    Expired {
        /// `snapshot` or `transaction`.
        reader: &'static str,
        /// Why, with the option that sets the limit.
        reason: String,
    },

    /// A change feed cannot resume there: the log no longer has the next change, or the table never
    /// had the last one.
    ChangesUnavailable {
        /// The sequence number after which the feed should resume.
        since: u64,
        /// The oldest sequence number after which it can.
        oldest: u64,
        /// The newest sequence number of the table.
        newest: u64,
    },

    /// The engine or the store was closed.
    Closed,

    /// An invalid argument: an unpositioned cursor is moved, an inverted range, ….
    Invalid(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Corruption { file, offset, reason } => {
                write!(f, "corruption in {file} at byte {offset}: {reason}")
            }
            Error::Io { operation, file, message, .. } => {
                write!(f, "cannot {operation} {file}: {message}")
            }
            Error::TooLarge { what, size, limit } => {
                write!(f, "{what} of {size} bytes is over the limit of {limit} bytes")
            }
            Error::Unsupported { engine, operation } => {
                write!(f, "the {engine} engine does not support {operation}")
            }
            Error::BelowWatermark { watermark } => write!(
                f,
                "history reaches back to {watermark} (milliseconds since 1970) and no further: \
                 keep more of it with the option retention, or hold a snapshot"
            ),
            Error::InvalidOptions(mistakes) => write!(f, "bad options: {}", join(mistakes)),
            Error::Refused { path, reason } => write!(f, "{path}: {reason}"),
            Error::Locked { path, holder } => write!(
                f,
                "{path} is in use by {}: a store serves one process at a time",
                display_holder(*holder)
            ),
            Error::ReadOnly { cause } => write!(
                f,
                "the store is read-only since an earlier fault ({cause}); reopen it to recover"
            ),
            Error::Conflict { key } => write!(
                f,
                "the transaction read {}, which another writer has changed since it began; nothing \
                 of it was applied: run it again",
                display_key(key)
            ),
            Error::Expired { reader, reason } => {
                write!(f, "this {reader} has expired: {reason}; begin a new one")
            }
            Error::ChangesUnavailable { since, oldest, newest } => write!(
                f,
                "the changes after sequence {since} are not in the log, which reaches from \
                 {oldest} to {newest}: copy the table from a snapshot and resume after its \
                 sequence number; log_retention keeps more of the log"
            ),
            Error::Closed => f.write_str("the store is closed"),
            Error::Invalid(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// An I/O error with the operation and the file that it concerns.
    pub fn io(operation: &'static str, file: impl Into<String>, source: &std::io::Error) -> Self {
        Error::Io {
            operation,
            file: file.into(),
            kind: source.kind(),
            code: source.raw_os_error(),
            message: source.to_string(),
        }
    }

    /// One invalid option, with what is wrong and what is allowed.
    pub fn invalid_option(option: impl Into<String>, reason: impl Into<String>) -> Self {
        let (option, reason) = (option.into(), reason.into());
        Error::InvalidOptions(vec![InvalidOption { option, reason }])
    }

    /// An error for damaged bytes.
    pub fn corruption(file: impl Into<String>, offset: u64, reason: impl Into<String>) -> Self {
        Error::Corruption { file: file.into(), offset, reason: reason.into() }
    }

    /// Whether the transaction may succeed if it is retried from its beginning.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Conflict { .. } | Error::Expired { .. })
    }

    /// Whether stored data is damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corruption { .. })
    }

    /// Whether bytes of a file could not be read. Reads elsewhere in it may succeed.
    pub fn is_failed_read(&self) -> bool {
        matches!(self, Error::Io { operation: "read", .. })
    }

    /// Whether a write failed for lack of space: a full disk, a quota, a file size limit. Writes
    /// succeed again when there is space. Not so for a sync: it leaves everything that it covers in
    /// doubt.
    pub fn is_disk_full(&self) -> bool {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Error::Io { kind, operation, .. }
            if matches!(kind, StorageFull | QuotaExceeded | FileTooLarge) && !is_sync(operation))
    }

    /// Whether a resource is exhausted that may be available again: space, descriptors, memory,
    /// time. The request had no effect, or its effect was undone, and it can be retried. Not so for
    /// a sync: it leaves everything that it covers in doubt.
    pub fn is_transient(&self) -> bool {
        use std::io::ErrorKind::{Interrupted, OutOfMemory, WouldBlock};
        let is_lack = match self {
            Error::Io { code: Some(code), kind, operation, .. } => {
                let is_lack = matches!(kind, OutOfMemory | WouldBlock | Interrupted)
                    || TOO_MANY_FILES.contains(code);
                is_lack && !is_sync(operation)
            }
            _ => false,
        };
        is_lack || self.is_disk_full()
    }

    /// The operation of opening a file again that was closed while it was idle.
    pub const OPEN_AGAIN: &'static str = "open again";

    /// Whether a file that was closed while it was idle could not be opened again. The request that
    /// needed it has changed nothing.
    pub fn is_failed_reopen(&self) -> bool {
        matches!(self, Error::Io { operation: Self::OPEN_AGAIN, .. })
    }

    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { kind: std::io::ErrorKind::NotFound, .. })
    }
}

/// An invalid option and what is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidOption {
    /// The option's name.
    pub option: String,
    /// What is wrong and what is allowed.
    pub reason: String,
}

impl fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.option, self.reason)
    }
}

/// Whether the operation makes earlier writes durable.
fn is_sync(operation: &str) -> bool {
    matches!(operation, "sync" | "sync directory" | "persist")
}

/// A key as text: escaped, and truncated if it is longer than a line.
pub fn display_key(key: &[u8]) -> String {
    const MAX_DISPLAY_BYTES: usize = 60;
    match key.get(..MAX_DISPLAY_BYTES) {
        Some(start) => format!("key '{}…' of {} bytes", start.escape_ascii(), key.len()),
        None => format!("key '{}'", key.escape_ascii()),
    }
}

/// The holder of a lock as text, e.g. `process 4711`.
fn display_holder(holder: Option<u32>) -> String {
    match holder {
        Some(id) if id == std::process::id() => "this process already".to_owned(),
        Some(id) => format!("process {id}"),
        None => "another process".to_owned(),
    }
}

fn join(mistakes: &[InvalidOption]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_resources_is_transient_except_in_a_sync() {
        for code in
            [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN, libc::EINTR, libc::ENOSPC]
        {
            let source = std::io::Error::from_raw_os_error(code);
            assert!(Error::io("create", "x", &source).is_transient(), "{source}");
            assert!(!Error::io("sync", "x", &source).is_transient(), "{source}");
        }
        let source = std::io::Error::from_raw_os_error(libc::EIO);
        assert!(!Error::io("create", "x", &source).is_transient());
    }
}
