//! Up to which size Redis would store a collection compactly.
//!
//! The rows of a collection are the same at any size; the limits decide only what OBJECT ENCODING
//! returns. They apply to elements that are added: a collection keeps its encoding when they
//! change.

use crate::metadata::Encoding;

/// Sizes of a compact collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactLimit {
    /// Maximum number of elements.
    pub max_count: u64,
    /// Maximum size of an element; of a list, of all elements as Redis would lay them out.
    pub max_bytes: usize,
}

/// Limits by type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodingLimits {
    /// Redis's `hash-max-listpack-entries` and `hash-max-listpack-value`.
    pub hash: CompactLimit,
    /// Redis's `list-max-listpack-size`.
    pub list: CompactLimit,
    /// Redis's `set-max-listpack-entries` and `set-max-listpack-value`.
    pub set: CompactLimit,
    /// Redis's `set-max-intset-entries`.
    pub set_integers: u64,
    /// Redis's `zset-max-listpack-entries` and `zset-max-listpack-value`.
    pub sorted_set: CompactLimit,
}

impl EncodingLimits {
    /// Those of Redis 7.2 with its default options.
    pub const DEFAULT: EncodingLimits = EncodingLimits {
        hash: CompactLimit { max_count: 512, max_bytes: 64 },
        list: CompactLimit { max_count: u64::MAX, max_bytes: 8 << 10 },
        set: CompactLimit { max_count: 128, max_bytes: 64 },
        set_integers: 512,
        sorted_set: CompactLimit { max_count: 128, max_bytes: 64 },
    };

    /// The encoding of a set of `count` members after one was added.
    pub(crate) fn of_set(&self, before: Encoding, count: u64, member: &[u8]) -> Encoding {
        let is_compact = self.set.holds(count, member.len());
        match before {
            Encoding::Integers if is_integer(member) && count <= self.set_integers => before,
            Encoding::Integers | Encoding::Compact if is_compact => Encoding::Compact,
            _ => Encoding::Large,
        }
    }
}

impl Default for EncodingLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl CompactLimit {
    /// Below which a collection becomes compact again, if it may.
    pub(crate) fn half(self) -> Self {
        CompactLimit { max_count: self.max_count / 2, max_bytes: self.max_bytes / 2 }
    }

    /// Whether a collection of `count` elements may have one of `bytes`.
    pub(crate) fn holds(self, count: u64, bytes: usize) -> bool {
        count <= self.max_count && bytes <= self.max_bytes
    }
}

/// Bytes of Redis's compact representation besides its entries: header and end.
pub(crate) const LISTPACK_FRAME_BYTES: usize = 7;

/// Bytes of an element in Redis's compact representation: type and length, the element, and the
/// length again to walk backwards.
pub(crate) fn listpack_entry_bytes(element: &[u8]) -> usize {
    let head = match element.len() {
        ..64 => 1,
        64..4096 => 2,
        _ => 5,
    };
    let tail = match head + element.len() {
        ..128 => 1,
        128..16384 => 2,
        16384..2_097_152 => 3,
        _ => 4,
    };
    head + element.len() + tail
}

/// Whether Redis would store a member as an integer.
fn is_integer(member: &[u8]) -> bool {
    let text = std::str::from_utf8(member).ok();
    // `-0`, `+1` and `01` are strings.
    text.and_then(|text| text.parse::<i64>().ok().filter(|value| value.to_string() == text))
        .is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_above_a_limit_is_not_compact_again() {
        let limits = EncodingLimits { set_integers: 1, ..EncodingLimits::DEFAULT };
        let mut encoding = Encoding::Integers;
        for (member, expected) in [
            (&b"1"[..], Encoding::Integers),
            (b"2", Encoding::Compact),
            (b"3", Encoding::Compact),
            (&[b'x'; 65], Encoding::Large),
            (b"4", Encoding::Large),
        ] {
            encoding = limits.of_set(encoding, 2 - u64::from(member == b"1"), member);
            assert_eq!(encoding, expected, "{member:?}");
        }
    }

    #[test]
    fn set_of_integers_with_leading_zeros_is_not_of_integers() {
        for member in [&b"01"[..], b"-0", b"+1", b"9223372036854775808", b""] {
            let encoding = EncodingLimits::DEFAULT.of_set(Encoding::Integers, 1, member);
            assert_eq!(encoding, Encoding::Compact, "{member:?}");
        }
    }
}
