//! Intsets: sets of integers, in order.
//!
//! ```text
//!   bytes per integer:u32 (2, 4 or 8)  integers:u32  integers          little-endian
//! ```

use crate::packed::{PackedResult, cut_array};

/// All integers; or more than `max`, if there are more.
pub(crate) fn all(bytes: &[u8], max: usize) -> PackedResult<Vec<i64>> {
    let mut rest = bytes;
    let width = u32::from_le_bytes(cut_array(&mut rest)?) as usize;
    let count = u32::from_le_bytes(cut_array(&mut rest)?) as usize;
    if ![2, 4, 8].contains(&width) || count.checked_mul(width) != Some(rest.len()) {
        return Err("an intset has another length than its header states");
    }
    let integer = |bytes: &[u8]| {
        let mut number = [0; 8];
        number[8 - width..].copy_from_slice(bytes);
        i64::from_le_bytes(number) >> (64 - 8 * width)
    };
    let read = max.saturating_add(1);
    let integers: Vec<_> = rest.chunks_exact(width).take(read).map(integer).collect();
    match integers.is_sorted_by(|a, b| a < b) {
        true => Ok(integers),
        false => Err("an intset is not in order"),
    }
}

/// Encodes integers that are in order.
pub(crate) fn encode(integers: &[i64]) -> Vec<u8> {
    let fits = |bits: u32| {
        let bound = 1_i64 << (bits - 1);
        integers.iter().all(|integer| (-bound..bound).contains(integer))
    };
    let width = if fits(16) {
        2
    } else if fits(32) {
        4
    } else {
        8
    };
    let mut bytes = Vec::with_capacity(8 + integers.len() * width);
    bytes.extend_from_slice(&(width as u32).to_le_bytes());
    bytes.extend_from_slice(&(integers.len() as u32).to_le_bytes());
    for integer in integers {
        bytes.extend_from_slice(&integer.to_le_bytes()[..width]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_all_widths_round_trip() {
        for integers in [
            &[-0x8000, -1, 0, 0x7fff][..],
            &[-0x8000_0000, 0x7fff_ffff],
            &[i64::MIN, -0x8000_0001, i64::MAX],
        ] {
            assert_eq!(all(&encode(integers), 9).unwrap(), integers);
        }
        assert!(all(&encode(&[2, 1]), 9).is_err());
        assert!(all(&encode(&[1, 1]), 9).is_err());
        assert!(all(b"\x02\0\0\0\xff\xff\xff\xff\x01\0", 9).is_err());
        assert!(all(b"\x03\0\0\0\x01\0\0\0\x01\0\0", 9).is_err());
        assert_eq!(all(&encode(&[1, 2, 3, 4, 5]), 2).unwrap().len(), 3);
    }
}
