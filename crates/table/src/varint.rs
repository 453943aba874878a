//! Varints for the inner loops of blocks, at a position in a slice.
//!
//! The encoding is that of `siltstone_engine::varint` (LEB128, 1 to 10 bytes).
//!
//! Invariant: reads no byte out of bounds.

use siltstone_engine::varint::read_long_varint;

/// Decodes the varint at `*at` and advances `at`; `None` if it is truncated or over 64 bits.
#[inline(always)]
pub(crate) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(u64::from(first));
    }
    let (value, used) = read_long_varint(bytes.get(*at..)?)?;
    *at += used;
    Some(value)
}

/// Appends a varint, as `siltstone_engine::varint::write_varint` does, with a fast path for one
/// byte.
#[inline]
pub(crate) fn push_varint(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value as u8);
    } else {
        siltstone_engine::varint::write_varint(out, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_value_round_trips(shift in 0u32..64, low: u64, tail in prop::collection::vec(any::<u8>(), 0..9)) {
            let value = low >> shift;
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            let len = bytes.len();
            bytes.extend(tail);
            let mut at = 0;
            prop_assert_eq!(varint(&bytes, &mut at), Some(value));
            prop_assert_eq!(at, len);
        }
    }
}
