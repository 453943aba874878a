//! One change of the set of files, in the form in which the manifest keeps it.
//!
//! ```text
//! edit  := field*                                   all integers varint
//! field := 1 next_file                              the next file number that is free
//!        | 2 last_sequence                          the newest sequence number in any table
//!        | 3 first_log                              logs below this number are in tables
//!        | 4 level id number bytes is_oldest        a table that is added: as the newest of its
//!                                                   container, or (1) as the oldest
//!        | 5 level id number                        a table that is removed
//!        | 6 level id number bytes                  the container's cluster from now on; 0 0: none
//!        | 7 number bytes                           a log that was sealed at close
//!        | 8 seed weak_bits fanout_bits             the table's shape, in every snapshot
//! ```
//!
//! Removals apply before additions, and both before clusters. A reader refuses field numbers that it
//! does not know: to skip one could lose data. The manifest gives integrity.
//!
//! Invariant: `decode(encode(edit)) == edit`.
//!
//! Source: the shape is LevelDB's version edit; the fields are ours.

use std::collections::BTreeSet;

use siltstone_engine::batch::{read_varint, write_varint};
use siltstone_table::kind::in_range;

use super::{DEEPEST, Place};
use crate::hash::HashKind;

/// What never changes in the life of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrieShape {
    pub(crate) hash: HashKind,
    pub(crate) fanout_bits: u32,
}

/// A table that is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) place: Place,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// It goes behind all tables of its container, not before them.
    pub(crate) is_oldest: bool,
}

/// One change of the set of files; what is `None` or empty stays as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) next_file: Option<u64>,
    pub(crate) last_sequence: Option<u64>,
    pub(crate) first_log: Option<u64>,
    pub(crate) added: Vec<Added>,
    pub(crate) removed: Vec<(Place, u64)>,
    /// Container, number and bytes of its cluster; number 0 for none.
    pub(crate) clusters: Vec<(Place, u64, u64)>,
    pub(crate) sealed_log: Option<(u64, u64)>,
    pub(crate) shape: Option<TrieShape>,
}

const NEXT_FILE: u64 = 1;
const LAST_SEQUENCE: u64 = 2;
const FIRST_LOG: u64 = 3;
const ADDED: u64 = 4;
const REMOVED: u64 = 5;
const CLUSTER: u64 = 6;
const SEALED_LOG: u64 = 7;
const SHAPE: u64 = 8;

impl Edit {
    /// The containers that it changes.
    pub(crate) fn places(&self) -> BTreeSet<Place> {
        let added = self.added.iter().map(|added| added.place);
        let removed = self.removed.iter().map(|&(place, _)| place);
        added.chain(removed).chain(self.clusters.iter().map(|&(place, ..)| place)).collect()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |values: &[u64]| values.iter().for_each(|&v| write_varint(&mut out, v));
        for (field, value) in [
            (NEXT_FILE, self.next_file),
            (LAST_SEQUENCE, self.last_sequence),
            (FIRST_LOG, self.first_log),
        ] {
            value.into_iter().for_each(|value| put(&[field, value]));
        }
        for added in &self.added {
            let Place { level, id } = added.place;
            let is_oldest = u64::from(added.is_oldest);
            put(&[ADDED, level as u64, id, added.number, added.bytes, is_oldest]);
        }
        for &(Place { level, id }, number) in &self.removed {
            put(&[REMOVED, level as u64, id, number]);
        }
        for &(Place { level, id }, number, bytes) in &self.clusters {
            put(&[CLUSTER, level as u64, id, number, bytes]);
        }
        if let Some((number, bytes)) = self.sealed_log {
            put(&[SEALED_LOG, number, bytes]);
        }
        if let Some(TrieShape { hash, fanout_bits }) = self.shape {
            put(&[SHAPE, hash.seed, hash.weak_bits.into(), fanout_bits.into()]);
        }
        out
    }

    /// Parses an edit; the error says what is malformed.
    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Edit, String> {
        let mut edit = Edit::default();
        while !bytes.is_empty() {
            let field = take(&mut bytes)?;
            let mut next = || take(&mut bytes);
            match field {
                NEXT_FILE => edit.next_file = Some(next()?),
                LAST_SEQUENCE => edit.last_sequence = Some(in_range(next()?)?),
                FIRST_LOG => edit.first_log = Some(next()?),
                ADDED => {
                    let place = place(next()?, next()?)?;
                    let (number, bytes, is_oldest) = (next()?, next()?, next()? != 0);
                    edit.added.push(Added { place, number, bytes, is_oldest });
                }
                REMOVED => edit.removed.push((place(next()?, next()?)?, next()?)),
                CLUSTER => edit.clusters.push((place(next()?, next()?)?, next()?, next()?)),
                SEALED_LOG => edit.sealed_log = Some((next()?, next()?)),
                SHAPE => {
                    let seed = next()?;
                    let (weak_bits, fanout_bits) = (next()? as u32, next()? as u32);
                    if weak_bits > 63 || !(1..=5).contains(&fanout_bits) {
                        return Err("the table's shape is impossible".to_owned());
                    }
                    edit.shape =
                        Some(TrieShape { hash: HashKind { seed, weak_bits }, fanout_bits });
                }
                other => return Err(format!("field {other} of an edit is unknown")),
            }
        }
        Ok(edit)
    }
}

impl std::fmt::Display for Edit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words = Vec::new();
        for removed in &self.removed {
            words.push(format!("- table {} of {}", removed.1, removed.0));
        }
        for added in &self.added {
            let age = if added.is_oldest { ", as its oldest" } else { "" };
            let Added { place, number, bytes, .. } = added;
            words.push(format!("+ table {number} of {bytes} bytes in {place}{age}"));
        }
        for (place, number, bytes) in &self.clusters {
            words.push(match number {
                0 => format!("{place} has no cluster"),
                _ => format!("{place} has cluster {number} of {bytes} bytes"),
            });
        }
        for (what, value) in [
            ("next file", self.next_file),
            ("last sequence", self.last_sequence),
            ("first log", self.first_log),
        ] {
            words.extend(value.map(|value| format!("{what} {value}")));
        }
        if let Some((number, bytes)) = self.sealed_log {
            words.push(format!("log {number} was sealed with {bytes} bytes"));
        }
        if let Some(TrieShape { fanout_bits, .. }) = self.shape {
            words.push(format!("fan-out of {fanout_bits} bits"));
        }
        f.write_str(&words.join("; "))
    }
}

fn place(level: u64, id: u64) -> Result<Place, String> {
    match usize::try_from(level) {
        Ok(level) if level <= DEEPEST => Ok(Place { level, id }),
        _ => Err(format!("level {level} of an edit is too deep")),
    }
}

fn take(bytes: &mut &[u8]) -> Result<u64, String> {
    let (value, used) = read_varint(bytes).ok_or("an edit is cut off")?;
    *bytes = &bytes[used..];
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_sequence_number_that_no_write_could_follow_refused() {
        for (last, holds) in [(u64::MAX, false), (1 << 61, false), ((1 << 61) - 1, true)] {
            let edit = Edit { last_sequence: Some(last), ..Edit::default() };
            assert_eq!(Edit::decode(&edit.encode()).is_ok(), holds, "{last}");
        }
    }

    #[test]
    fn do_edits_come_back_and_are_hostile_bytes_refused() {
        let place = Place { level: 3, id: 511 };
        let edit = Edit {
            next_file: Some(12),
            last_sequence: Some(1 << 40),
            first_log: Some(3),
            added: vec![Added { place, number: 4, bytes: 5, is_oldest: true }],
            removed: vec![(place, 9)],
            clusters: vec![(place, 0, 0), (Place { level: 1, id: 0 }, 7, 8)],
            sealed_log: Some((2, 300)),
            shape: Some(TrieShape {
                hash: HashKind { seed: u64::MAX, weak_bits: 4 },
                fanout_bits: 3,
            }),
        };
        let bytes = edit.encode();
        assert_eq!(Edit::decode(&bytes), Ok(edit));
        for cut in 0..bytes.len() {
            let _ = Edit::decode(&bytes[..cut]);
        }
        assert!(Edit::decode(&[99]).is_err());
        for level in [13, 64, 100] {
            assert!(Edit::decode(&[ADDED as u8, level, 0, 0, 0, 0]).is_err());
        }
    }
}
