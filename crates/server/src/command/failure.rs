//! Error replies: Redis's error codes and texts, which clients match on, and the store's texts.
//!
//! | store error | reply |
//! | --- | --- |
//! | read-only after an error | `READONLY …`, as from a replica: the write can go elsewhere |
//! | disk full, or file size limit | `MISCONF …`, Redis's code for failing disk writes |
//! | a full table of `mica` | `OOM …`, Redis's code for exceeded memory |
//! | anything else | `ERR` and the store's text, which names file, limit or option |

use std::borrow::Cow;
use std::io::ErrorKind;

use siltstone_engine::Error;

use crate::store::Database;

/// Outcome of a command: a complete reply was written, or an error replaces it.
pub(crate) type Outcome = Result<(), Failure>;

/// Error of a command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error code and text.
    Text(Cow<'static, str>),
    /// An error of the store.
    Store(Error),
    /// As `Text`, of a command that has done a part of its writes: a transaction must not apply
    /// them.
    Discard(Cow<'static, str>),
}

pub(crate) const SYNTAX: Failure = reply_error("ERR syntax error");
pub(crate) const NOT_AN_INTEGER: Failure =
    reply_error("ERR value is not an integer or out of range");
pub(crate) const NO_SUCH_KEY: Failure = reply_error("ERR no such key");

pub(crate) const WRONG_TYPE: Failure =
    reply_error("WRONGTYPE Operation against a key holding the wrong kind of value");

/// Error for a collection in a table whose engine has no order.
pub(crate) fn no_collections(database: &Database) -> Failure {
    let (name, engine) = (&database.name, database.engine.name());
    let text = format!(
        "ERR table '{name}' has the engine {engine}, which stores only strings; use a table of the \
         engine lsm"
    );
    Failure::Text(text.into())
}

/// A failure with a constant text.
pub(crate) const fn reply_error(text: &'static str) -> Failure {
    Failure::Text(Cow::Borrowed(text))
}

/// Error for a wrong number of arguments.
pub(crate) fn wrong_arity(name: &str) -> Failure {
    Failure::Text(format!("ERR wrong number of arguments for '{name}' command").into())
}

/// Error for a wrong number of arguments of a subcommand.
pub(crate) fn wrong_subcommand_arity(command: &str, word: &[u8]) -> Failure {
    wrong_arity(&format!("{command}|{}", String::from_utf8_lossy(word).to_lowercase()))
}

/// Error for an unknown subcommand.
pub(crate) fn unknown_subcommand(command: &str, word: &[u8]) -> Failure {
    let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
    Failure::Text(format!("ERR unknown subcommand '{word}'. Try {command} HELP.").into())
}

/// Error for an unknown subcommand, or one with wrong arguments.
pub(crate) fn bad_subcommand(command: &str, word: &[u8]) -> Failure {
    let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
    let text = "ERR unknown subcommand or wrong number of arguments for";
    Failure::Text(format!("{text} '{word}'. Try {command} HELP.").into())
}

/// Error for a reply that exceeds `max_output_bytes`.
pub(crate) fn reply_too_large(max_output_bytes: usize) -> Failure {
    let limit = format!("the reply exceeds the limit of {max_output_bytes} bytes");
    Failure::Text(format!("ERR {limit}: request less at a time, or raise --max-output").into())
}

/// The error for a command that would write more than one batch may take in memory.
pub(crate) fn too_many_rows(max_request_bytes: usize) -> Failure {
    let limit = format!("the command writes more than {max_request_bytes} bytes in memory at once");
    Failure::Text(format!("ERR {limit}: write less at a time, or raise --max-request").into())
}

/// The error for a collection whose elements take more memory than a request may.
pub(crate) fn too_much_to_dump(max_request_bytes: usize) -> Failure {
    let limit = format!("the elements take more than {max_request_bytes} bytes in memory");
    Failure::Text(format!("ERR {limit}: copy them in parts, or raise --max-request").into())
}

impl Failure {
    /// Whether a key has another type than the command needs.
    pub(crate) fn is_wrong_type(&self) -> bool {
        self.text().starts_with("WRONGTYPE ")
    }

    /// Whether the command was not run because another node serves its keys, or none does.
    pub(crate) fn is_redirection(&self) -> bool {
        ["MOVED ", "CLUSTERDOWN "].iter().any(|code| self.text().starts_with(code))
    }

    /// Text of the error reply.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Failure::Text(text) | Failure::Discard(text) => Cow::Borrowed(text),
            Failure::Store(error) => store_text(error).into(),
        }
    }
}

/// Error reply for an error of the store.
pub(crate) fn store_text(error: &Error) -> String {
    match error {
        Error::ReadOnly { .. } => format!("READONLY {error}"),
        Error::Io { kind: ErrorKind::FileTooLarge, .. } => {
            format!("MISCONF a file is at the limit of file sizes (ulimit -f): {error}")
        }
        _ if siltstone_mica::is_memory_full(error) => {
            format!("OOM command not allowed when used memory > 'maxmemory': {error}")
        }
        _ if error.is_disk_full() => {
            format!("MISCONF the disk is full: {error}; writes resume once there is space")
        }
        _ => format!("ERR {error}"),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

impl From<siltstone_collections::Error> for Failure {
    fn from(error: siltstone_collections::Error) -> Self {
        match error {
            siltstone_collections::Error::WrongType { .. } => WRONG_TYPE,
            siltstone_collections::Error::Store(error) => Failure::Store(error),
        }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure::Text(text.into())
    }
}
