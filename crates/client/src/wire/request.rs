//! A request in a packet.
//!
//! ```text
//! 0           1      2             4               6        8         16
//! operation   has    key's bytes   value's bytes   opaque   keyhash   [number] [expiry] [flags]  key  value
//! u8          u8     u16           u16             u16      u64       u64      u64      u32
//!
//! has    bit 0: an expiry, in milliseconds since 1970     bit 2: a number
//!        bit 1: the client's flags                        bit 3: the answer shall tell expiry, stamp, flags
//! ```
//!
//! | operation | number | value |
//! | --- | --- | --- |
//! | 1 get | | |
//! | 2 put, 3 add, 4 replace | | the value |
//! | 5 compare-and-set | the stamp | the value |
//! | 6 delete | the stamp, or none | |
//! | 7 append, 8 prepend | | what to add |
//! | 9 increment, 10 decrement | by how much | |
//! | 11 touch | | |
//!
//! A number, an expiry or a value where the table has none is a mistake. The opaque number comes back
//! with the answer. A get of 8 bytes takes 24 bytes, a put of 8 + 8 bytes 32.
//!
//! Source: thesis, section 5.3.2: the client sends the keyhash along, which its prototype has in a
//! header of 24 bytes.

use siltstone_mica::{Action, Request, Value};

use super::{Mistake, take, take_u32, take_u64, u16_at, u64_at};

/// Bytes of a request before what it may have.
pub const FIXED_BYTES: usize = 16;

const EXPIRY: u8 = 1;
const FLAGS: u8 = 2;
const NUMBER: u8 = 4;
const WANTS_META: u8 = 8;

/// A request, and what of it is not the store's.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// What is asked.
    pub request: Request<'a>,
    /// What comes back with the answer.
    pub opaque: u16,
    /// Whether the answer shall tell what is stored beside the value.
    pub wants_meta: bool,
}

/// The code of an operation.
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

/// The parts of an operation: number, expiry, flags, bytes.
fn parts<'a>(action: &Action<'a>) -> (Option<u64>, Option<u64>, u32, &'a [u8]) {
    match *action {
        Action::Get => (None, None, 0, &[]),
        Action::Put(value) | Action::Add(value) | Action::Replace(value) => {
            (None, value.expires_at, value.flags, value.bytes)
        }
        Action::CompareAndSet(value, stamp) => {
            (Some(stamp), value.expires_at, value.flags, value.bytes)
        }
        Action::Delete(stamp) => (stamp, None, 0, &[]),
        Action::Append(bytes) | Action::Prepend(bytes) => (None, None, 0, bytes),
        Action::Increment(by) | Action::Decrement(by) => (Some(by), None, 0, &[]),
        Action::Touch(expires_at) => (None, expires_at, 0, &[]),
    }
}

/// Bytes that a request takes in a packet.
pub fn bytes_of(key: &[u8], action: &Action<'_>) -> usize {
    let (number, expiry, flags, value) = parts(action);
    let optional = 8 * usize::from(number.is_some())
        + 8 * usize::from(expiry.is_some())
        + 4 * usize::from(flags != 0);
    FIXED_BYTES + optional + key.len() + value.len()
}

impl<'a> Asked<'a> {
    /// Writes it behind a packet.
    ///
    /// # Panics
    /// If key or value are longer than a packet can say (65,535 bytes).
    #[inline]
    pub fn write(&self, packet: &mut Vec<u8>) {
        let Request { hash, key, action } = &self.request;
        let (number, expiry, flags, value) = parts(action);
        let short = |len: usize| u16::try_from(len).expect("no longer than a packet").to_le_bytes();
        let mut has = 0;
        for (is_there, bit) in [
            (expiry.is_some(), EXPIRY),
            (flags != 0, FLAGS),
            (number.is_some(), NUMBER),
            (self.wants_meta, WANTS_META),
        ] {
            has |= if is_there { bit } else { 0 };
        }
        let mut head = [0; FIXED_BYTES];
        (head[0], head[1]) = (code(action), has);
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

    /// Takes a request off the front of a packet's body.
    ///
    /// # Errors
    /// What is wrong with it.
    #[inline]
    pub fn take(body: &mut &'a [u8]) -> Result<Self, Mistake> {
        let head = take(body, FIXED_BYTES)?;
        let (code, has) = (head[0], head[1]);
        if has & !(EXPIRY | FLAGS | NUMBER | WANTS_META) != 0 {
            return Err(Mistake::Code(has));
        }
        let number = if has & NUMBER != 0 { Some(take_u64(body)?) } else { None };
        let expires_at = if has & EXPIRY != 0 { Some(take_u64(body)?) } else { None };
        let flags = if has & FLAGS != 0 { take_u32(body)? } else { 0 };
        let key = take(body, u16_at(head, 2).into())?;
        let bytes = take(body, u16_at(head, 4).into())?;
        let value = Value { bytes, expires_at, flags, marks: 0 };
        let has_value = |action: Action<'a>| match number {
            None => Ok(action),
            Some(_) => Err(Mistake::Body),
        };
        let bare = |action: Action<'a>| match bytes.is_empty() && has & (EXPIRY | FLAGS) == 0 {
            true => Ok(action),
            false => Err(Mistake::Body),
        };
        let needed = number.ok_or(Mistake::Body);
        let action = match code {
            1 if number.is_none() => bare(Action::Get)?,
            2 => has_value(Action::Put(value))?,
            3 => has_value(Action::Add(value))?,
            4 => has_value(Action::Replace(value))?,
            5 => Action::CompareAndSet(value, needed?),
            6 => bare(Action::Delete(number))?,
            7 | 8 if has & (EXPIRY | FLAGS | NUMBER) != 0 => return Err(Mistake::Body),
            7 => Action::Append(bytes),
            8 => Action::Prepend(bytes),
            9 => bare(Action::Increment(needed?))?,
            10 => bare(Action::Decrement(needed?))?,
            11 if bytes.is_empty() && has & (FLAGS | NUMBER) == 0 => Action::Touch(expires_at),
            1 | 11 => return Err(Mistake::Body),
            other => return Err(Mistake::Code(other)),
        };
        let request = Request { hash: u64_at(head, 8), key, action };
        Ok(Asked { request, opaque: u16_at(head, 6), wants_meta: has & WANTS_META != 0 })
    }

    /// Bytes of the answer, but for a value.
    #[inline]
    pub fn answer_bytes(&self) -> usize {
        super::answer::bytes_of(self.has_number(), self.wants_meta)
    }

    /// Whether the answer has a number.
    #[inline]
    pub fn has_number(&self) -> bool {
        matches!(self.request.action, Action::Increment(_) | Action::Decrement(_))
    }
}
