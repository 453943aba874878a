//! Zipmaps: the packed form of small hashes in Redis 2.4.
//!
//! ```text
//!   fields:u8  (length field  length unused:u8 value  unused bytes)*  ff
//!
//!   length: n:u8 below fe, or fe n:u32, little-endian
//! ```

use crate::packed::{Entry, PackedResult, cut, cut_array};

const LONG: u8 = 0xfe;
const END: u8 = 0xff;

/// Fields and values, one after the other; or more than `max`, if there are more.
pub(crate) fn all(bytes: &[u8], max: usize) -> PackedResult<Vec<Entry<'_>>> {
    let mut rest = bytes;
    cut_array::<1>(&mut rest)?;
    let mut elements = Vec::new();
    loop {
        let [first] = cut_array(&mut rest)?;
        if first == END {
            break;
        }
        let len = length(first, &mut rest)?;
        elements.push(Entry::Bytes(cut(&mut rest, len)?));
        let [first] = cut_array(&mut rest)?;
        let len = length(first, &mut rest)?;
        let [unused] = cut_array(&mut rest)?;
        elements.push(Entry::Bytes(cut(&mut rest, len)?));
        if elements.len() > max {
            return Ok(elements);
        }
        cut(&mut rest, usize::from(unused))?;
    }
    if rest.is_empty() { Ok(elements) } else { Err("bytes follow the end of a zipmap") }
}

fn length(first: u8, rest: &mut &[u8]) -> PackedResult<usize> {
    match first {
        LONG => Ok(u32::from_le_bytes(cut_array(rest)?) as usize),
        END => Err("a zipmap ends in the middle of an element"),
        len => Ok(usize::from(len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_values_are_read() {
        let bytes = b"\x02\x01a\x02\x01xy?\xfe\x01\0\0\0b\x00\x00\xff";
        assert_eq!(all(bytes, 9).unwrap(), [&b"a"[..], b"xy", b"b", b""].map(Entry::Bytes));
        for cut in 0..bytes.len() {
            assert!(all(&bytes[..cut], 9).is_err(), "{cut}");
        }
        assert!(all(b"\x00\xff\x00", 9).is_err());
    }
}
