//! Positions of records in a log, with their approximate lengths, and their form in a CL-SSTable.

use siltstone_engine::varint::{read_varint, varint_of_word, write_varint};

/// The position and the approximate length of a log record, in 64 bits:
/// the file offset in the low 40, the length in units of 32 bytes (rounded up) in the high 24.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position(u64);

const OFFSET_BITS: u32 = 40;
const LENGTH_UNIT: u64 = 32;

impl Position {
    pub(crate) fn new(offset: u64, bytes: usize) -> Self {
        // The length only avoids a second read, so one that does not fit may be truncated.
        let units = (bytes as u64).div_ceil(LENGTH_UNIT).min((1 << (64 - OFFSET_BITS)) - 1);
        debug_assert!(offset < 1 << OFFSET_BITS, "a log ends with its memtable, long before 1 TiB");
        Position(units << OFFSET_BITS | offset)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Position(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }

    /// The length of the record in bytes, rounded up; exact only below 512 MiB.
    pub(crate) fn expected_bytes(self) -> u64 {
        (self.0 >> OFFSET_BITS) * LENGTH_UNIT
    }

    /// Appends the position as a CL-SSTable stores it: varints of the offset, the length in units,
    /// and the expiry if the operation has one. Tables of earlier versions leave the expiry out;
    /// the meta block [`LOG_OF_RUN`](crate::version::LOG_OF_RUN) says which form a table has.
    pub(crate) fn encode(self, expires_at: Option<u64>, out: &mut Vec<u8>) {
        write_varint(out, self.offset());
        write_varint(out, self.0 >> OFFSET_BITS);
        if let Some(expires_at) = expires_at {
            write_varint(out, expires_at);
        }
    }

    /// Decodes the result of [`encode`](Position::encode); `None` if it is malformed.
    #[inline]
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, Option<u64>)> {
        match Self::decode_short(bytes) {
            Some(position) => Some((position, None)),
            None => Self::decode_any(bytes),
        }
    }

    /// As [`decode`](Position::decode), for 4 to 8 bytes without an expiry: both varints are in one
    /// word.
    #[inline]
    fn decode_short(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > 8 {
            return None;
        }
        let low = u64::from(u32::from_le_bytes(*bytes.first_chunk()?));
        let high = u64::from(u32::from_le_bytes(*bytes.last_chunk()?));
        let word = low | high << (8 * (bytes.len() - 4));
        let (offset, used) = varint_of_word(word)?;
        let (units, more) = varint_of_word(word.checked_shr(8 * used as u32)?)?;
        let is_whole = used + more == bytes.len() && units < 1 << (64 - OFFSET_BITS);
        (is_whole && offset < 1 << OFFSET_BITS).then_some(Position(units << OFFSET_BITS | offset))
    }

    fn decode_any(mut bytes: &[u8]) -> Option<(Self, Option<u64>)> {
        let mut next = || {
            let (value, used) = read_varint(bytes)?;
            bytes = &bytes[used..];
            Some(value)
        };
        let (offset, units, expires_at) = (next()?, next()?, next());
        let fits = offset < 1 << OFFSET_BITS && units < 1 << (64 - OFFSET_BITS);
        (bytes.is_empty() && fits).then_some((Position(units << OFFSET_BITS | offset), expires_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_survives_encoding() {
        for (offset, bytes) in [(0, 0), (31, 1), (1 << 30, 100), ((1 << 40) - 1, 1 << 29)] {
            let position = Position::new(offset, bytes);
            assert_eq!(position.offset(), offset);
            assert!(position.expected_bytes() + LENGTH_UNIT >= bytes as u64);
            for expires_at in [None, Some(0), Some(u64::MAX)] {
                let mut out = Vec::new();
                position.encode(expires_at, &mut out);
                assert_eq!(Position::decode(&out), Some((position, expires_at)));
                if expires_at.is_none() {
                    assert_eq!(Position::decode(&out[..out.len() - 1]), None);
                } else {
                    out.push(0);
                    assert_eq!(Position::decode(&out), None);
                }
            }
            assert_eq!(Position::from_bits(position.bits()), position);
        }
    }
}
