//! Errors of operations on collections.

use std::fmt;

use crate::metadata::Kind;

/// Result of an operation on a collection.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of an operation on a collection.
#[derive(Debug, Clone)]
pub enum Error {
    /// The key holds another type.
    WrongType {
        /// The type of the operation.
        wanted: Kind,
        /// The type at the key; `None`: a plain value.
        found: Option<Kind>,
    },
    /// An error of the store.
    Store(siltstone::Error),
}

impl From<siltstone::Error> for Error {
    fn from(error: siltstone::Error) -> Self {
        Error::Store(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::WrongType { wanted, found } => {
                let (wanted, found) = (wanted.name(), found.map_or("string", Kind::name));
                write!(f, "the key holds a {found}, not a {wanted}; use another key or remove it")
            }
            Error::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
