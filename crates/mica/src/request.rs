//! What may be asked of a store, and what it answers: the words of every protocol above.
//!
//! A caller gives a burst of [`Request`]s and gets an [`Answer`] for each. Values go straight to
//! where the caller wants them: the store asks an [`Output`] for room and copies into it, so nothing
//! is allocated on the way and a packet can be its own answer.
//!
//! Source: thesis, sections 5.1 and 5.3.2; the operations beyond GET, PUT and DELETE are memcached's.

use siltstone_engine::{Error, Timestamp};

use crate::item::Meta;

/// One operation on one key.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The key's hash, by [`Store::hash`](crate::Store::hash) or a client that knows the seed.
    pub hash: u64,
    /// The key, 1 byte to 64 KiB.
    pub key: &'a [u8],
    /// What to do.
    pub action: Action<'a>,
}

/// A value to be stored, and what goes with it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Value<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// When the item starts to read as missing.
    pub expires_at: Option<Timestamp>,
    /// What the client keeps with it.
    pub flags: u32,
    /// What a server keeps with it.
    pub marks: u8,
}

/// What to do with a key.
#[derive(Debug, Clone, Copy)]
pub enum Action<'a> {
    /// Look up: [`Outcome::Found`] or [`Outcome::Missing`].
    Get,
    /// Store, whatever is there.
    Put(Value<'a>),
    /// Store if there is nothing; else [`Outcome::Exists`].
    Add(Value<'a>),
    /// Store if there is something; else [`Outcome::Missing`].
    Replace(Value<'a>),
    /// Store if what is there has this stamp; else [`Outcome::Exists`] or [`Outcome::Missing`].
    CompareAndSet(Value<'a>, u64),
    /// Remove, if it is there and has the stamp, where one is given.
    Delete(Option<u64>),
    /// Put these bytes behind the value that is there.
    Append(&'a [u8]),
    /// Put these bytes before the value that is there.
    Prepend(&'a [u8]),
    /// Add to a decimal number of 64 bits; what is over 2^64 is lost. The new number is in the
    /// answer.
    Increment(u64),
    /// Subtract from a decimal number of 64 bits, down to 0.
    Decrement(u64),
    /// Set the expiry.
    Touch(Option<Timestamp>),
}

impl Action<'_> {
    /// Whether it may change anything.
    #[inline]
    pub fn is_write(&self) -> bool {
        !matches!(self, Action::Get)
    }

    /// Bytes of the value that it brings.
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

/// How a request went.
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
    /// There is an item, or one with another stamp; nothing has changed.
    Exists,
    /// The value is no decimal number of 64 bits; nothing has changed.
    NotANumber,
    /// The output had no room for the value, whose length is in the answer.
    NoRoom,
    /// The store is full; nothing has changed. Never in cache mode.
    Full,
    /// The key or the value is over its limit; nothing has changed.
    TooLarge,
    /// The request is for another partition; nothing has changed.
    Elsewhere,
    /// The store keeps no stamps to compare: it was made without `stamps=on`.
    NoStamps,
}

/// What errors of a full store name in place of a file.
const TABLE_MEMORY: &str = "the table's memory";

/// Whether a write was refused because a store in memory is full, as opposed to a disk.
pub fn is_memory_full(error: &Error) -> bool {
    matches!(error, Error::Io { kind: std::io::ErrorKind::StorageFull, file, .. } if file == TABLE_MEMORY)
}

impl Outcome {
    /// The house's error for a write that could not be: the store is full, or what was to be written
    /// (`what`, of `size` bytes) is over its `limit`. `None` for every other outcome.
    pub fn failure(self, what: &'static str, size: u64, limit: u64) -> Option<Error> {
        match self {
            Outcome::Full => Some(Error::Io {
                operation: "write to",
                file: TABLE_MEMORY.to_owned(),
                kind: std::io::ErrorKind::StorageFull,
                code: None,
                message: "it is full: delete keys, or make the table with more memory".to_owned(),
            }),
            Outcome::TooLarge => Some(Error::TooLarge { what, size, limit }),
            _ => None,
        }
    }
}

/// How a request went, and what was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answer {
    /// How it went.
    pub outcome: Outcome,
    /// Bytes of the value, in answer to a look-up.
    pub value_len: usize,
    /// What is stored beside the value now.
    pub meta: Meta,
    /// The number after an increment or decrement.
    pub number: u64,
}

impl Answer {
    pub(crate) fn of(outcome: Outcome) -> Self {
        Answer { outcome, ..Answer::default() }
    }
}

/// Where values go.
pub trait Output {
    /// Room for `len` bytes of the value that request number `request` asked for; `None` if there is
    /// none. If a writer comes between, the same request asks again, perhaps for another length: what
    /// was given before is forgotten.
    fn room(&mut self, request: usize, len: usize) -> Option<&mut [u8]>;
}

/// Nowhere: for bursts that look up nothing.
impl Output for () {
    fn room(&mut self, _request: usize, _len: usize) -> Option<&mut [u8]> {
        None
    }
}

/// The value of the one request that is made.
impl Output for Vec<u8> {
    fn room(&mut self, _request: usize, len: usize) -> Option<&mut [u8]> {
        self.resize(len, 0);
        Some(self)
    }
}

/// Values one behind the other in a buffer that is used again and again.
#[derive(Debug, Default)]
pub struct Values {
    bytes: Vec<u8>,
    /// Request, start, length.
    spans: Vec<(usize, usize, usize)>,
}

impl Values {
    /// The value that a request found; empty if it found none.
    pub fn of(&self, request: usize) -> &[u8] {
        let span = self.spans.iter().rev().find(|span| span.0 == request);
        span.map_or(&[], |&(_, start, len)| &self.bytes[start..start + len])
    }

    /// Forgets all values and keeps the memory.
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
