//! Record log format.
//!
//! A log consists of blocks of 32 KiB, so that a reader can resynchronize after damage. All
//! integers are little endian.
//!
//! ```text
// ANCHOR: layout
//! log      := block*  [seal block]
//! block    := header  fragment*  zeros                      32,768 bytes, the last may be shorter
//! header   := crc32c:u32  magic:"SLG"  version:u8  log number:u64  synced_to:u64         24 bytes
//! fragment := crc32c:u32  len:u16  type:u8  payload[len]                            7 + len bytes
//!   type & 0x7f   1 = full record   2 = first   3 = middle   4 = last fragment of one   5 = seal
//!   type & 0x80   PREV_SYNCED: all before this fragment's *record* was durable when it was written
//! seal block := header  fragment of type 5, payload = data_end:u64  records:u64
//!               end of file, or zeros if the power failed during sealing
// ANCHOR_END: layout
//! ```
//!
//! `synced_to` is the length of the file known to be durable when the block was started. A fragment
//! never starts in the last 7 bytes of a block; those are zeros. `data_end` is the end of the last
//! record; the gap up to the seal block is zeros.
//!
//! A header's checksum covers the log number, the header's offset in the file, and the header from
//! the magic on; a fragment's covers the log number, its offset, len, type and payload. Bytes from
//! another file or offset therefore fail it.
//!
//! A reader rejects a log whose header has a newer version. Type 0 never occurs, so unwritten space
//! (zeros) is never taken for a record.
//!
//! Source: the blocks and fragments of LevelDB's log; `synced_to`, PREV_SYNCED and the seal are
//! additions, to distinguish a torn tail from corruption.

use crate::FileSum;

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: u64 = 32 << 10;
/// Bytes of a block header.
pub(crate) const HEADER_BYTES: u64 = 24;
/// Bytes of a fragment header.
pub(crate) const FRAGMENT_HEADER_BYTES: u64 = 7;
/// Type flag: everything before the record is durable.
pub(crate) const PREV_SYNCED: u8 = 0x80;
/// Bytes of the seal's payload.
pub(crate) const SEAL_BYTES: u64 = 16;

const MAGIC: [u8; 3] = *b"SLG";
const VERSION: u8 = 1;

/// The part of a record that a fragment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Part {
    Full = 1,
    First = 2,
    Middle = 3,
    Last = 4,
    Seal = 5,
}

impl Part {
    /// The part of a fragment that is the first or not, the last or not, of its record.
    pub(crate) fn of(first: bool, last: bool) -> Part {
        match (first, last) {
            (true, true) => Part::Full,
            (true, false) => Part::First,
            (false, false) => Part::Middle,
            (false, true) => Part::Last,
        }
    }

    fn from_byte(byte: u8) -> Option<Part> {
        Some(match byte & !PREV_SYNCED {
            1 => Part::Full,
            2 => Part::First,
            3 => Part::Middle,
            4 => Part::Last,
            5 => Part::Seal,
            _ => return None,
        })
    }
}

/// The checksums of one log, seeded with its number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogSum {
    number: u64,
    sum: FileSum,
}

/// Why a block header is invalid.
pub(crate) enum HeaderFault {
    /// Damaged or never written.
    Damaged(&'static str),
    /// Valid, but of a version that this reader does not know.
    Newer(u8),
}

/// A valid fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) part: Part,
    pub(crate) prev_synced: bool,
    /// Payload bytes; they follow the fragment header.
    pub(crate) len: usize,
}

/// A fragment, its header and its payload.
type FragmentParts<'b> = (Fragment, &'b [u8; FRAGMENT_HEADER_BYTES as usize], &'b [u8]);

impl Fragment {
    /// Decodes the fragment at the start of `bytes`, without a comparison of its checksum.
    #[inline]
    pub(crate) fn decode(bytes: &[u8]) -> Result<FragmentParts<'_>, &'static str> {
        let Some((head, rest)) = bytes.split_first_chunk::<{ FRAGMENT_HEADER_BYTES as usize }>()
        else {
            return Err("a fragment's header is truncated");
        };
        let Some(part) = Part::from_byte(head[6]) else {
            return Err("there is no fragment");
        };
        let len = usize::from(u16::from_le_bytes([head[4], head[5]]));
        let Some(payload) = rest.get(..len) else {
            return Err("a fragment is truncated");
        };
        Ok((Fragment { part, prev_synced: head[6] & PREV_SYNCED != 0, len }, head, payload))
    }
}

impl LogSum {
    pub(crate) fn new(number: u64) -> Self {
        LogSum { number, sum: FileSum::new(number) }
    }

    /// The header of the block at `offset`.
    pub(crate) fn header(&self, offset: u64, synced_to: u64) -> [u8; HEADER_BYTES as usize] {
        let mut out = [0; HEADER_BYTES as usize];
        out[4..7].copy_from_slice(&MAGIC);
        out[7] = VERSION;
        out[8..16].copy_from_slice(&self.number.to_le_bytes());
        out[16..24].copy_from_slice(&synced_to.to_le_bytes());
        let crc = self.sum.of(offset, &out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Checks the header of the block at `offset` and returns its `synced_to`.
    pub(crate) fn parse_header(&self, offset: u64, block: &[u8]) -> Result<u64, HeaderFault> {
        let Some(bytes) = block.first_chunk::<{ HEADER_BYTES as usize }>() else {
            return Err(HeaderFault::Damaged("the block header is truncated"));
        };
        if bytes[4..7] != MAGIC || le32(bytes) != self.sum.of(offset, &bytes[4..]) {
            return Err(HeaderFault::Damaged("the block header does not match its checksum"));
        }
        if bytes[7] > VERSION {
            return Err(HeaderFault::Newer(bytes[7]));
        }
        Ok(le64(&bytes[16..]))
    }

    /// The header of a fragment at `offset` in the file.
    pub(crate) fn fragment(
        &self,
        offset: u64,
        kind: u8,
        payload: &[u8],
    ) -> [u8; FRAGMENT_HEADER_BYTES as usize] {
        // A payload is shorter than a block, so its length fits.
        let len = (payload.len() as u16).to_le_bytes();
        let crc = self.fragment_sum(offset, len, kind, payload).to_le_bytes();
        [crc[0], crc[1], crc[2], crc[3], len[0], len[1], kind]
    }

    /// Checks the fragment at `offset`; `bytes` may extend up to the end of its block.
    pub(crate) fn parse_fragment(
        &self,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Fragment, &'static str> {
        let (fragment, head, payload) = Fragment::decode(bytes)?;
        if le32(head) != self.fragment_sum(offset, [head[4], head[5]], head[6], payload) {
            return Err("a fragment does not match its checksum");
        }
        Ok(fragment)
    }

    fn fragment_sum(&self, offset: u64, len: [u8; 2], kind: u8, payload: &[u8]) -> u32 {
        crc32c::crc32c_append(self.sum.begin_with(offset, [len[0], len[1], kind]), payload)
    }
}

/// The payload of a seal.
pub(crate) fn seal_payload(data_end: u64, records: u64) -> [u8; SEAL_BYTES as usize] {
    let mut out = [0; SEAL_BYTES as usize];
    out[..8].copy_from_slice(&data_end.to_le_bytes());
    out[8..].copy_from_slice(&records.to_le_bytes());
    out
}

/// `data_end` and the number of records from a seal's payload.
pub(crate) fn parse_seal(payload: &[u8]) -> Option<(u64, u64)> {
    (payload.len() as u64 == SEAL_BYTES).then(|| (le64(payload), le64(&payload[8..])))
}

/// Whether a fragment may start at this offset of a block.
pub(crate) fn fits_fragment(in_block: u64) -> bool {
    BLOCK_BYTES - in_block > FRAGMENT_HEADER_BYTES
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn le64(bytes: &[u8]) -> u64 {
    u64::from(le32(bytes)) | u64::from(le32(&bytes[4..])) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragment_checksum_covers_log_offset_and_every_bit() {
        let sum = LogSum::new(7);
        let mut bytes = sum.fragment(100, Part::Full as u8 | PREV_SYNCED, b"payload").to_vec();
        bytes.extend_from_slice(b"payload");
        let whole = Fragment { part: Part::Full, prev_synced: true, len: 7 };
        assert_eq!(sum.parse_fragment(100, &bytes), Ok(whole));
        assert!(sum.parse_fragment(101, &bytes).is_err());
        assert!(LogSum::new(8).parse_fragment(100, &bytes).is_err());
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(sum.parse_fragment(100, &bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn newer_header_version_is_distinguished_from_damage() {
        let sum = LogSum::new(7);
        let mut bytes = sum.header(BLOCK_BYTES, 5);
        assert!(matches!(sum.parse_header(BLOCK_BYTES, &bytes), Ok(5)));
        assert!(matches!(sum.parse_header(0, &bytes), Err(HeaderFault::Damaged(_))));
        bytes[7] = 9;
        assert!(matches!(sum.parse_header(BLOCK_BYTES, &bytes), Err(HeaderFault::Damaged(_))));
        let crc = sum.sum.of(BLOCK_BYTES, &bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(sum.parse_header(BLOCK_BYTES, &bytes), Err(HeaderFault::Newer(9))));
    }
}
