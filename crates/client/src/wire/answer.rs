//! An answer in a packet.
//!
//! ```text
//! 0         1     2        4               8
//! outcome   has   opaque   value's bytes   [number]  [expiry   stamp   flags]   value
//! u8        u8    u16      u32             u64       u64       u64     u32
//!
//! has    bit 2: a number, after increment and decrement     bit 3: what is stored beside the value;
//!                                                           an expiry of 0 is none
//! ```
//!
//! | outcome | |
//! | --- | --- |
//! | 0 missing, 1 found, 2 stored, 3 deleted, 4 exists | as [`Outcome`] says |
//! | 5 not a number, 7 full, 8 too large, 10 no stamps | nothing has changed |
//! | 6 no room | the value does not fit in the answer: ask for it with more room |
//! | 9 elsewhere | the keyhash is not the key's, or the port not its partition's: say hello again |
//! | 11 forgotten | a repeated packet whose first answer the server has forgotten: it may have been done |
//!
//! An answer without a value is never larger than its request, unless that asked for what is stored
//! beside.
//!
//! Source: ours; the outcomes are the store's.

use siltstone_mica::{Answer, Meta, Outcome};

use super::{Mistake, take, take_u32, take_u64, u16_at, u32_at};

const FIXED_BYTES: usize = 8;
const NUMBER: u8 = 4;
const META: u8 = 8;
const META_BYTES: usize = 20;

/// How it went, as a packet has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// What the store answered.
    Outcome(Outcome),
    /// The server cannot tell any more: it may have been done, once.
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
    Outcome::Elsewhere,
    Outcome::NoStamps,
];
const FORGOTTEN: u8 = 11;

/// An answer as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard<'a> {
    /// How it went.
    pub told: Told,
    /// What the request brought along.
    pub opaque: u16,
    /// The number after an increment or decrement.
    pub number: u64,
    /// What is stored beside the value, if it was asked for.
    pub meta: Meta,
    /// The value, if it was found.
    pub value: &'a [u8],
}

/// Bytes of an answer, but for a value.
#[inline]
pub fn bytes_of(has_number: bool, has_meta: bool) -> usize {
    FIXED_BYTES + if has_number { 8 } else { 0 } + if has_meta { META_BYTES } else { 0 }
}

/// Writes an answer at the beginning of these bytes; the value behind it, of so many bytes, is there
/// already. Number and meta are written if they are asked for.
///
/// # Panics
/// If there are fewer bytes than [`bytes_of`] says.
pub fn write(
    place: &mut [u8],
    told: Told,
    opaque: u16,
    value_len: usize,
    number: Option<u64>,
    meta: Option<Meta>,
) {
    let code = match told {
        Told::Forgotten => FORGOTTEN,
        Told::Outcome(outcome) => {
            OUTCOMES.iter().position(|known| *known == outcome).unwrap_or_default() as u8
        }
    };
    let has = if number.is_some() { NUMBER } else { 0 } | if meta.is_some() { META } else { 0 };
    place[0] = code;
    place[1] = has;
    place[2..4].copy_from_slice(&opaque.to_le_bytes());
    place[4..8].copy_from_slice(&(value_len as u32).to_le_bytes());
    let mut at = FIXED_BYTES;
    if let Some(number) = number {
        place[at..at + 8].copy_from_slice(&number.to_le_bytes());
        at += 8;
    }
    if let Some(meta) = meta {
        place[at..at + 8].copy_from_slice(&meta.expires_at.unwrap_or(0).to_le_bytes());
        place[at + 8..at + 16].copy_from_slice(&meta.stamp.to_le_bytes());
        place[at + 16..at + 20].copy_from_slice(&meta.flags.to_le_bytes());
    }
}

impl<'a> Heard<'a> {
    /// Takes an answer off the front of a packet's body.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn take(body: &mut &'a [u8]) -> Result<Self, Mistake> {
        let head = take(body, FIXED_BYTES)?;
        let (code, has) = (head[0], head[1]);
        if has & !(NUMBER | META) != 0 {
            return Err(Mistake::Code(has));
        }
        let told = match OUTCOMES.get(usize::from(code)) {
            Some(outcome) => Told::Outcome(*outcome),
            None if code == FORGOTTEN => Told::Forgotten,
            None => return Err(Mistake::Code(code)),
        };
        let number = if has & NUMBER != 0 { take_u64(body)? } else { 0 };
        let mut meta = Meta::default();
        if has & META != 0 {
            let expiry = take_u64(body)?;
            meta.expires_at = (expiry != 0).then_some(expiry);
            meta.stamp = take_u64(body)?;
            meta.flags = take_u32(body)?;
        }
        let value = take(body, u32_at(head, 4) as usize)?;
        Ok(Heard { told, opaque: u16_at(head, 2), number, meta, value })
    }

    /// The answer in the store's words; `None` if the server has forgotten.
    pub fn answer(&self) -> Option<Answer> {
        match self.told {
            Told::Forgotten => None,
            Told::Outcome(outcome) => Some(Answer {
                outcome,
                value_len: self.value.len(),
                meta: self.meta,
                number: self.number,
            }),
        }
    }
}
