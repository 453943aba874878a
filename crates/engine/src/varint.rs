//! Varints: integers in LEB128, the low seven bits first, 1 to 10 bytes.

/// Appends `value` as a LEB128 varint of 1 to 10 bytes.
pub fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a LEB128 varint and its length in bytes; `None` if it is cut off or over 64 bits.
pub fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
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
}
