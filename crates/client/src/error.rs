//! Errors of a client, and what each implies for the request.

use std::io;

use crate::wire::WireError;

/// Error of a call.
#[derive(Debug)]
pub enum ClientError {
    /// A socket operation failed.
    Io(io::Error),
    /// The address resolves to no server.
    NoAddress,
    /// The server rejected the password, or speaks another version.
    Refused(Option<WireError>),
    /// A request does not fit in a packet, or its key is too long.
    TooLarge {
        /// Size of the request, in bytes.
        bytes: usize,
    },
    /// The value of the key exists, and no packet is large enough for it.
    ValueTooLarge,
    /// The deadline passed before all responses arrived. Each request without one was executed once
    /// or not at all.
    Deadline {
        /// Number of requests without a response.
        unanswered: usize,
    },
    /// The server was restarted with an empty table. Requests without a response may have been
    /// executed before the restart. The client continues with the new server.
    Restarted,
    /// The server no longer has the response to a retransmitted request, which was executed once or
    /// not at all.
    Forgotten,
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientError::Io(error) => write!(f, "the socket failed: {error}"),
            ClientError::NoAddress => f.write_str("the address names no server"),
            ClientError::Refused(None) => f.write_str("the server asks for another password"),
            ClientError::Refused(Some(error)) => write!(f, "the server answered with {error}"),
            ClientError::TooLarge { bytes } => {
                write!(
                    f,
                    "a request of {bytes} bytes does not fit in a packet; use another protocol"
                )
            }
            ClientError::ValueTooLarge => {
                f.write_str("the value does not fit in a packet; use another protocol")
            }
            ClientError::Deadline { unanswered } => {
                write!(
                    f,
                    "{unanswered} requests had no response in time; they may have been executed"
                )
            }
            ClientError::Restarted => {
                f.write_str("the server was restarted; requests may have been executed before")
            }
            ClientError::Forgotten => f.write_str(
                "the server no longer has the response to a request; it may have been executed",
            ),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        ClientError::Io(error)
    }
}

/// Result of a call.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;
