//! The one error type of the house.
//!
//! Every variant says what happened, where, and — through its text — what to do. An engine never
//! answers a fault with a panic, a wrong value or a missing key.

use std::fmt;

/// A result with the house's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong in a store.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A checksum, a magic number or a structure did not hold. The bytes are on the medium as
    /// described; nothing was guessed.
    #[error("corruption in {file} at byte {offset}: {reason}")]
    Corruption {
        /// The file, relative to the store.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
        /// What did not hold.
        reason: String,
    },

    /// The medium failed.
    #[error("cannot {operation} {file}: {message}")]
    Io {
        /// What was tried: `read`, `write`, `sync`, ….
        operation: &'static str,
        /// The file or directory.
        file: String,
        /// The kind the operating system gave, to tell "disk full" from "no such file".
        kind: std::io::ErrorKind,
        /// The number the operating system gave, where the fault is its own: kinds lack some, as
        /// "too many open files".
        code: Option<i32>,
        /// The operating system's words.
        message: String,
    },

    /// A key, a value or a batch is over its limit. Nothing has changed.
    #[error("{what} of {size} bytes is over the limit of {limit} bytes")]
    TooLarge {
        /// `key`, `value` or `batch`.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },

    /// A key is empty. Nothing has changed.
    #[error("an empty key is not allowed: keys have 1 to {} bytes", crate::MAX_KEY_BYTES)]
    EmptyKey,

    /// The engine cannot do this by design.
    #[error("the {engine} engine does not support {operation}")]
    Unsupported {
        /// The engine's name.
        engine: &'static str,
        /// The operation, in the contract's words.
        operation: &'static str,
    },

    /// The moment lies before the watermark: versions of then may be gone.
    #[error(
        "history reaches back to {watermark} (milliseconds since 1970) and no further: \
         keep more of it with the option retention, or hold a snapshot"
    )]
    BelowWatermark {
        /// The least time that can still be asked for, in milliseconds since 1970.
        watermark: crate::Timestamp,
    },

    /// Options that cannot be: all mistakes at once. Nothing was opened.
    #[error("bad options: {}", join(.0))]
    InvalidOptions(Vec<InvalidOption>),

    /// The directory or file is not what it should be: not a store, of a newer version, ….
    #[error("{path}: {reason}")]
    Refused {
        /// The directory or file.
        path: String,
        /// Why, and what to do.
        reason: String,
    },

    /// Another process has the store open, or this one has already.
    #[error("{path} is in use by {}: a store serves one process at a time", holder_in_words(*.holder))]
    Locked {
        /// The lock file.
        path: String,
        /// The process that holds it, if the system tells.
        holder: Option<u32>,
    },

    /// An earlier fault made it unsafe to go on writing: the store reads on and refuses writes
    /// until it is opened anew.
    #[error("the store is read-only since an earlier fault ({cause}); reopen it to recover")]
    ReadOnly {
        /// The fault.
        cause: String,
    },

    /// A transaction read what another writer has changed since it began. Nothing of it was applied.
    #[error(
        "the transaction read {}, which another writer has changed since it began; nothing of it was \
         applied: run it again",
        show_key(.key)
    )]
    Conflict {
        /// The key that was changed.
        key: Vec<u8>,
    },

    /// A snapshot or a transaction is no longer kept. Nothing of a transaction was applied.
    #[error("this {reader} has expired: {reason}; begin a new one")]
    Expired {
        /// `snapshot` or `transaction`.
        reader: &'static str,
        /// Why, with the option that sets the limit.
        reason: String,
    },

    /// The engine or the store was closed.
    #[error("the store is closed")]
    Closed,

    /// The argument makes no sense: a cursor moved before it was placed, an inverted range, ….
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Wraps a fault of the operating system with what was tried on which file.
    pub fn io(operation: &'static str, file: impl Into<String>, source: &std::io::Error) -> Self {
        Error::Io {
            operation,
            file: file.into(),
            kind: source.kind(),
            code: source.raw_os_error(),
            message: source.to_string(),
        }
    }

    /// Bytes that do not hold.
    pub fn corruption(file: impl Into<String>, offset: u64, reason: impl Into<String>) -> Self {
        Error::Corruption { file: file.into(), offset, reason: reason.into() }
    }

    /// Whether the same transaction may succeed if it is run again from its beginning.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Conflict { .. } | Error::Expired { .. })
    }

    /// Whether this is damage on the medium, as opposed to a refusal or a passing fault.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corruption { .. })
    }

    /// Whether the medium had no room for a write: a full disk, a quota, the limit of file sizes. Writes work again
    /// when there is space. A sync that says so is another matter: it leaves in doubt all that it covered.
    pub fn is_disk_full(&self) -> bool {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Error::Io { kind, operation, .. }
            if matches!(kind, StorageFull | QuotaExceeded | FileTooLarge) && !is_sync(operation))
    }

    /// Whether the medium or the system lacks something that it may have again: space, descriptors,
    /// memory, time. The request had no effect, or one that was undone, and may be tried again. A
    /// sync that says so is another matter: it leaves in doubt all that it covered.
    pub fn is_transient(&self) -> bool {
        use std::io::ErrorKind::{Interrupted, OutOfMemory, WouldBlock};
        // `ErrorKind` has no stable variants for these two. All Unix systems number them alike.
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        let is_lack = match self {
            Error::Io { code: Some(ENFILE | EMFILE), operation, .. }
            | Error::Io {
                code: Some(_),
                kind: OutOfMemory | WouldBlock | Interrupted,
                operation,
                ..
            } => !is_sync(operation),
            _ => false,
        };
        is_lack || self.is_disk_full()
    }

    /// Whether the file was not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { kind: std::io::ErrorKind::NotFound, .. })
    }
}

/// One option that cannot be, and what would be right.
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

/// Whether the operation makes durable what others wrote.
fn is_sync(operation: &str) -> bool {
    matches!(operation, "sync" | "sync directory" | "persist")
}

/// A key for people: escaped, and cut where it is longer than a line.
fn show_key(key: &[u8]) -> String {
    const SHOWN: usize = 60;
    match key.get(..SHOWN) {
        Some(start) => format!("key '{}…' of {} bytes", start.escape_ascii(), key.len()),
        None => format!("key '{}'", key.escape_ascii()),
    }
}

/// Who holds a lock, e.g. `process 4711`.
fn holder_in_words(holder: Option<u32>) -> String {
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
    fn transient_error_of_a_sync_is_none() {
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
