//! Requests and responses of a store, for every protocol above.
//!
//! A caller passes a burst of [`Request`]s and gets an [`Answer`] for each. Values are copied
//! directly to an [`Output`] of the caller, so nothing is allocated, and a packet can be the
//! output.
//!
//! Source: Lim, thesis, sections 5.1 and 5.3.2; operations beyond GET, PUT and DELETE are
//! memcached's.

use siltstone_engine::{Error, Timestamp};

use crate::item::Meta;

/// One operation on one key.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The key's hash, from [`Store::hash`](crate::Store::hash) or a client with the same seed.
    pub hash: u64,
    /// The key, up to 64 KiB.
    pub key: &'a [u8],
    /// What to do.
    pub action: Action<'a>,
}

/// A value to be stored, with its metadata.
#[derive(Debug, Clone, Copy, Default)]
pub struct Value<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Expiry time, in milliseconds since 1970.
    pub expires_at: Option<Timestamp>,
    /// Opaque client flags.
    pub flags: u32,
    /// Opaque bits for a server.
    pub marks: u8,
}

/// An operation on a key.
#[derive(Debug, Clone, Copy)]
pub enum Action<'a> {
    /// Look up: [`Outcome::Found`] or [`Outcome::Missing`].
    Get,
    /// Store unconditionally.
    Put(Value<'a>),
    /// Store if the key does not exist; otherwise [`Outcome::Exists`].
    Add(Value<'a>),
    /// Store if the key exists; otherwise [`Outcome::Missing`].
    Replace(Value<'a>),
    /// Store if the item has this CAS version; otherwise [`Outcome::Exists`] or
    /// [`Outcome::Missing`].
    CompareAndSet(Value<'a>, u64),
    /// Delete, if the item has the CAS version, where one is given.
    Delete(Option<u64>),
    /// Append bytes to the existing value.
    Append(&'a [u8]),
    /// Prepend bytes to the existing value.
    Prepend(&'a [u8]),
    /// Add to a decimal 64-bit number, wrapping at 2^64. The response has the new number.
    Increment(u64),
    /// Subtract from a decimal 64-bit number, saturating at 0.
    Decrement(u64),
    /// Set the expiry time.
    Touch(Option<Timestamp>),
}

impl Action<'_> {
    /// Whether it may change the store.
    #[inline]
    pub fn is_write(&self) -> bool {
        !matches!(self, Action::Get)
    }

    /// Length of the value that it carries.
    pub(crate) fn value_len(&self) -> usize {
        match self {
            Action::Put(value)
            | Action::Add(value)
            | Action::Replace(value)
            | Action::CompareAndSet(value, _) => value.bytes.len(),
            Action::Append(bytes) | Action::Prepend(bytes) => bytes.len(),
            _ => 0,
        }
    }
}

/// The result of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Outcome {
    /// There is no such item; nothing has changed.
    #[default]
    Missing,
    /// The value is in the output.
    Found,
    /// The item is stored.
    Stored,
    /// The item is removed.
    Deleted,
    /// There is an item, or its CAS version differs; nothing has changed.
    Exists,
    /// The value is not a decimal 64-bit number; nothing has changed.
    NotANumber,
    /// The output had no room for the value; the response has its length.
    NoRoom,
    /// The store is full; nothing has changed. Never in cache mode.
    Full,
    /// The key or the value exceeds its limit; nothing has changed.
    TooLarge,
    /// The key belongs to another partition; nothing has changed.
    WrongPartition,
    /// The store has no CAS versions: it was created without `cas=on`.
    CasDisabled,
}

/// The file name in errors of a full store.
const TABLE_MEMORY: &str = "the table's memory";

/// Whether a write failed because an in-memory store is full, as opposed to a disk.
pub fn is_memory_full(error: &Error) -> bool {
    matches!(error, Error::Io { kind: std::io::ErrorKind::StorageFull, file, .. } if file == TABLE_MEMORY)
}

impl Outcome {
    /// The error for a failed write: the store is full, or `what`, of `size` bytes, exceeds its
    /// `limit`. `None` for every other outcome.
    pub fn failure(self, what: &'static str, size: u64, limit: u64) -> Option<Error> {
        match self {
            Outcome::Full => Some(Error::Io {
                operation: "write to",
                file: TABLE_MEMORY.to_owned(),
                kind: std::io::ErrorKind::StorageFull,
                code: None,
                message: "it is full: delete keys, or create the table with more memory".to_owned(),
            }),
            Outcome::TooLarge => Some(Error::TooLarge { what, size, limit }),
            _ => None,
        }
    }
}

/// The response to a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answer {
    /// The result.
    pub outcome: Outcome,
    /// Length of the value found, in bytes.
    pub value_len: usize,
    /// The item's metadata after the request.
    pub meta: Meta,
    /// The number after an increment or decrement.
    pub number: u64,
}

impl Answer {
    pub(crate) fn of(outcome: Outcome) -> Self {
        Answer { outcome, ..Answer::default() }
    }
}

/// The destination of values.
pub trait Output {
    /// A buffer of `len` bytes for the value of request number `request`; `None` if there is no
    /// room. If a read is retried, the same request asks again, perhaps with another length, which
    /// replaces the earlier buffer.
    fn room(&mut self, request: usize, len: usize) -> Option<&mut [u8]>;
}

/// No output, for bursts without lookups.
impl Output for () {
    fn room(&mut self, _request: usize, _len: usize) -> Option<&mut [u8]> {
        None
    }
}

/// The value of a single request.
impl Output for Vec<u8> {
    fn room(&mut self, _request: usize, len: usize) -> Option<&mut [u8]> {
        self.resize(len, 0);
        Some(self)
    }
}

/// Concatenated values in a reusable buffer.
#[derive(Debug, Default)]
pub struct Values {
    bytes: Vec<u8>,
    /// Request, start, length.
    spans: Vec<(usize, usize, usize)>,
}

impl Values {
    /// The value that a request found; empty if there is none.
    pub fn of(&self, request: usize) -> &[u8] {
        let span = self.spans.iter().rev().find(|span| span.0 == request);
        span.map_or(&[], |&(_, start, len)| &self.bytes[start..start + len])
    }

    /// Removes all values and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }
}

impl Output for Values {
    fn room(&mut self, request: usize, len: usize) -> Option<&mut [u8]> {
        if let Some((_, start, _)) = self.spans.pop_if(|span| span.0 == request) {
            self.bytes.truncate(start);
        }
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        self.spans.push((request, start, len));
        self.bytes.get_mut(start..)
    }
}
