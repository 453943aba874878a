//! Varints: integers in LEB128, the low seven bits first, 1 to 10 bytes.
//!
//! A varint of one byte is read by one comparison. One of up to eight bytes is read by one load and
//! three shift-and-mask steps, which close the gaps of the continuation bits in parallel.

/// Appends `value` as a LEB128 varint of 1 to 10 bytes.
pub fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a LEB128 varint and its length in bytes; `None` if it is cut off or over 64 bits.
#[inline]
pub fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    match *bytes.first()? {
        first @ 0..0x80 => Some((u64::from(first), 1)),
        _ => read_long_varint(bytes),
    }
}

/// As [`read_varint`], best for one of more than one byte: reads up to 8 bytes from one word, if
/// there is one.
#[inline]
pub fn read_long_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    if let Some(word) = bytes.first_chunk::<8>()
        && let Some(found) = varint_of_word(u64::from_le_bytes(*word))
    {
        return Some(found);
    }
    read_by_byte(bytes)
}

/// Reads the varint in the low bytes of `word`, and its length in bytes; `None` if it does not end
/// there.
#[inline]
pub fn varint_of_word(word: u64) -> Option<(u64, usize)> {
    let stops = !word & 0x8080_8080_8080_8080;
    if stops == 0 {
        return None;
    }
    let used = stops.trailing_zeros() / 8 + 1;
    let value = pack_low_bits(word & (u64::MAX >> (64 - 8 * used)));
    Some((value, used as usize))
}

/// Concatenates the low seven bits of each byte.
#[inline]
fn pack_low_bits(x: u64) -> u64 {
    let x = (x & 0x007f_007f_007f_007f) | ((x & 0x7f00_7f00_7f00_7f00) >> 1);
    let x = (x & 0x0000_3fff_0000_3fff) | ((x & 0x3fff_0000_3fff_0000) >> 2);
    (x & 0x0000_0000_0fff_ffff) | ((x & 0x0fff_ffff_0000_0000) >> 4)
}

fn read_by_byte(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(10).enumerate() {
        if i == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Some((value, i + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_width() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, u64::MAX >> shift] {
                let mut out = Vec::new();
                write_varint(&mut out, value);
                assert_eq!(read_varint(&out), Some((value, out.len())));
                assert_eq!(read_varint(&out[..out.len() - 1]), None);
            }
        }
        assert_eq!(read_varint(&[0xff; 11]), None);
    }

    #[test]
    fn reading_a_word_agrees_with_reading_bytes() {
        // Varints of every length, some with zeros at their end, before 0 to 8 more bytes.
        for used in 1..=11 {
            for (fill, last) in [(0xff, 0x01), (0x80, 0x00), (0xd5, 0x2a), (0xff, 0x7f)] {
                let mut bytes = vec![fill; used - 1];
                bytes.push(last);
                for _ in 0..=8 {
                    assert_eq!(read_varint(&bytes), read_by_byte(&bytes), "{bytes:x?}");
                    bytes.push(0x9c);
                }
            }
        }
    }
}
