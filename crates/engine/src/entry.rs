//! Entries, and the limits on keys and values.

use crate::{Error, Result};

/// Milliseconds since 1970-01-01 UTC.
pub type Timestamp = u64;

/// The maximum length of a key in bytes, in every engine: 64 KiB. A key may be empty.
pub const MAX_KEY_BYTES: usize = 64 << 10;

/// The maximum length of a value in any engine: 512 MiB. An engine may have a smaller limit in its
/// [`Capabilities`](crate::Capabilities).
pub const MAX_VALUE_BYTES: usize = 512 << 20;

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The value's bytes.
    pub value: Vec<u8>,
    /// When the entry expires, i.e. reads as missing. `None`: never.
    pub expires_at: Option<Timestamp>,
}

impl Entry {
    /// An entry that never expires.
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Entry { value: value.into(), expires_at: None }
    }

    /// Whether the entry has expired at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// Checks the length of a key.
///
/// # Errors
/// [`Error::TooLarge`].
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > MAX_KEY_BYTES {
        return Err(Error::TooLarge {
            what: "key",
            size: key.len() as u64,
            limit: MAX_KEY_BYTES as u64,
        });
    }
    Ok(())
}

/// Checks a value against an engine's limit, in bytes.
///
/// # Errors
/// [`Error::TooLarge`].
pub fn check_value(value: &[u8], limit: usize) -> Result<()> {
    if value.len() > limit {
        return Err(Error::TooLarge {
            what: "value",
            size: value.len() as u64,
            limit: limit as u64,
        });
    }
    Ok(())
}
