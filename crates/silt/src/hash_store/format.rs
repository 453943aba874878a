//! The bytes of a HashStore.
//!
//! ```text
// ANCHOR: layout
//! file    := slot*  rest*  footer                                             little endian
//! slot    := crc32c:u32  head[slot_bytes - 4]         slot i at i * slot_bytes, in table order
//!   head   = operation  zeros                         an entry that fits
//!          | 0xff  len:u32  rest_at:u64  first bytes  an entry of len bytes that does not
//!          | zeros                                    no entry
//! rest    := bytes  crc32c:u32                        the entry from where its head ends
//! footer  := magic "SILTHASH"  version 1              (see `file`)
//!            partition:u32  partitions:u32  seed:u64  slots:u32  entries:u32  slot_bytes:u32
//!            shortest:u32  longest:u32                bytes of puts; 0 if there are none
//! filter  := CuckooFilter's stored form  crc32c:u32   in the file beside it
// ANCHOR_END: layout
//! ```
//!
//! Checksums start from the file's number and the place of what they cover. A reader of another
//! version refuses the file by name.
//!
//! Slots are as large as the option `inline` says, or else as makes the file smallest, where an entry's
//! second read counts like [`SECOND_READ_BYTES`] more. With entries of one length that is this length, and none has a rest.
//!
//! Source: Lim, thesis, sections 2.2.2 and 2.3 (indirection with inlining).

use crate::file::{Fields, FileSum, Footer};
use crate::keys::Keys;

pub(crate) const FOOTER: Footer = Footer { magic: b"SILTHASH", version: 1, fields: 36 };
/// Bytes of a slot before its head.
pub(super) const CRC: usize = 4;
/// What stands in a head before the first bytes of an entry that does not fit.
pub(super) const OUTLINE: usize = 13;
const OUTLINE_MARK: u8 = 0xff;
/// The smallest slot, in bytes.
const MIN_SLOT: u32 = 32;
/// What one entry with a rest may cost in space elsewhere: a read of it is two requests.
const SECOND_READ_BYTES: u64 = 1024;

/// What a HashStore's footer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) partition: u32,
    pub(crate) keys: Keys,
    pub(crate) slots: u32,
    pub(crate) entries: u32,
    pub(crate) slot_bytes: u32,
    /// Bytes of the shortest and the longest put; deletions end in a merge.
    pub(crate) lengths: (u32, u32),
}

impl Shape {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.partition.to_le_bytes().to_vec();
        out.extend_from_slice(&self.keys.partitions.to_le_bytes());
        out.extend_from_slice(&self.keys.seed.to_le_bytes());
        let (shortest, longest) = self.lengths;
        for value in [self.slots, self.entries, self.slot_bytes, shortest, longest] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out
    }

    pub(crate) fn decode(fields: &[u8]) -> Self {
        let mut fields = Fields(fields);
        let (partition, partitions, seed) = (fields.u32(), fields.u32(), fields.u64());
        Shape {
            partition,
            keys: Keys { seed, partitions },
            slots: fields.u32(),
            entries: fields.u32(),
            slot_bytes: fields.u32(),
            lengths: (fields.u32(), fields.u32()),
        }
    }

    /// Bytes of all slots.
    pub(crate) fn slots_end(&self) -> u64 {
        u64::from(self.slots) * u64::from(self.slot_bytes)
    }
}

/// What a slot holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Slot<'a> {
    Empty,
    /// An entry, and zeros perhaps.
    Whole(&'a [u8]),
    /// An entry of `len` bytes that begins with `first`; the others are at `rest_at`.
    Cut {
        first: &'a [u8],
        len: usize,
        rest_at: u64,
    },
}

/// Writes the slot at `offset`, an empty one for an empty entry; `rest_at` is where what does not fit will
/// be. Returns how many bytes of the entry are in the slot.
pub(super) fn encode_slot(
    out: &mut Vec<u8>,
    entry: &[u8],
    slot_bytes: usize,
    sum: FileSum,
    offset: u64,
    rest_at: u64,
) -> usize {
    let start = out.len();
    out.resize(start + CRC, 0);
    let room = slot_bytes - CRC;
    let taken = if entry.len() <= room {
        out.extend_from_slice(entry);
        entry.len()
    } else {
        out.push(OUTLINE_MARK);
        out.extend_from_slice(&(entry.len() as u32).to_le_bytes());
        out.extend_from_slice(&rest_at.to_le_bytes());
        out.extend_from_slice(&entry[..room - OUTLINE]);
        room - OUTLINE
    };
    out.resize(start + slot_bytes, 0);
    let crc = sum.of(offset, &out[start + CRC..]);
    out[start..start + CRC].copy_from_slice(&crc.to_le_bytes());
    taken
}

/// Reads the slot at `offset`.
pub(super) fn decode_slot(
    slot: &[u8],
    sum: FileSum,
    offset: u64,
) -> Result<Slot<'_>, &'static str> {
    let (crc, head) = slot.split_at_checked(CRC).ok_or("a slot is cut off")?;
    if sum.of(offset, head).to_le_bytes() != crc {
        return Err("a slot does not match its checksum");
    }
    if head.iter().take(2).all(|&byte| byte == 0) {
        return Ok(Slot::Empty);
    }
    match head.split_at_checked(OUTLINE) {
        Some((mark, first)) if mark[0] == OUTLINE_MARK => {
            let mut fields = Fields(&mark[1..]);
            let (len, rest_at) = (fields.u32() as usize, fields.u64());
            if len <= first.len() {
                return Err("a slot is malformed");
            }
            Ok(Slot::Cut { first, len, rest_at })
        }
        _ => Ok(Slot::Whole(head)),
    }
}

/// The bytes of a slot for so many slots and operations of these lengths, in any order, which are sorted
/// here. Cost: up to 256 lengths are tried.
pub(crate) fn choose_slot_bytes(slots: u64, lengths: &mut [u32]) -> u32 {
    /// More lengths than this are not tried.
    const TRIES: usize = 256;
    lengths.sort_unstable();
    let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
    let (mut best, mut least) = (MIN_SLOT, u64::MAX);
    let (mut below, mut summed) = (0, 0u64);
    let step = (lengths.len() / TRIES).max(1);
    let tried = lengths.iter().step_by(step).chain(lengths.last());
    for &length in tried {
        let slot = (length + CRC as u32).max(MIN_SLOT);
        let room = slot - CRC as u32;
        while below < lengths.len() && lengths[below] <= room {
            summed += u64::from(lengths[below]);
            below += 1;
        }
        let cut = (lengths.len() - below) as u64;
        let first = u64::from(room) - OUTLINE as u64;
        let rest = total - summed - cut * first + cut * CRC as u64;
        let cost = slots * u64::from(slot) + rest + cut * SECOND_READ_BYTES;
        if cost < least {
            (best, least) = (slot, cost);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn do_slots_come_back_and_no_flipped_bit_passes() {
        let sum = FileSum::new(7);
        let short: Vec<u8> = (1..20).collect();
        let long: Vec<u8> = (0..200).collect();
        for (entry, taken) in [(&short, 19), (&long, 60 - OUTLINE)] {
            let mut slot = Vec::new();
            assert_eq!(encode_slot(&mut slot, entry, 64, sum, 128, 999), taken);
            assert_eq!(slot.len(), 64);
            match decode_slot(&slot, sum, 128).unwrap() {
                Slot::Whole(head) => assert_eq!(&head[..19], &short[..]),
                Slot::Cut { first, len, rest_at } => {
                    assert_eq!((first, len, rest_at), (&long[..taken], 200, 999));
                }
                Slot::Empty => panic!("empty"),
            }
            assert!(decode_slot(&slot, sum, 192).is_err(), "another place");
            assert!(decode_slot(&slot, FileSum::new(8), 128).is_err(), "another file");
            for bit in 0..slot.len() * 8 {
                slot[bit / 8] ^= 1 << (bit % 8);
                assert!(decode_slot(&slot, sum, 128).is_err());
                slot[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert!(decode_slot(&[0; 64], sum, 0).is_err(), "a zeroed sector");
        let mut empty = Vec::new();
        assert_eq!(encode_slot(&mut empty, &[], 64, sum, 0, 0), 0);
        assert_eq!(decode_slot(&empty, sum, 0), Ok(Slot::Empty));
    }

    #[test]
    fn are_slots_as_large_as_entries_of_one_length_and_smaller_than_a_rare_long_one() {
        assert_eq!(choose_slot_bytes(1000, &mut [100; 950]), 104);
        assert_eq!(choose_slot_bytes(4, &mut []), MIN_SLOT);
        let mut lengths = vec![100; 950];
        lengths.extend([1 << 20; 3]);
        assert_eq!(choose_slot_bytes(1000, &mut lengths), 104);
    }
}
