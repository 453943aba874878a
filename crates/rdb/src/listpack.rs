//! Listpacks: the packed form of small collections since Redis 7, and of the entries of streams.
//!
//! ```text
//!   bytes:u32  elements:u16  entries  ff           little-endian; 65535 elements or more: ffff
//!
//!   entry: code, then its own length, from which the end is found backwards
//!   0nnnnnnn                       the integer n
//!   10llllll  bytes                a string of l bytes
//!   110nnnnn  n:u8                 a signed integer of 13 bits, the upper ones first
//!   1110llll  l:u8  bytes          a string of 12 bits of length, the upper ones first
//!   f0  l:u32  bytes               a string
//!   f1  n:i16    f2  n:i24    f3  n:i32    f4  n:i64
//!
//!   length of the entry: groups of 7 bits, the upper ones first; all but the first byte have
//!   their highest bit set
//! ```

use crate::packed::{Entry, PackedResult, cut, cut_array, i24};
use crate::sink::canonical_integer;

const HEADER_BYTES: usize = 6;
const END: u8 = 0xff;
/// Number of elements that is not stated.
const UNKNOWN_COUNT: usize = 0xffff;

/// Reads the entries of a listpack.
#[derive(Debug)]
pub(crate) struct Listpack<'a> {
    rest: &'a [u8],
}

impl<'a> Listpack<'a> {
    /// Checks header and end.
    pub(crate) fn new(bytes: &'a [u8]) -> PackedResult<Self> {
        let mut rest = bytes;
        let len = u32::from_le_bytes(cut_array(&mut rest)?);
        cut_array::<2>(&mut rest)?;
        if len as usize != bytes.len() {
            return Err("a listpack has another length than its header states");
        }
        let rest = rest.strip_suffix(&[END]).ok_or("a listpack without its end")?;
        Ok(Listpack { rest })
    }

    /// The next entry; `None` at the end.
    pub(crate) fn next(&mut self) -> PackedResult<Option<Entry<'a>>> {
        let before = self.rest.len();
        if before == 0 {
            return Ok(None);
        }
        let rest = &mut self.rest;
        let [code] = cut_array(rest)?;
        let entry = match code {
            0x00..=0x7f => Entry::Int(i64::from(code)),
            0x80..=0xbf => Entry::Bytes(cut(rest, usize::from(code & 0x3f))?),
            0xc0..=0xdf => {
                let [low] = cut_array(rest)?;
                let number = u16::from_be_bytes([code & 0x1f, low]);
                // The sign is the highest of 13 bits.
                Entry::Int(i64::from((number << 3).cast_signed() >> 3))
            }
            0xe0..=0xef => {
                let [low] = cut_array(rest)?;
                let len = u16::from_be_bytes([code & 0x0f, low]);
                Entry::Bytes(cut(rest, usize::from(len))?)
            }
            0xf0 => {
                let len = u32::from_le_bytes(cut_array(rest)?);
                Entry::Bytes(cut(rest, len as usize)?)
            }
            0xf1 => Entry::Int(i64::from(i16::from_le_bytes(cut_array(rest)?))),
            0xf2 => Entry::Int(i24(cut_array(rest)?)),
            0xf3 => Entry::Int(i64::from(i32::from_le_bytes(cut_array(rest)?))),
            0xf4 => Entry::Int(i64::from_le_bytes(cut_array(rest)?)),
            _ => return Err("an unknown entry of a listpack"),
        };
        let (length, bytes) = length_of_entry(before - rest.len());
        match cut(rest, bytes)? == &length[..bytes] {
            true => Ok(Some(entry)),
            false => Err("an entry of a listpack has another length than stated behind it"),
        }
    }

    /// The next entry, of which there must be one.
    pub(crate) fn expect(&mut self) -> PackedResult<Entry<'a>> {
        self.next()?.ok_or("a listpack ends in the middle of an element")
    }
}

/// All entries of a listpack, whose number is checked; or more than `max`, if there are more.
pub(crate) fn all(bytes: &[u8], max: usize) -> PackedResult<Vec<Entry<'_>>> {
    let mut pack = Listpack::new(bytes)?;
    let mut entries = Vec::new();
    while let Some(entry) = pack.next()? {
        entries.push(entry);
        if entries.len() > max {
            return Ok(entries);
        }
    }
    let stated = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
    match stated == UNKNOWN_COUNT || stated == entries.len() {
        true => Ok(entries),
        false => Err("a listpack has another number of elements than its header states"),
    }
}

/// The length of an entry as it is stated behind it, and its number of bytes.
fn length_of_entry(len: usize) -> ([u8; 5], usize) {
    // Redis needs one byte more for the highest length of each size but the first.
    let bytes = match len {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    };
    let mut encoded = [0; 5];
    for (at, byte) in encoded[..bytes].iter_mut().enumerate() {
        let group = (len >> (7 * (bytes - 1 - at))) as u8 & 0x7f;
        *byte = if at == 0 { group } else { group | 0x80 };
    }
    (encoded, bytes)
}

/// Builds a listpack.
#[derive(Debug)]
pub(crate) struct ListpackWriter {
    bytes: Vec<u8>,
    count: usize,
}

impl ListpackWriter {
    pub(crate) fn new() -> Self {
        ListpackWriter { bytes: vec![0; HEADER_BYTES], count: 0 }
    }

    /// Number of bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a string, as an integer if it is one.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if let Some(number) = canonical_integer(bytes) {
            self.push_int(number);
            return;
        }
        let start = self.bytes.len();
        match bytes.len() {
            len @ 0..=0x3f => self.bytes.push(0x80 | len as u8),
            len @ 0x40..=0xfff => {
                self.bytes.extend_from_slice(&(0xe000 | len as u16).to_be_bytes());
            }
            len => {
                self.bytes.push(0xf0);
                self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(bytes);
        self.end(start);
    }

    pub(crate) fn push_int(&mut self, number: i64) {
        let start = self.bytes.len();
        let little = number.to_le_bytes();
        let bytes = match number {
            0..=127 => &[number as u8][..],
            -4096..=4095 => &(0xc000 | (number as u16 & 0x1fff)).to_be_bytes(),
            -0x8000..=0x7fff => &[0xf1, little[0], little[1]],
            -0x80_0000..=0x7f_ffff => &[0xf2, little[0], little[1], little[2]],
            -0x8000_0000..=0x7fff_ffff => &[0xf3, little[0], little[1], little[2], little[3]],
            _ => &[&[0xf4][..], &little].concat(),
        };
        self.bytes.extend_from_slice(bytes);
        self.end(start);
    }

    fn end(&mut self, start: usize) {
        let (length, bytes) = length_of_entry(self.bytes.len() - start);
        self.bytes.extend_from_slice(&length[..bytes]);
        self.count += 1;
    }

    /// The complete listpack.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let (len, count) = (self.bytes.len() as u32, self.count.min(UNKNOWN_COUNT) as u16);
        self.bytes[..4].copy_from_slice(&len.to_le_bytes());
        self.bytes[4..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pack(elements: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = ListpackWriter::new();
        elements.iter().for_each(|element| writer.push(element));
        writer.finish()
    }

    fn unpack(bytes: &[u8]) -> PackedResult<Vec<Vec<u8>>> {
        Ok(all(bytes, usize::MAX)?.into_iter().map(Entry::to_bytes).collect())
    }

    fn element() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            (any::<i64>(), 0..64u32)
                .prop_map(|(number, shift)| (number >> shift).to_string().into_bytes()),
        ]
    }

    proptest! {
        #[test]
        fn elements_round_trip(elements in proptest::collection::vec(element(), 0..40)) {
            prop_assert_eq!(unpack(&pack(&elements)).unwrap(), elements);
        }

        #[test]
        fn damaged_listpack_is_refused_or_read(
            elements in proptest::collection::vec(element(), 1..10),
            damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = pack(&elements);
            for (at, value) in damage {
                let len = bytes.len();
                bytes[usize::from(at) % len] = value;
            }
            let _ = unpack(&bytes);
        }
    }

    #[test]
    fn every_size_of_strings_and_integers_round_trips() {
        let lens = [0, 63, 64, 127, 4095, 4096, 16_381, 16_382, 16_383, 2_097_150, 2_097_151];
        let mut elements: Vec<_> = lens.iter().map(|len| vec![b'x'; *len]).collect();
        for shift in 0..63 {
            for number in [(1 << shift) - 1, 1 << shift, -(1 << shift), -(1 << shift) - 1] {
                elements.push(i64::to_string(&number).into_bytes());
            }
        }
        assert_eq!(unpack(&pack(&elements)).unwrap(), elements);
    }

    #[test]
    fn format_is_that_of_redis() {
        let mut writer = ListpackWriter::new();
        for element in ["a", "5", "-1", "1000", "70000"] {
            writer.push(element.as_bytes());
        }
        let expected =
            b"\x17\0\0\0\x05\0\x81a\x02\x05\x01\xdf\xff\x02\xc3\xe8\x02\xf2\x70\x11\x01\x04\xff";
        assert_eq!(writer.finish(), expected);
    }
}
