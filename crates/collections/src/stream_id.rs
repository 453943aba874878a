//! Ids of the entries of a stream: milliseconds since 1970, and a number within them.

use std::fmt;

/// Bytes of an id in a key.
pub(crate) const ID_BYTES: usize = 16;

/// Id of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The lowest id. No entry has it.
    pub const MIN: Self = StreamId { ms: 0, seq: 0 };
    /// The highest id.
    pub const MAX: Self = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The id that follows, if there is one.
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { ms: self.ms, seq }),
            None => self.ms.checked_add(1).map(|ms| StreamId { ms, seq: 0 }),
        }
    }

    /// The id before this one, if there is one.
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { ms: self.ms, seq }),
            None => self.ms.checked_sub(1).map(|ms| StreamId { ms, seq: u64::MAX }),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; ID_BYTES] {
        ((u128::from(self.ms) << 64) | u128::from(self.seq)).to_be_bytes()
    }

    /// The id at the beginning of bytes of a key.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let id = u128::from_be_bytes(*bytes.first_chunk()?);
        Some(StreamId { ms: (id >> 64) as u64, seq: id as u64 })
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_neighbours_except_at_the_ends() {
        let id = |ms, seq| StreamId { ms, seq };
        for (before, after) in
            [(id(0, 0), id(0, 1)), (id(7, u64::MAX), id(8, 0)), (id(u64::MAX, 3), id(u64::MAX, 4))]
        {
            assert_eq!((before.next(), after.previous()), (Some(after), Some(before)));
            assert!(before.to_bytes() < after.to_bytes());
            assert_eq!(StreamId::from_bytes(&after.to_bytes()), Some(after));
        }
        assert_eq!((StreamId::MIN.previous(), StreamId::MAX.next()), (None, None));
        assert_eq!(id(5, 17).to_string(), "5-17");
    }
}
