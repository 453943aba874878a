//! Fast varint decoding for the inner loops of blocks.
//!
//! The encoding is that of `siltstone_engine::batch` (LEB128, 1 to 10 bytes). A one-byte varint
//! takes one comparison; one of up to eight bytes takes a single load and three shift-and-mask
//! steps that close the gaps of the continuation bits in parallel, without a loop.
//!
//! Invariant: decoding agrees with `read_varint` on every input and reads no byte out of bounds.

use siltstone_engine::varint::read_varint;

/// Decodes the varint at `*at` and advances `at`; `None` if it is truncated or over 64 bits.
#[inline(always)]
pub(crate) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(u64::from(first));
    }
    long_varint(bytes, at)
}

#[inline]
fn long_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    if let Some(word) = bytes.get(*at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*word);
        let stops = !word & 0x8080_8080_8080_8080;
        if stops != 0 {
            let used = stops.trailing_zeros() / 8 + 1;
            *at += used as usize;
            return Some(pack_low_bits(word & (u64::MAX >> (64 - 8 * used))));
        }
    }
    let (value, used) = read_varint(bytes.get(*at..)?)?;
    *at += used;
    Some(value)
}

/// Concatenates the low seven bits of each byte.
#[inline]
fn pack_low_bits(x: u64) -> u64 {
    let x = (x & 0x007f_007f_007f_007f) | ((x & 0x7f00_7f00_7f00_7f00) >> 1);
    let x = (x & 0x0000_3fff_0000_3fff) | ((x & 0x3fff_0000_3fff_0000) >> 2);
    (x & 0x0000_0000_0fff_ffff) | ((x & 0x0fff_ffff_0000_0000) >> 4)
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
        fn fast_decoding_agrees_with_plain_loop(bytes in prop::collection::vec(any::<u8>(), 0..14)) {
            let mut at = 0;
            let fast = varint(&bytes, &mut at).map(|value| (value, at));
            prop_assert_eq!(fast, read_varint(&bytes));
        }

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
