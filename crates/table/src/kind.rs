//! What an entry of a sorted table is.
//!
//! ```text
//! tag := sequence << 3 | kind        a varint in a block
//! ```
//!
//! Kinds 4 to 7 are free; a reader that meets one reports corruption, so a new kind needs a new
//! format version of the table.
//!
//! Invariant: a sequence number fits in 61 bits.

/// The largest sequence number: 2⁶¹ − 1.
pub const MAX_SEQUENCE: u64 = (1 << 61) - 1;

/// A sequence number that was read, if it can be one.
///
/// # Errors
/// What is wrong with it.
pub fn in_range(sequence: u64) -> Result<u64, String> {
    if sequence <= MAX_SEQUENCE { Ok(sequence) } else { Err("sequence number out of range".into()) }
}

/// What an entry says of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key maps to nothing from this sequence number on.
    Delete = 0,
    /// The key maps to the value.
    Put = 1,
    /// The key maps to the value until it expires.
    PutExpiring = 2,
    /// The value is a position in a log, where the operation itself stands (TRIAD's CL-SSTable).
    Position = 3,
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
            _ => return None,
        })
    }
}

/// One version of a key, borrowed from where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The user's key.
    pub key: &'a [u8],
    /// When it was written, in the table's order of writes; at most [`MAX_SEQUENCE`].
    pub sequence: u64,
    /// What it says of the key.
    pub kind: Kind,
    /// When it expires, in milliseconds since 1970; 0 unless the kind is `PutExpiring`.
    pub expires_at: u64,
    /// The value; empty for a delete.
    pub value: &'a [u8],
}

/// The order of entries: keys ascending bytewise, of one key the newest version first.
#[inline]
pub fn compare(a: (&[u8], u64), b: (&[u8], u64)) -> std::cmp::Ordering {
    a.0.cmp(b.0).then(b.1.cmp(&a.1))
}
