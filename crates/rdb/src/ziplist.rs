//! Ziplists: the packed form of small collections up to Redis 6.2.
//!
//! ```text
//!   bytes:u32  tail:u32  elements:u16  entries  ff      little-endian; ffff: 65535 or more
//!
//!   entry: length of the entry before (n:u8 below fe, or fe n:u32), then
//!   00llllll  bytes                a string of l bytes
//!   01llllll  l:u8  bytes          a string of 14 bits of length, the upper ones first
//!   80  l:u32  bytes               a string; the length is big-endian
//!   c0  n:i16   d0  n:i32   e0  n:i64   f0  n:i24   fe  n:i8
//!   1111nnnn                       the integer n - 1, for n from 1 to 13
//! ```
//!
//! Lengths of entries before are not checked: nothing is read backwards.

use crate::packed::{Entry, PackedResult, cut, cut_array, i24};

const END: u8 = 0xff;
/// Number of elements that is not stated.
const UNKNOWN_COUNT: usize = 0xffff;

/// All entries of a ziplist; or more than `max`, if there are more.
pub(crate) fn all(bytes: &[u8], max: usize) -> PackedResult<Vec<Entry<'_>>> {
    let mut rest = bytes;
    let len = u32::from_le_bytes(cut_array(&mut rest)?);
    cut_array::<4>(&mut rest)?;
    let count = usize::from(u16::from_le_bytes(cut_array(&mut rest)?));
    if len as usize != bytes.len() {
        return Err("a ziplist has another length than its header states");
    }
    let mut rest = rest.strip_suffix(&[END]).ok_or("a ziplist without its end")?;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        entries.push(entry(&mut rest)?);
        if entries.len() > max {
            return Ok(entries);
        }
    }
    if count != UNKNOWN_COUNT && count != entries.len() {
        return Err("a ziplist has another number of elements than its header states");
    }
    Ok(entries)
}

fn entry<'a>(rest: &mut &'a [u8]) -> PackedResult<Entry<'a>> {
    if cut_array(rest)? == [0xfe_u8] {
        cut_array::<4>(rest)?;
    }
    let [code] = cut_array(rest)?;
    let len = match code {
        0x00..=0x3f => usize::from(code),
        0x40..=0x7f => usize::from(u16::from_be_bytes([code & 0x3f, cut_array::<1>(rest)?[0]])),
        0x80 => u32::from_be_bytes(cut_array(rest)?) as usize,
        _ => {
            return Ok(Entry::Int(match code {
                0xc0 => i64::from(i16::from_le_bytes(cut_array(rest)?)),
                0xd0 => i64::from(i32::from_le_bytes(cut_array(rest)?)),
                0xe0 => i64::from_le_bytes(cut_array(rest)?),
                0xf0 => i24(cut_array(rest)?),
                0xfe => i64::from(i8::from_le_bytes(cut_array(rest)?)),
                0xf1..=0xfd => i64::from(code & 0x0f) - 1,
                _ => return Err("an unknown entry of a ziplist"),
            }));
        }
    };
    Ok(Entry::Bytes(cut(rest, len)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_all_forms_are_read() {
        let long = [b'x'; 300];
        let entries: [&[u8]; 9] = [
            b"\x00\x02ab",
            &[&b"\x04\x41\x2c"[..], &long].concat(),
            &[&b"\xfe\x2f\x01\0\0\x80\0\0\x01\x2c"[..], &long].concat(),
            b"\xfe\x36\x01\0\0\xc0\xfe\xff",
            b"\x08\xd0\x00\x00\x00\x80",
            b"\x06\xe0\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\x0a\xf0\xff\xff\xff",
            b"\x05\xfe\x80",
            b"\x03\xf1",
        ];
        let body = entries.concat();
        let mut bytes = (body.len() as u32 + 11).to_le_bytes().to_vec();
        bytes.extend_from_slice(b"\0\0\0\0\x09\0");
        bytes.extend_from_slice(&body);
        bytes.push(END);
        let expected = [
            Entry::Bytes(b"ab"),
            Entry::Bytes(&long),
            Entry::Bytes(&long),
            Entry::Int(-2),
            Entry::Int(i64::from(i32::MIN)),
            Entry::Int(i64::MAX),
            Entry::Int(-1),
            Entry::Int(-128),
            Entry::Int(0),
        ];
        assert_eq!(all(&bytes, 100).unwrap(), expected);
        for cut in 0..bytes.len() {
            assert!(all(&bytes[..cut], 100).is_err(), "{cut}");
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xbf, 0xfe, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let _ = all(&damaged, 100);
            }
        }
    }
}
