//! Reads the primitive parts of the format from a stream: numbers, lengths, strings.
//!
//! ```text
//!   length or string
//!   00nnnnnn                      a length of 6 bits
//!   01nnnnnn  n:u8                a length of 14 bits, the upper ones first
//!   80  n:u32                     a length of 32 bits, big-endian
//!   81  n:u64                     a length of 64 bits, big-endian
//!   c0  n:i8                      a string: the decimal number n
//!   c1  n:i16    c2  n:i32        likewise, little-endian
//!   c3  length  length  bytes     a string compressed by LZF: compressed and original length
//! ```
//!
//! A string is a length and as many bytes, or one of the last three forms.
//!
//! Invariant: announced lengths allocate nothing. Memory is allocated as bytes arrive, and each
//! value may take up to a limit ([`Source::begin_value`]).

use std::io::{ErrorKind, Read};

use crate::crc64::crc64;
use crate::error::{Error, Result};
use crate::lzf;

/// Memory per element of a value, besides its bytes.
pub(crate) const ELEMENT_OVERHEAD_BYTES: u64 = 48;
/// Bytes that are allocated before they have arrived.
const MAX_AHEAD_BYTES: usize = 64 << 10;

/// A length, or how a string is encoded.
pub(crate) enum Length {
    Plain(u64),
    Special(u8),
}

/// A stream of bytes with offset, checksum and limit.
#[derive(Debug)]
pub(crate) struct Source<R> {
    input: R,
    offset: u64,
    /// Checksum of all bytes read, if the stream has one at its end.
    crc: Option<u64>,
    /// Limit of a value's memory, in bytes.
    limit: u64,
    /// What is left of it.
    left: u64,
}

impl<R: Read> Source<R> {
    /// A stream whose values may take up to `limit` bytes of memory each.
    pub(crate) fn new(input: R, limit: u64, has_crc: bool) -> Self {
        Source { input, offset: 0, crc: has_crc.then_some(0), limit, left: limit }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Checksum of all bytes read so far.
    pub(crate) fn crc(&self) -> u64 {
        self.crc.unwrap_or(0)
    }

    /// Begins a value, which gets the whole limit.
    pub(crate) fn begin_value(&mut self) {
        self.left = self.limit;
    }

    /// Counts memory of the value.
    pub(crate) fn charge(&mut self, bytes: u64) -> Result<()> {
        let (offset, limit) = (self.offset, self.limit);
        self.left = self.left.checked_sub(bytes).ok_or(Error::TooLarge { offset, limit })?;
        Ok(())
    }

    /// Counts memory of elements in the bytes that were counted as a string.
    pub(crate) fn charge_elements(&mut self, count: usize) -> Result<()> {
        self.charge((count as u64).saturating_mul(ELEMENT_OVERHEAD_BYTES))
    }

    /// Number of elements for which there is memory.
    pub(crate) fn max_elements(&self) -> usize {
        usize::try_from(self.left / ELEMENT_OVERHEAD_BYTES).unwrap_or(usize::MAX)
    }

    /// The error for wrong bytes before the current offset.
    pub(crate) fn malformed(&self, reason: &'static str) -> Error {
        Error::Malformed { offset: self.offset, reason }
    }

    fn fail(&self, error: std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::UnexpectedEof => self.malformed("the input ends here, in a value"),
            _ => Error::Io { offset: self.offset, error },
        }
    }

    fn advance(&mut self, bytes: &[u8]) {
        self.offset += bytes.len() as u64;
        if let Some(crc) = &mut self.crc {
            *crc = crc64(*crc, bytes);
        }
    }

    /// Whether the stream has ended.
    pub(crate) fn is_at_end(&mut self) -> Result<bool> {
        loop {
            match self.input.read(&mut [0]) {
                Ok(count) => return Ok(count == 0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(|error| self.fail(error))?;
        self.advance(&bytes);
        Ok(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u64_le(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Bytes that are part of the value.
    pub(crate) fn bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        self.charge(len)?;
        let mut bytes = Vec::with_capacity(len.min(MAX_AHEAD_BYTES as u64) as usize);
        let read = self.input.by_ref().take(len).read_to_end(&mut bytes);
        read.map_err(|error| self.fail(error))?;
        self.advance(&bytes);
        match bytes.len() as u64 == len {
            true => Ok(bytes),
            false => Err(self.fail(ErrorKind::UnexpectedEof.into())),
        }
    }

    pub(crate) fn length_or_special(&mut self) -> Result<Length> {
        let first = self.byte()?;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Plain(u64::from(first)),
            (1, _) => Length::Plain(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            (2, 0x80) => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
            (2, 0x81) => Length::Plain(u64::from_be_bytes(self.array()?)),
            (3, _) => Length::Special(first & 0x3f),
            _ => return Err(self.malformed("an unknown form of a length")),
        })
    }

    pub(crate) fn length(&mut self) -> Result<u64> {
        match self.length_or_special()? {
            Length::Plain(length) => Ok(length),
            Length::Special(_) => Err(self.malformed("a string in place of a length")),
        }
    }

    /// Number of elements that follow, which is not 0, as Redis has no empty collections.
    pub(crate) fn count(&mut self) -> Result<u64> {
        match self.length()? {
            0 => Err(self.malformed("a collection without elements")),
            count => Ok(count),
        }
    }

    pub(crate) fn string(&mut self) -> Result<Vec<u8>> {
        let number = match self.length_or_special()? {
            Length::Plain(length) => return self.bytes(length),
            Length::Special(0) => i64::from(i8::from_le_bytes(self.array()?)),
            Length::Special(1) => i64::from(i16::from_le_bytes(self.array()?)),
            Length::Special(2) => i64::from(i32::from_le_bytes(self.array()?)),
            Length::Special(3) => {
                let (compressed, len) = (self.length()?, self.length()?);
                self.charge(len)?;
                let bytes = self.bytes(compressed)?;
                // The compressed bytes are released.
                self.left += compressed;
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                return lzf::decompress(&bytes, len).map_err(|reason| self.malformed(reason));
            }
            Length::Special(_) => return Err(self.malformed("an unknown encoding of a string")),
        };
        Ok(number.to_string().into_bytes())
    }

    /// A string that is one element of a collection.
    pub(crate) fn element(&mut self) -> Result<Vec<u8>> {
        self.charge_elements(1)?;
        self.string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(bytes: &[u8], limit: u64) -> Result<Vec<u8>> {
        Source::new(bytes, limit, false).string()
    }

    #[test]
    fn strings_of_all_forms_are_read() {
        for (bytes, expected) in [
            (&b"\x02ab"[..], "ab"),
            (b"\x40\x02ab", "ab"),
            (b"\x80\0\0\0\x02ab", "ab"),
            (b"\x81\0\0\0\0\0\0\0\x02ab", "ab"),
            (b"\xc0\xff", "-1"),
            (b"\xc1\x00\x80", "-32768"),
            (b"\xc2\xff\xff\xff\x7f", "2147483647"),
            (b"\xc3\x05\x05\x01ab\x20\x01", "ababa"),
        ] {
            assert_eq!(string(bytes, 100).unwrap(), expected.as_bytes());
            for cut in 0..bytes.len() {
                let error = string(&bytes[..cut], 100).unwrap_err();
                assert!(matches!(error, Error::Malformed { .. }), "{error}");
            }
        }
        for unknown in [&b"\x82\0\0\0\0"[..], b"\xc4\0", b"\xff"] {
            assert!(string(unknown, 100).is_err());
        }
    }

    #[test]
    fn announced_length_beyond_the_limit_is_refused() {
        for bytes in [&b"\x80\x7f\xff\xff\xff"[..], b"\xc3\x02\x80\x7f\xff\xff\xffab"] {
            let error = string(bytes, 1 << 20).unwrap_err();
            assert!(matches!(error, Error::TooLarge { limit: 0x10_0000, .. }), "{error}");
        }
        // Within the limit, but nothing arrives.
        assert!(string(b"\x80\x7f\xff\xff\xff", u64::MAX).is_err());
    }
}
