//! A response in a packet.
//!
//! ```text
//! 0         1     2        4               8
//! outcome   has   opaque   value's bytes   [number]  [expiry   cas     flags]   value
//! u8        u8    u16      u32             u64       u64       u64     u32
//!
//! has    bit 2: a number, after increment and decrement     bit 3: metadata of the item;
//!                                                           an expiry of 0 is none
//! ```
//!
//! | outcome | |
//! | --- | --- |
//! | 0 missing, 1 found, 2 stored, 3 deleted, 4 exists | see [`Outcome`] |
//! | 5 not a number, 7 full, 8 too large, 10 CAS disabled | nothing was changed |
//! | 6 no room | the value does not fit in the response: retry with a larger limit |
//! | 9 wrong partition | wrong key hash, or wrong port for the partition: repeat the handshake |
//! | 11 forgotten | duplicate of an evicted response: the request may have been executed |
//!
//! A response without a value is never larger than its request, unless the request asked for
//! metadata.

use siltstone_mica::{Answer, Meta, Outcome};

use super::{WireError, take, take_u32, take_u64, u16_at, u32_at};

const FIXED_BYTES: usize = 8;
const NUMBER: u8 = 4;
const META: u8 = 8;
const META_BYTES: usize = 20;

/// Status of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Outcome of the store.
    Outcome(Outcome),
    /// The server no longer has the response; the request was executed once or not at all.
    Forgotten,
}

const OUTCOMES: [Outcome; 11] = [
    Outcome::Missing,
    Outcome::Found,
    Outcome::Stored,
    Outcome::Deleted,
    Outcome::Exists,
    Outcome::NotANumber,
    Outcome::NoRoom,
    Outcome::Full,
    Outcome::TooLarge,
    Outcome::WrongPartition,
    Outcome::CasDisabled,
];
const FORGOTTEN: u8 = 11;

/// A decoded response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseRef<'a> {
    /// Status.
    pub status: Status,
    /// Opaque number of the request.
    pub opaque: u16,
    /// Number after an increment or decrement.
    pub number: u64,
    /// Item metadata, if requested.
    pub meta: Meta,
    /// The value, if found.
    pub value: &'a [u8],
}

/// Size of a response without its value, in bytes.
#[inline]
pub fn bytes_of(has_number: bool, has_meta: bool) -> usize {
    FIXED_BYTES + if has_number { 8 } else { 0 } + if has_meta { META_BYTES } else { 0 }
}

/// Writes a response at the start of `target`; its value of `value_len` bytes is already in place
/// after it. Number and metadata are written if present.
///
/// # Panics
/// If `target` is shorter than [`bytes_of`] returns.
pub fn write(
    target: &mut [u8],
    status: Status,
    opaque: u16,
    value_len: usize,
    number: Option<u64>,
    meta: Option<Meta>,
) {
    let code = match status {
        Status::Forgotten => FORGOTTEN,
        Status::Outcome(outcome) => {
            OUTCOMES.iter().position(|known| *known == outcome).unwrap_or_default() as u8
        }
    };
    let present = if number.is_some() { NUMBER } else { 0 } | if meta.is_some() { META } else { 0 };
    target[0] = code;
    target[1] = present;
    target[2..4].copy_from_slice(&opaque.to_le_bytes());
    target[4..8].copy_from_slice(&(value_len as u32).to_le_bytes());
    let mut at = FIXED_BYTES;
    if let Some(number) = number {
        target[at..at + 8].copy_from_slice(&number.to_le_bytes());
        at += 8;
    }
    if let Some(meta) = meta {
        target[at..at + 8].copy_from_slice(&meta.expires_at.unwrap_or(0).to_le_bytes());
        target[at + 8..at + 16].copy_from_slice(&meta.cas.to_le_bytes());
        target[at + 16..at + 20].copy_from_slice(&meta.flags.to_le_bytes());
    }
}

impl<'a> ResponseRef<'a> {
    /// Decodes a response from the front of a packet's body.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn take(body: &mut &'a [u8]) -> Result<Self, WireError> {
        let head = take(body, FIXED_BYTES)?;
        let (code, present) = (head[0], head[1]);
        if present & !(NUMBER | META) != 0 {
            return Err(WireError::Code(present));
        }
        let status = match OUTCOMES.get(usize::from(code)) {
            Some(outcome) => Status::Outcome(*outcome),
            None if code == FORGOTTEN => Status::Forgotten,
            None => return Err(WireError::Code(code)),
        };
        let number = if present & NUMBER != 0 { take_u64(body)? } else { 0 };
        let mut meta = Meta::default();
        if present & META != 0 {
            let expiry = take_u64(body)?;
            meta.expires_at = (expiry != 0).then_some(expiry);
            meta.cas = take_u64(body)?;
            meta.flags = take_u32(body)?;
        }
        let value = take(body, u32_at(head, 4) as usize)?;
        Ok(ResponseRef { status, opaque: u16_at(head, 2), number, meta, value })
    }

    /// The response in the types of the store; `None` if the server has forgotten it.
    pub fn answer(&self) -> Option<Answer> {
        match self.status {
            Status::Forgotten => None,
            Status::Outcome(outcome) => Some(Answer {
                outcome,
                value_len: self.value.len(),
                meta: self.meta,
                number: self.number,
            }),
        }
    }
}
