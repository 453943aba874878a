//! Why there is no answer, and what that tells of the request.

use std::io;

use crate::wire::Mistake;

/// Why there is no answer.
#[derive(Debug)]
pub enum ClientError {
    /// The socket failed.
    Io(io::Error),
    /// The address names no server.
    NoAddress,
    /// The server does not know the password, or speaks another version.
    Refused(Option<Mistake>),
    /// A request does not fit in a packet, or its key is empty or too long.
    TooLarge {
        /// Its bytes.
        bytes: usize,
    },
    /// The deadline came before all answers: each request without one was done once or not at all.
    Deadline {
        /// How many requests have no answer.
        unanswered: usize,
    },
    /// The server is another than before, with an empty table: requests without an answer may have
    /// been done by the one before. The client goes on with the new one.
    Restarted,
    /// The server did not remember how a repeated request went: it was done once, or not at all.
    Forgotten,
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientError::Io(error) => write!(f, "the socket failed: {error}"),
            ClientError::NoAddress => f.write_str("the address names no server"),
            ClientError::Refused(None) => f.write_str("the server asks for another password"),
            ClientError::Refused(Some(mistake)) => write!(f, "the server answered with {mistake}"),
            ClientError::TooLarge { bytes } => {
                write!(
                    f,
                    "a request of {bytes} bytes does not fit in a packet; use another protocol"
                )
            }
            ClientError::Deadline { unanswered } => {
                write!(f, "{unanswered} requests had no answer in time; they may have been done")
            }
            ClientError::Restarted => {
                f.write_str("the server was started anew; requests may have been done before")
            }
            ClientError::Forgotten => {
                f.write_str("the server has forgotten how a request went; it may have been done")
            }
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        ClientError::Io(error)
    }
}

/// The result of a call.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;
