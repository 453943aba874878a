//! Errors in Redis's words, because clients match on them, and the store's in its own.
//!
//! | store | reply |
//! | --- | --- |
//! | read-only since a fault | `READONLY …`, as a replica would answer: the write can go elsewhere |
//! | disk full, or a file at the limit of file sizes | `MISCONF …`, Redis's code for a disk that does not take writes |
//! | a full table of `mica` | `OOM …`, Redis's code for memory that does not take writes |
//! | anything else | `ERR` and the store's text, which names file, limit or option |

use std::borrow::Cow;
use std::io::ErrorKind;

use siltstone_engine::Error;

/// Why a command has no other answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A code in capitals and words.
    Words(Cow<'static, str>),
    /// What the store said.
    Store(Error),
}

pub(crate) const SYNTAX: Failure = words("ERR syntax error");
pub(crate) const NOT_AN_INTEGER: Failure = words("ERR value is not an integer or out of range");
pub(crate) const NO_SUCH_KEY: Failure = words("ERR no such key");

/// A failure in fixed words.
pub(crate) const fn words(text: &'static str) -> Failure {
    Failure::Words(Cow::Borrowed(text))
}

/// The answer to a command with too few or too many arguments.
pub(crate) fn wrong_arity(name: &str) -> Failure {
    Failure::Words(format!("ERR wrong number of arguments for '{name}' command").into())
}

/// The answer to a subcommand with too few or too many arguments.
pub(crate) fn wrong_subcommand_arity(command: &str, word: &[u8]) -> Failure {
    wrong_arity(&format!("{command}|{}", String::from_utf8_lossy(word).to_lowercase()))
}

/// The answer to a word that a command with subcommands does not know.
pub(crate) fn unknown_subcommand(command: &str, word: &[u8]) -> Failure {
    let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
    Failure::Words(format!("ERR unknown subcommand '{word}'. Try {command} HELP.").into())
}

/// The answer to a command whose reply does not fit into `max_output_bytes`.
pub(crate) fn reply_too_large(max_output_bytes: usize) -> Failure {
    let limit = format!("the reply is over the limit of {max_output_bytes} bytes");
    Failure::Words(format!("ERR {limit}: ask for less at a time, or raise --max-output").into())
}

impl Failure {
    /// The reply.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Failure::Words(text) => Cow::Borrowed(text),
            Failure::Store(error) => store_text(error).into(),
        }
    }
}

/// The reply to an error of the store.
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
            format!("MISCONF the disk is full: {error}; writes work again when there is space")
        }
        _ => format!("ERR {error}"),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure::Words(text.into())
    }
}
