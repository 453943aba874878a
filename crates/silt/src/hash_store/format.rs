//! The file format of a HashStore.
//!
//! ```text
// ANCHOR: layout
//! file    := slot*  tail*  footer                                             little endian
//! slot    := crc32c:u32  body[slot_bytes - 4]         slot i at i * slot_bytes, in table order
//!   body   = operation  zeros                         an entry that fits
//!          | 0xff  len:u32  tail_at:u64  head         the head of a split entry of len bytes
//!          | zeros                                    no entry
//! tail    := bytes  crc32c:u32                        the rest of a split entry
//! footer  := magic "SILTHASH"  version 1              (see `file`)
//!            partition:u32  partitions:u32  seed:u64  slots:u32  entries:u32  slot_bytes:u32
//!            shortest:u32  longest:u32                bytes of puts; 0 if there are none
//! filter  := CuckooFilter's stored form  crc32c:u32   in the file beside it
// ANCHOR_END: layout
//! ```
//!
//! Checksums are seeded with the file's number and the offset of the bytes. A reader refuses a file
//! of another version.
//!
//! The slot size is the option `inline_value_bytes`, or the one with the smallest file, where the
//! second read of a split entry counts as [`SECOND_READ_BYTES`]. If all entries have one length,
//! slots have that length and no entry is split.
//!
//! Source: Lim, thesis, sections 2.2.2 and 2.3 (indirection with inlining).

use siltstone_table::FileSum;

use crate::file::{Fields, Footer};
use crate::item;
use crate::keys::KeyHasher;

pub(crate) const FOOTER: Footer = Footer { magic: b"SILTHASH", version: 1, fields: 36 };
/// Bytes of a slot before its body.
pub(super) const CRC: usize = 4;
/// Bytes in the body of a split entry before its head.
pub(super) const SPLIT_HEADER: usize = 13;
const SPLIT_MARK: u8 = 0xff;
/// The smallest slot, in bytes.
const MIN_SLOT_BYTES: u32 = 32;
/// The space that the second read of a split entry is worth.
const SECOND_READ_BYTES: u64 = 1024;

/// The fields of a HashStore's footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreMeta {
    pub(crate) partition: u32,
    pub(crate) keys: KeyHasher,
    pub(crate) slots: u32,
    pub(crate) entries: u32,
    pub(crate) slot_bytes: u32,
    /// Bytes of the shortest and the longest put. Deletions do not count: merges drop them.
    pub(crate) lengths: (u32, u32),
}

impl StoreMeta {
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
        StoreMeta {
            partition,
            keys: KeyHasher { seed, partitions },
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

/// A decoded slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Slot<'a> {
    Empty,
    /// An entry, which zeros may follow.
    Inline(&'a [u8]),
    /// An entry of `len` bytes that begins with `head`; its tail is at the offset `tail_at`.
    Split {
        head: &'a [u8],
        len: usize,
        tail_at: u64,
    },
}

/// Encodes the slot at `offset`, an empty one for an empty entry; the tail of a split entry will be
/// at `tail_at`. Returns the number of bytes of the entry that are in the slot.
pub(super) fn encode_slot(
    out: &mut Vec<u8>,
    entry: &[u8],
    slot_bytes: usize,
    sum: FileSum,
    offset: u64,
    tail_at: u64,
) -> usize {
    let start = out.len();
    out.resize(start + CRC, 0);
    let room = slot_bytes - CRC;
    let taken = if entry.len() <= room {
        out.extend_from_slice(entry);
        entry.len()
    } else {
        out.push(SPLIT_MARK);
        out.extend_from_slice(&(entry.len() as u32).to_le_bytes());
        out.extend_from_slice(&tail_at.to_le_bytes());
        out.extend_from_slice(&entry[..room - SPLIT_HEADER]);
        room - SPLIT_HEADER
    };
    out.resize(start + slot_bytes, 0);
    let crc = sum.of(offset, &out[start + CRC..]);
    out[start..start + CRC].copy_from_slice(&crc.to_le_bytes());
    taken
}

/// Decodes the slot at `offset`.
pub(super) fn decode_slot(
    slot: &[u8],
    sum: FileSum,
    offset: u64,
) -> Result<Slot<'_>, &'static str> {
    let (crc, body) = slot.split_at_checked(CRC).ok_or("a slot is cut off")?;
    if sum.of(offset, body).to_le_bytes() != crc {
        return Err("a slot does not match its checksum");
    }
    if item::is_end(body) {
        return Ok(Slot::Empty);
    }
    match body.split_at_checked(SPLIT_HEADER) {
        Some((mark, head)) if mark[0] == SPLIT_MARK => {
            let mut fields = Fields(&mark[1..]);
            let (len, tail_at) = (fields.u32() as usize, fields.u64());
            if len <= head.len() {
                return Err("a slot is malformed");
            }
            Ok(Slot::Split { head, len, tail_at })
        }
        _ => Ok(Slot::Inline(body)),
    }
}

/// The slot size for `slots` slots and operations of these lengths, in any order; sorts the
/// lengths. Cost: tries up to 256 of them.
pub(crate) fn choose_slot_bytes(slots: u64, lengths: &mut [u32]) -> u32 {
    const MAX_TRIES: usize = 256;
    lengths.sort_unstable();
    let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
    let (mut best, mut min_cost) = (MIN_SLOT_BYTES, u64::MAX);
    let (mut below, mut summed) = (0, 0u64);
    let step = (lengths.len() / MAX_TRIES).max(1);
    let tried = lengths.iter().step_by(step).chain(lengths.last());
    for &length in tried {
        let slot = (length + CRC as u32).max(MIN_SLOT_BYTES);
        let room = slot - CRC as u32;
        while below < lengths.len() && lengths[below] <= room {
            summed += u64::from(lengths[below]);
            below += 1;
        }
        let split = (lengths.len() - below) as u64;
        let head = u64::from(room) - SPLIT_HEADER as u64;
        let tails = total - summed - split * head + split * CRC as u64;
        let cost = slots * u64::from(slot) + tails + split * SECOND_READ_BYTES;
        if cost < min_cost {
            (best, min_cost) = (slot, cost);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_round_trip_and_every_flipped_bit_is_detected() {
        let sum = FileSum::new(7);
        let short: Vec<u8> = (1..20).collect();
        let long: Vec<u8> = (0..200).collect();
        for (entry, taken) in [(&short, 19), (&long, 60 - SPLIT_HEADER)] {
            let mut slot = Vec::new();
            assert_eq!(encode_slot(&mut slot, entry, 64, sum, 128, 999), taken);
            assert_eq!(slot.len(), 64);
            match decode_slot(&slot, sum, 128).unwrap() {
                Slot::Inline(body) => assert_eq!(&body[..19], &short[..]),
                Slot::Split { head, len, tail_at } => {
                    assert_eq!((head, len, tail_at), (&long[..taken], 200, 999));
                }
                Slot::Empty => panic!("empty"),
            }
            assert!(decode_slot(&slot, sum, 192).is_err(), "another offset");
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
    fn slot_size_equals_the_common_length_and_ignores_rare_long_entries() {
        assert_eq!(choose_slot_bytes(1000, &mut [100; 950]), 104);
        assert_eq!(choose_slot_bytes(4, &mut []), MIN_SLOT_BYTES);
        let mut lengths = vec![100; 950];
        lengths.extend([1 << 20; 3]);
        assert_eq!(choose_slot_bytes(1000, &mut lengths), 104);
    }
}
