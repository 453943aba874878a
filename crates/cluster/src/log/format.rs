//! The records of a Raft log.
//!
//! The file is a record log of `siltstone-table`, whose blocks and checksums are drawn in its
//! `log/format.rs`: every byte is covered by a checksum seeded with the file's number and offset.
//! All integers are little endian.
//!
//! ```text
// ANCHOR: layout
//! file       := preamble append*
//! preamble   := 1:u8  version:u8  group:u64  node:u64  incarnation:u64  table:u64
//!               marker  hard_state  entries
//! append     := 2:u8  hard_state  entries
//! marker     := index:u64  term:u64                 the last entry that compaction removed
//! hard_state := term:u64  vote:u64  commit:u64
//! entries    := count:u32  first_index:u64  entry[count]
//! entry      := term:u64  type:u8  context_len:u32  data_len:u32  context  data
//!   type 0 = write   1 = change of membership   2 = the same, in Raft's second form
// ANCHOR_END: layout
//! ```
//!
//! The entries of an append replace all entries from `first_index` on. The first record of a file
//! is its only preamble. A reader refuses a newer version.

use raft::eraftpb::{Entry, EntryType, HardState};
use siltstone_table::fixed::{take_u32, take_u64};

use super::{LogIdentity, Marker};

const PREAMBLE: u8 = 1;
const APPEND: u8 = 2;
const VERSION: u8 = 1;

/// The state at the start of a file, besides its entries.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Preamble {
    pub(super) identity: LogIdentity,
    pub(super) incarnation: u64,
    pub(super) table: u64,
    pub(super) marker: Marker,
}

/// A decoded record.
#[derive(Debug, PartialEq)]
pub(super) enum Record {
    Preamble(Preamble, HardState, Vec<Entry>),
    Append(HardState, Vec<Entry>),
    /// A preamble of this newer version.
    Newer(u8),
}

pub(super) fn encode_preamble<'e>(
    preamble: &Preamble,
    hard_state: &HardState,
    entries: impl ExactSizeIterator<Item = &'e Entry>,
) -> Vec<u8> {
    let mut out = vec![PREAMBLE, VERSION];
    let Preamble { identity, incarnation, table, marker } = preamble;
    for number in [identity.group, identity.node, *incarnation, *table, marker.index, marker.term] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    push_state(&mut out, hard_state);
    push_entries(&mut out, marker.index + 1, entries);
    out
}

pub(super) fn encode_append(hard_state: &HardState, first: u64, entries: &[Entry]) -> Vec<u8> {
    let mut out = vec![APPEND];
    push_state(&mut out, hard_state);
    push_entries(&mut out, first, entries.iter());
    out
}

/// Decodes a record; `None` if it is malformed.
pub(super) fn decode(mut bytes: &[u8]) -> Option<Record> {
    let at = &mut bytes;
    let record = match take_u8(at)? {
        PREAMBLE => {
            let version = take_u8(at)?;
            if version > VERSION {
                return Some(Record::Newer(version));
            }
            let identity = LogIdentity { group: take_u64(at)?, node: take_u64(at)? };
            let (incarnation, table) = (take_u64(at)?, take_u64(at)?);
            let marker = Marker { index: take_u64(at)?, term: take_u64(at)? };
            let preamble = Preamble { identity, incarnation, table, marker };
            Record::Preamble(preamble, take_state(at)?, take_entries(at)?)
        }
        APPEND => Record::Append(take_state(at)?, take_entries(at)?),
        _ => return None,
    };
    at.is_empty().then_some(record)
}

fn push_state(out: &mut Vec<u8>, state: &HardState) {
    for number in [state.term, state.vote, state.commit] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn take_state(at: &mut &[u8]) -> Option<HardState> {
    let mut state = HardState::default();
    (state.term, state.vote, state.commit) = (take_u64(at)?, take_u64(at)?, take_u64(at)?);
    Some(state)
}

pub(crate) fn push_entries<'e>(
    out: &mut Vec<u8>,
    first: u64,
    entries: impl ExactSizeIterator<Item = &'e Entry>,
) {
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    out.extend_from_slice(&first.to_le_bytes());
    for entry in entries {
        out.extend_from_slice(&entry.term.to_le_bytes());
        out.push(match entry.get_entry_type() {
            EntryType::EntryNormal => 0,
            EntryType::EntryConfChange => 1,
            EntryType::EntryConfChangeV2 => 2,
        });
        out.extend_from_slice(&(entry.context.len() as u32).to_le_bytes());
        out.extend_from_slice(&(entry.data.len() as u32).to_le_bytes());
        out.extend_from_slice(&entry.context);
        out.extend_from_slice(&entry.data);
    }
}

pub(crate) fn take_entries(at: &mut &[u8]) -> Option<Vec<Entry>> {
    let (count, first) = (take_u32(at)?, take_u64(at)?);
    let mut entries = Vec::new();
    for index in 0..u64::from(count) {
        let (index, term) = (first.checked_add(index)?, take_u64(at)?);
        let mut entry = Entry { index, term, ..Entry::default() };
        entry.set_entry_type(match take_u8(at)? {
            0 => EntryType::EntryNormal,
            1 => EntryType::EntryConfChange,
            2 => EntryType::EntryConfChangeV2,
            _ => return None,
        });
        let (context, data) = (take_u32(at)? as usize, take_u32(at)? as usize);
        entry.context = take_bytes(at, context)?.to_vec().into();
        entry.data = take_bytes(at, data)?.to_vec().into();
        entries.push(entry);
    }
    Some(entries)
}

pub(crate) fn take_u8(at: &mut &[u8]) -> Option<u8> {
    at.split_off_first().copied()
}

pub(crate) fn take_bytes<'b>(at: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    at.split_off(..len)
}

#[cfg(test)]
mod tests {
    use super::super::tests::entry;
    use super::*;

    #[test]
    fn records_round_trip_and_truncated_ones_are_rejected() {
        let mut state = HardState::default();
        (state.term, state.vote, state.commit) = (7, 3, 5);
        let mut change = entry(6, 7, b"change");
        change.set_entry_type(EntryType::EntryConfChangeV2);
        let entries = vec![entry(5, 6, b"data"), change];
        let preamble = Preamble {
            identity: LogIdentity { group: 1, node: 2 },
            incarnation: 3,
            table: 4,
            marker: Marker { index: 4, term: 6 },
        };
        let bytes = encode_preamble(&preamble, &state, entries.iter());
        let decoded = Record::Preamble(preamble, state.clone(), entries.clone());
        assert_eq!(decode(&bytes), Some(decoded));
        let append = encode_append(&state, 5, &entries);
        assert_eq!(decode(&append), Some(Record::Append(state, entries)));
        for bytes in [bytes, append] {
            for len in 0..bytes.len() {
                assert_eq!(decode(&bytes[..len]), None, "{len} bytes");
            }
            assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(decode(&[PREAMBLE, 9]), Some(Record::Newer(9)));
    }
}
