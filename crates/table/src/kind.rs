//! Entry kinds of an SSTable.
//!
//! ```text
//! tag := sequence << 3 | kind        a varint in a block
//! ```
//!
//! Kind 4 is in tables of format versions 2 and 4 alone, kind 5 in those of version 4. Kinds 6 and
//! 7 are unused; a reader reports them as corruption, so a new kind needs a new format version of
//! the SSTable.
//!
//! Invariant: a sequence number fits in 61 bits.

/// The largest sequence number: 2⁶¹ − 1.
pub const MAX_SEQUENCE: u64 = (1 << 61) - 1;

/// Validates a decoded sequence number.
///
/// # Errors
/// A message if it exceeds [`MAX_SEQUENCE`].
pub fn check_sequence(sequence: u64) -> Result<u64, String> {
    if sequence <= MAX_SEQUENCE { Ok(sequence) } else { Err("sequence number out of range".into()) }
}

/// The effect of an entry on its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key has no value from this sequence number on.
    Delete = 0,
    /// The key has this value.
    Put = 1,
    /// The key has this value until it expires.
    PutExpiring = 2,
    /// The value is the position of the operation in a log (TRIAD's CL-SSTable).
    Position = 3,
    /// An operand is merged into the value that the key had before.
    Merge = 4,
    /// The value is a reference to the key's value in another file (key-value separation).
    Reference = 5,
}

impl Kind {
    /// The kind of a tag's low three bits.
    #[inline]
    pub fn from_bits(bits: u8) -> Option<Kind> {
        Some(match bits {
            0 => Kind::Delete,
            1 => Kind::Put,
            2 => Kind::PutExpiring,
            3 => Kind::Position,
            4 => Kind::Merge,
            5 => Kind::Reference,
            _ => return None,
        })
    }

    /// Whether entries of this kind store [`expires_at`](EntryRef::expires_at).
    #[inline]
    pub fn stores_expiry(self) -> bool {
        matches!(self, Kind::PutExpiring | Kind::Merge)
    }
}

/// One version of a key, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The user's key.
    pub key: &'a [u8],
    /// Its position in the keyspace's write order; at most [`MAX_SEQUENCE`].
    pub sequence: u64,
    /// Its effect.
    pub kind: Kind,
    /// Of the kind `PutExpiring` the expiry time, in milliseconds since 1970. Of `Merge` the number
    /// of older sequence numbers whose operands are in this one. Else 0.
    pub expires_at: u64,
    /// The value; empty for a delete.
    pub value: &'a [u8],
}

/// The order of entries: keys ascending bytewise, then versions newest first.
#[inline]
pub fn compare(a: (&[u8], u64), b: (&[u8], u64)) -> std::cmp::Ordering {
    a.0.cmp(b.0).then(b.1.cmp(&a.1))
}
