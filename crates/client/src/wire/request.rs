//! A request in a packet.
//!
//! ```text
//! 0           1      2             4               6        8         16
//! operation   has    key's bytes   value's bytes   opaque   keyhash   [number] [expiry] [flags]  key  value
//! u8          u8     u16           u16             u16      u64       u64      u64      u32
//!
//! has    bit 0: an expiry, in milliseconds since 1970     bit 2: a number
//!        bit 1: the client's flags                        bit 3: the response includes expiry, cas, flags
//! ```
//!
//! | operation | number | value |
//! | --- | --- | --- |
//! | 1 get | | |
//! | 2 put, 3 add, 4 replace | | the value |
//! | 5 compare-and-set | the CAS version | the value |
//! | 6 delete | the CAS version, or none | |
//! | 7 append, 8 prepend | | what to add |
//! | 9 increment, 10 decrement | by how much | |
//! | 11 touch | | |
//!
//! A number, an expiry or a value where the table has none is an error. The opaque number is
//! returned with the response. A get with a key of 8 bytes takes 24 bytes, a put of 8 + 8 bytes 32.
//!
//! Source: Lim, thesis, section 5.3.2: the client sends the key hash along; the prototype's header
//! has 24 bytes.

use siltstone_mica::{Action, Request, Value};

use super::{WireError, take, take_u32, take_u64, u16_at, u64_at};

/// Size of the fixed part of a request, in bytes.
pub const FIXED_BYTES: usize = 16;

const EXPIRY: u8 = 1;
const FLAGS: u8 = 2;
const NUMBER: u8 = 4;
const WANTS_META: u8 = 8;

/// A decoded request, with its protocol fields.
#[derive(Debug, Clone, Copy)]
pub struct RequestRef<'a> {
    /// Operation of the store.
    pub request: Request<'a>,
    /// Opaque number, returned with the response.
    pub opaque: u16,
    /// Whether the response includes the item's metadata.
    pub wants_meta: bool,
}

/// Code of an operation.
fn code(action: &Action<'_>) -> u8 {
    match action {
        Action::Get => 1,
        Action::Put(_) => 2,
        Action::Add(_) => 3,
        Action::Replace(_) => 4,
        Action::CompareAndSet(..) => 5,
        Action::Delete(_) => 6,
        Action::Append(_) => 7,
        Action::Prepend(_) => 8,
        Action::Increment(_) => 9,
        Action::Decrement(_) => 10,
        Action::Touch(_) => 11,
    }
}

/// Fields of an operation: number, expiry, flags, bytes.
fn parts<'a>(action: &Action<'a>) -> (Option<u64>, Option<u64>, u32, &'a [u8]) {
    match *action {
        Action::Get => (None, None, 0, &[]),
        Action::Put(value) | Action::Add(value) | Action::Replace(value) => {
            (None, value.expires_at, value.flags, value.bytes)
        }
        Action::CompareAndSet(value, cas) => {
            (Some(cas), value.expires_at, value.flags, value.bytes)
        }
        Action::Delete(cas) => (cas, None, 0, &[]),
        Action::Append(bytes) | Action::Prepend(bytes) => (None, None, 0, bytes),
        Action::Increment(by) | Action::Decrement(by) => (Some(by), None, 0, &[]),
        Action::Touch(expires_at) => (None, expires_at, 0, &[]),
    }
}

/// Encoded size of a request, in bytes.
pub fn bytes_of(key: &[u8], action: &Action<'_>) -> usize {
    let (number, expiry, flags, value) = parts(action);
    let optional = 8 * usize::from(number.is_some())
        + 8 * usize::from(expiry.is_some())
        + 4 * usize::from(flags != 0);
    FIXED_BYTES + optional + key.len() + value.len()
}

impl<'a> RequestRef<'a> {
    /// Appends the request to a packet.
    ///
    /// # Panics
    /// If key or value are longer than 65,535 bytes.
    #[inline]
    pub fn write(&self, packet: &mut Vec<u8>) {
        let Request { hash, key, action } = &self.request;
        let (number, expiry, flags, value) = parts(action);
        let short = |len: usize| u16::try_from(len).expect("no longer than a packet").to_le_bytes();
        let mut present = 0;
        for (is_there, bit) in [
            (expiry.is_some(), EXPIRY),
            (flags != 0, FLAGS),
            (number.is_some(), NUMBER),
            (self.wants_meta, WANTS_META),
        ] {
            present |= if is_there { bit } else { 0 };
        }
        let mut head = [0; FIXED_BYTES];
        (head[0], head[1]) = (code(action), present);
        head[2..4].copy_from_slice(&short(key.len()));
        head[4..6].copy_from_slice(&short(value.len()));
        head[6..8].copy_from_slice(&self.opaque.to_le_bytes());
        head[8..].copy_from_slice(&hash.to_le_bytes());
        packet.extend_from_slice(&head);
        if let Some(number) = number {
            packet.extend_from_slice(&number.to_le_bytes());
        }
        if let Some(expiry) = expiry {
            packet.extend_from_slice(&expiry.to_le_bytes());
        }
        if flags != 0 {
            packet.extend_from_slice(&flags.to_le_bytes());
        }
        packet.extend_from_slice(key);
        packet.extend_from_slice(value);
    }

    /// Decodes a request from the front of a packet's body.
    ///
    /// # Errors
    /// If it is malformed.
    #[inline]
    pub fn take(body: &mut &'a [u8]) -> Result<Self, WireError> {
        let head = take(body, FIXED_BYTES)?;
        let (code, present) = (head[0], head[1]);
        if present & !(EXPIRY | FLAGS | NUMBER | WANTS_META) != 0 {
            return Err(WireError::Code(present));
        }
        let number = if present & NUMBER != 0 { Some(take_u64(body)?) } else { None };
        let expires_at = if present & EXPIRY != 0 { Some(take_u64(body)?) } else { None };
        let flags = if present & FLAGS != 0 { take_u32(body)? } else { 0 };
        let key = take(body, u16_at(head, 2).into())?;
        let bytes = take(body, u16_at(head, 4).into())?;
        let value = Value { bytes, expires_at, flags, marks: 0 };
        let has_value = |action: Action<'a>| match number {
            None => Ok(action),
            Some(_) => Err(WireError::Body),
        };
        let bare = |action: Action<'a>| match bytes.is_empty() && present & (EXPIRY | FLAGS) == 0 {
            true => Ok(action),
            false => Err(WireError::Body),
        };
        let needed = number.ok_or(WireError::Body);
        let action = match code {
            1 if number.is_none() => bare(Action::Get)?,
            2 => has_value(Action::Put(value))?,
            3 => has_value(Action::Add(value))?,
            4 => has_value(Action::Replace(value))?,
            5 => Action::CompareAndSet(value, needed?),
            6 => bare(Action::Delete(number))?,
            7 | 8 if present & (EXPIRY | FLAGS | NUMBER) != 0 => return Err(WireError::Body),
            7 => Action::Append(bytes),
            8 => Action::Prepend(bytes),
            9 => bare(Action::Increment(needed?))?,
            10 => bare(Action::Decrement(needed?))?,
            11 if bytes.is_empty() && present & (FLAGS | NUMBER) == 0 => Action::Touch(expires_at),
            1 | 11 => return Err(WireError::Body),
            other => return Err(WireError::Code(other)),
        };
        let request = Request { hash: u64_at(head, 8), key, action };
        Ok(RequestRef { request, opaque: u16_at(head, 6), wants_meta: present & WANTS_META != 0 })
    }

    /// Size of the response without a value, in bytes.
    #[inline]
    pub fn answer_bytes(&self) -> usize {
        super::response::bytes_of(self.has_number(), self.wants_meta)
    }

    /// Whether the response has a number.
    #[inline]
    pub fn has_number(&self) -> bool {
        matches!(self.request.action, Action::Increment(_) | Action::Decrement(_))
    }
}
