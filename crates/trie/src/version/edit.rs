//! A version edit: one change of the set of files, as the manifest stores it.
//!
//! ```text
//! edit  := field*                                   all integers varint
//! field := 1 next_file                              the next free file number
//!        | 2 last_sequence                          the newest sequence number in any table
//!        | 3 first_log                              logs below this number are in tables
//!        | 4 level id number bytes is_oldest        an added table: the newest of its
//!                                                   container, or (1) the oldest
//!        | 5 level id number                        a removed table
//!        | 6 level id number bytes                  the container's new cluster; 0 0: none
//!        | 7 number bytes                           a log that was sealed at close
//!        | 8 seed weak_bits fanout_bits             the table's configuration, in every snapshot
//!        | 32 batch                                batches over several tables up to here are
//!                                                   durable
//! ```
//!
//! Removals apply before additions, and both before clusters. A reader rejects unknown field
//! numbers, because skipping one could lose data. The manifest guarantees integrity.
//!
//! Invariant: `decode(encode(edit)) == edit`.
//!
//! Source: LevelDB's version edit.

use std::collections::BTreeSet;

use siltstone_durable::{EditHeader, VersionEdit};
use siltstone_engine::FileInfo;
use siltstone_engine::varint::{read_varint, write_varint};
use siltstone_table::kind::check_sequence;

use crate::config::TrieConfig;
use crate::container_id::{ContainerId, MAX_LEVEL};
use crate::files::Kind;
use crate::hash::HashKind;

/// An added table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddedTable {
    pub(crate) container_id: ContainerId,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// It is the oldest table of its container, not the newest.
    pub(crate) is_oldest: bool,
}

/// One change of the set of files; `None` and empty fields change nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edit {
    pub(crate) header: EditHeader,
    pub(crate) added: Vec<AddedTable>,
    pub(crate) removed: Vec<(ContainerId, u64)>,
    /// Container, number and length of its cluster; number 0 for none.
    pub(crate) clusters: Vec<(ContainerId, u64, u64)>,
    pub(crate) config: Option<TrieConfig>,
}

const NEXT_FILE: u64 = 1;
const LAST_SEQUENCE: u64 = 2;
const FIRST_LOG: u64 = 3;
const ADDED: u64 = 4;
const REMOVED: u64 = 5;
const CLUSTER: u64 = 6;
const SEALED_LOG: u64 = 7;
const CONFIG: u64 = 8;
const DURABLE_BATCH: u64 = 32;

impl Edit {
    /// The files that it adds, for listeners of events.
    pub(crate) fn infos(&self) -> Vec<FileInfo> {
        let of = |kind: Kind, number, bytes| FileInfo::new(kind.name(number), bytes);
        let tables = self.added.iter().map(|it| of(Kind::HTable, it.number, it.bytes));
        let clusters = self.clusters.iter().filter(|(_, number, _)| *number > 0);
        tables.chain(clusters.map(|&(_, number, bytes)| of(Kind::Cluster, number, bytes))).collect()
    }

    /// The containers that it changes.
    pub(crate) fn container_ids(&self) -> BTreeSet<ContainerId> {
        let added = self.added.iter().map(|added| added.container_id);
        let removed = self.removed.iter().map(|&(container_id, _)| container_id);
        added
            .chain(removed)
            .chain(self.clusters.iter().map(|&(container_id, ..)| container_id))
            .collect()
    }
}

impl VersionEdit for Edit {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |values: &[u64]| values.iter().for_each(|&v| write_varint(&mut out, v));
        for (field, value) in [
            (NEXT_FILE, self.header.next_file),
            (LAST_SEQUENCE, self.header.last_sequence),
            (FIRST_LOG, self.header.first_log),
        ] {
            value.into_iter().for_each(|value| put(&[field, value]));
        }
        for added in &self.added {
            let ContainerId { level, id } = added.container_id;
            let is_oldest = u64::from(added.is_oldest);
            put(&[ADDED, level as u64, id, added.number, added.bytes, is_oldest]);
        }
        for &(ContainerId { level, id }, number) in &self.removed {
            put(&[REMOVED, level as u64, id, number]);
        }
        for &(ContainerId { level, id }, number, bytes) in &self.clusters {
            put(&[CLUSTER, level as u64, id, number, bytes]);
        }
        if let Some((number, bytes)) = self.header.sealed_log {
            put(&[SEALED_LOG, number, bytes]);
        }
        if let Some(batch) = self.header.durable_batch {
            put(&[DURABLE_BATCH, batch]);
        }
        if let Some(TrieConfig { hash, fanout_bits }) = self.config {
            put(&[CONFIG, hash.seed, hash.weak_bits.into(), fanout_bits.into()]);
        }
        out
    }

    fn decode(mut bytes: &[u8]) -> Result<Edit, String> {
        let mut edit = Edit::default();
        while !bytes.is_empty() {
            let field = take(&mut bytes)?;
            let mut next = || take(&mut bytes);
            match field {
                NEXT_FILE => edit.header.next_file = Some(next()?),
                LAST_SEQUENCE => edit.header.last_sequence = Some(check_sequence(next()?)?),
                FIRST_LOG => edit.header.first_log = Some(next()?),
                ADDED => {
                    let container_id = container_id(next()?, next()?)?;
                    let (number, bytes, is_oldest) = (next()?, next()?, next()? != 0);
                    edit.added.push(AddedTable { container_id, number, bytes, is_oldest });
                }
                REMOVED => edit.removed.push((container_id(next()?, next()?)?, next()?)),
                CLUSTER => edit.clusters.push((container_id(next()?, next()?)?, next()?, next()?)),
                SEALED_LOG => edit.header.sealed_log = Some((next()?, next()?)),
                DURABLE_BATCH => edit.header.durable_batch = Some(next()?),
                CONFIG => {
                    let seed = next()?;
                    let (weak_bits, fanout_bits) = (next()? as u32, next()? as u32);
                    if weak_bits > 63 || !(1..=5).contains(&fanout_bits) {
                        return Err("the table's config is impossible".to_owned());
                    }
                    edit.config =
                        Some(TrieConfig { hash: HashKind { seed, weak_bits }, fanout_bits });
                }
                other => return Err(format!("field {other} of an edit is unknown")),
            }
        }
        Ok(edit)
    }

    fn header(&self) -> &EditHeader {
        &self.header
    }

    fn header_mut(&mut self) -> &mut EditHeader {
        &mut self.header
    }

    fn merge_files(&mut self, newer: Edit) -> Result<(), String> {
        for (container_id, number) in newer.removed {
            let at = self
                .added
                .iter()
                .position(|a| (a.container_id, a.number) == (container_id, number));
            let at =
                at.ok_or_else(|| format!("removes table {number}, which {container_id:?} lacks"))?;
            self.added.remove(at);
        }
        for added in newer.added {
            let first =
                self.added.iter().position(|other| other.container_id == added.container_id);
            let at = first.filter(|_| added.is_oldest).unwrap_or(self.added.len());
            self.added.insert(at, AddedTable { is_oldest: false, ..added });
        }
        for cluster in newer.clusters {
            self.clusters.retain(|(container_id, ..)| *container_id != cluster.0);
            if cluster.1 > 0 {
                self.clusters.push(cluster);
            }
        }
        self.config = newer.config.or(self.config);
        Ok(())
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
            let AddedTable { container_id, number, bytes, .. } = added;
            words.push(format!("+ table {number} of {bytes} bytes in {container_id}{age}"));
        }
        for (container_id, number, bytes) in &self.clusters {
            words.push(match number {
                0 => format!("{container_id} has no cluster"),
                _ => format!("{container_id} has cluster {number} of {bytes} bytes"),
            });
        }
        words.extend(self.header.words());
        if let Some(TrieConfig { fanout_bits, .. }) = self.config {
            words.push(format!("fan-out of {fanout_bits} bits"));
        }
        f.write_str(&words.join("; "))
    }
}

fn container_id(level: u64, id: u64) -> Result<ContainerId, String> {
    match usize::try_from(level) {
        Ok(level) if level <= MAX_LEVEL => Ok(ContainerId { level, id }),
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
    fn sequence_number_without_successor_is_rejected() {
        for (last, holds) in [(u64::MAX, false), (1 << 61, false), ((1 << 61) - 1, true)] {
            let mut edit = Edit::default();
            edit.header.last_sequence = Some(last);
            assert_eq!(Edit::decode(&edit.encode()).is_ok(), holds, "{last}");
        }
    }

    #[test]
    fn edit_survives_encoding_and_malformed_bytes_are_rejected() {
        let container_id = ContainerId { level: 3, id: 511 };
        let edit = Edit {
            header: EditHeader {
                next_file: Some(12),
                last_sequence: Some(1 << 40),
                first_log: Some(3),
                sealed_log: Some((2, 300)),
                synced_log: None,
                durable_batch: Some(99),
            },
            added: vec![AddedTable { container_id, number: 4, bytes: 5, is_oldest: true }],
            removed: vec![(container_id, 9)],
            clusters: vec![(container_id, 0, 0), (ContainerId { level: 1, id: 0 }, 7, 8)],
            config: Some(TrieConfig {
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
