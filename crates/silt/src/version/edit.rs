//! A manifest edit: one change of the set of stores.
//!
//! ```text
//! edit  := field*                                     numbers are varints, the seed is u64 LE
//! field := 1 number                                   the next file number
//!        | 2 number                                   the first log that is still needed
//!        | 3 partitions seed                          how keys are hashed; in the first edit
//!        | 4 partition number bytes entries           a HashStore, the newest of its partition
//!        | 5 partition number bytes entries           the SortedStore of a partition
//!        | 6 number                                   a removed store
//!        | 7 number bytes                             a log that was sealed at close
//!        | 32 batch                                  batches over several tables up to here are
//!                                                     durable
//! ```
//!
//! Removals apply before additions. A reader refuses unknown fields: skipping one could lose data.
//! The manifest has the checksums.
//!
//! Compare LevelDB's `VersionEdit`.

use siltstone_durable::{EditHeader, VersionEdit};
use siltstone_engine::varint::{read_varint, write_varint};

use crate::keys::KeyHasher;
use crate::store_entry::StoreEntry;

/// One change of the set of stores; a field that is `None` or empty changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edit {
    pub(crate) header: EditHeader,
    pub(crate) keys: Option<KeyHasher>,
    /// HashStores, the older ones of a partition first.
    pub(crate) hash_stores: Vec<StoreEntry>,
    pub(crate) sorted_stores: Vec<StoreEntry>,
    pub(crate) removed: Vec<u64>,
}

impl Edit {
    /// The numbers of the stores that it adds.
    pub(crate) fn added(&self) -> Vec<u64> {
        self.sorted_stores.iter().chain(&self.hash_stores).map(|store| store.number).collect()
    }
}

const NEXT_FILE: u64 = 1;
const FIRST_LOG: u64 = 2;
const KEYS: u64 = 3;
const HASH_STORE: u64 = 4;
const SORTED_STORE: u64 = 5;
const REMOVED: u64 = 6;
const SEALED_LOG: u64 = 7;
const DURABLE_BATCH: u64 = 32;

impl VersionEdit for Edit {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |values: &[u64]| values.iter().for_each(|&v| write_varint(&mut out, v));
        if let Some(keys) = self.keys {
            // The seed takes two varints of 32 bits.
            put(&[KEYS, keys.partitions.into(), keys.seed >> 32, keys.seed & u64::from(u32::MAX)]);
        }
        self.header.next_file.iter().for_each(|&number| put(&[NEXT_FILE, number]));
        self.header.first_log.iter().for_each(|&number| put(&[FIRST_LOG, number]));
        self.header
            .sealed_log
            .iter()
            .for_each(|&(number, bytes)| put(&[SEALED_LOG, number, bytes]));
        self.header.durable_batch.iter().for_each(|&batch| put(&[DURABLE_BATCH, batch]));
        self.removed.iter().for_each(|&number| put(&[REMOVED, number]));
        let kinds = [(HASH_STORE, &self.hash_stores), (SORTED_STORE, &self.sorted_stores)];
        for (kind, stores) in kinds {
            for store in stores {
                put(&[kind, store.partition.into(), store.number, store.bytes, store.entries]);
            }
        }
        out
    }

    fn decode(mut bytes: &[u8]) -> Result<Self, String> {
        let mut edit = Edit::default();
        while !bytes.is_empty() {
            let mut number = || {
                let (value, used) = read_varint(bytes).ok_or("an edit is cut off")?;
                bytes = &bytes[used..];
                Ok::<u64, String>(value)
            };
            match number()? {
                NEXT_FILE => edit.header.next_file = Some(number()?),
                FIRST_LOG => edit.header.first_log = Some(number()?),
                KEYS => {
                    let partitions = small(number()?)?;
                    let seed = u64::from(small(number()?)?) << 32 | u64::from(small(number()?)?);
                    edit.keys = Some(KeyHasher { seed, partitions });
                }
                SEALED_LOG => edit.header.sealed_log = Some((number()?, number()?)),
                DURABLE_BATCH => edit.header.durable_batch = Some(number()?),
                REMOVED => edit.removed.push(number()?),
                kind @ (HASH_STORE | SORTED_STORE) => {
                    let store = StoreEntry {
                        partition: small(number()?)?,
                        number: number()?,
                        bytes: number()?,
                        entries: number()?,
                    };
                    match kind {
                        HASH_STORE => edit.hash_stores.push(store),
                        _ => edit.sorted_stores.push(store),
                    }
                }
                other => {
                    return Err(format!("unknown field {other}: written by a newer version?"));
                }
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
        for number in newer.removed {
            let before = self.hash_stores.len() + self.sorted_stores.len();
            self.hash_stores.retain(|store| store.number != number);
            self.sorted_stores.retain(|store| store.number != number);
            if self.hash_stores.len() + self.sorted_stores.len() == before {
                return Err(format!("removes store {number}, which is not there"));
            }
        }
        self.hash_stores.extend(newer.hash_stores);
        self.sorted_stores.extend(newer.sorted_stores);
        self.keys = newer.keys.or(self.keys);
        Ok(())
    }
}

fn small(value: u64) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| "a number of an edit is out of range".to_owned())
}

impl std::fmt::Display for Edit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words = Vec::new();
        words.extend(self.keys.map(|keys| format!("{} partitions", keys.partitions)));
        words.extend(self.removed.iter().map(|number| format!("-{number}")));
        for (name, stores) in [("hash", &self.hash_stores), ("sorted", &self.sorted_stores)] {
            words.extend(stores.iter().map(|store| {
                let StoreEntry { partition, number, bytes, entries } = store;
                format!("+{number}.{name} P{partition} {bytes}B {entries} entries")
            }));
        }
        words.extend(self.header.words());
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_round_trip_and_malformed_ones_are_rejected() {
        let store = StoreEntry { partition: 3, number: 9, bytes: 1 << 40, entries: 77 };
        let edit = Edit {
            header: EditHeader {
                next_file: Some(300),
                first_log: Some(12),
                sealed_log: Some((12, 999)),
                ..EditHeader::default()
            },
            keys: Some(KeyHasher { seed: 0xfedc_ba98_7654_3210, partitions: 4 }),
            hash_stores: vec![store, StoreEntry { number: 10, ..store }],
            sorted_stores: vec![StoreEntry { number: 11, ..store }],
            removed: vec![1, 2],
        };
        let good = edit.encode();
        assert_eq!(Edit::decode(&good).unwrap(), edit);
        assert_eq!(Edit::decode(&[]).unwrap(), Edit::default());
        for at in 0..good.len() {
            let _ = Edit::decode(&good[..at]);
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = Edit::decode(&bad);
            }
        }
        assert!(Edit::decode(&[99]).is_err());
    }
}
