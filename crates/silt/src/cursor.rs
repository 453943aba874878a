//! Iteration over a table: partition by partition, and in each store by store, the newest first.
//!
//! ```text
//!   partition 0   LogStores as they were ─▶ HashStores, newest first ─▶ SortedStore
//!                 an entry is skipped if a newer store of the cursor has its key
//! ```
//!
//! In-memory filters answer most checks for newer entries, so a full scan reads every store once,
//! in file order, plus one entry per overwritten key.
//!
//! A resumed cursor (see `position`) reads the state at its creation and hides fewer entries: a
//! newer entry that was written after the scan began may lie behind the scan, so its value is
//! returned in place of the older entry.
//!
//! Invariant: a cursor returns the state at its creation. It pins its view, and copies of the
//! LogStores between two batches.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Clock, Error, ForwardCursor, Op, Purpose, Result, Timestamp};
use siltstone_structures::HashKey;

use crate::engine::SiltEngine;
use crate::generation::Generation;
use crate::hash_store::{self, HashStore};
use crate::item::{self, Item};
use crate::keys::{KeyHasher, cuckoo_bits};
use crate::log_store::LogStore;
use crate::position::{Position, ScanStart, StorePosition};
use crate::sorted_store::{self, SortedStore};
use crate::version::{ENGINE, Version};

/// A cursor over the state at its creation.
pub(crate) struct SiltCursor {
    /// The newest first, each with copies of its LogStores.
    generations: Vec<(Arc<Generation>, Vec<LogStore>)>,
    version: Arc<Version>,
    keys: KeyHasher,
    clock: Arc<dyn Clock>,
    opening: u64,
    /// Which entries existed when the scan began. `None` until the first position is requested, if
    /// the scan began at this cursor.
    start: Option<ScanStart>,
    is_resumed: bool,
    partition: usize,
    /// The index of the current store within the partition; 0 is the newest.
    store: usize,
    scan: StoreScan,
    current: Option<Current>,
}

/// An iterator over one store.
enum StoreScan {
    /// The current store has not been opened yet.
    Unopened,
    Log {
        positions: std::vec::IntoIter<u32>,
    },
    Hash(hash_store::Scan<Arc<HashStore>>),
    Sorted(sorted_store::Scan<Arc<SortedStore>>),
}

/// The result of looking for an entry newer than the current one of the scan.
enum NewerEntry {
    None,
    /// It existed when the scan began, so the scan has returned it.
    Returned,
    /// It was written later and may lie behind the scan: the newest one.
    Late(Item),
}

/// The entry that the cursor is at.
struct Current {
    bytes: Vec<u8>,
    key: Range<usize>,
    value: Range<usize>,
    expires_at: Option<Timestamp>,
    /// Its position in the log, or its slot; 0 in a SortedStore.
    at: u32,
}

impl SiltCursor {
    pub(crate) fn new(engine: &SiltEngine) -> Result<Self> {
        let view = engine.pin()?;
        engine.counters.seeks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let generations = view.memtables();
        Ok(SiltCursor {
            generations: generations.map(|one| (one.clone(), one.stores())).collect(),
            version: view.version.clone(),
            keys: engine.keys,
            clock: engine.env.clock.clone(),
            opening: engine.opening,
            start: None,
            is_resumed: false,
            partition: 0,
            store: 0,
            scan: StoreScan::Unopened,
            current: None,
        })
    }

    /// Describes the entries that exist now.
    fn current_start(&self) -> ScanStart {
        let last_position = |stores: &Vec<LogStore>| {
            let tables = stores.iter().flat_map(|store| store.tables());
            tables.flat_map(|table| table.iter()).map(|(_, position)| position).max()
        };
        let newest = self.generations.first();
        let newest_store = self.version.hash_stores().map(|store| store.entry().number).max();
        ScanStart {
            generation: newest.map_or(0, |(generation, _)| generation.name()),
            end: newest.and_then(|(_, stores)| last_position(stores)).map_or(0, |last| last + 1),
            store: newest_store.map_or(0, |number| number + 1),
        }
    }

    /// Continues after a position, in the first store that may hold the remaining entries.
    fn seek_after(&mut self, position: Position) -> Result<()> {
        let is_same_opening = position.opening == self.opening;
        self.start = Some(if is_same_opening { position.start } else { ScanStart::NONE });
        self.is_resumed = true;
        self.partition = position.partition as usize;
        let Some(partition) = self.version.partitions.get(self.partition) else {
            return Err(Error::Invalid("the position is of a table with more partitions".into()));
        };
        let (logs, hash_stores) = (self.generations.len(), partition.hash_stores.len());
        (self.store, self.scan) = match position.place {
            StorePosition::Log { .. } if !is_same_opening => (0, StoreScan::Unopened),
            StorePosition::Log { generation, position } => {
                let is_named = |(it, _): &(Arc<Generation>, _)| it.name() == generation;
                match self.generations.iter().position(is_named) {
                    Some(store) => (store, self.scan_log(store, position.checked_add(1))),
                    None => (logs, StoreScan::Unopened),
                }
            }
            StorePosition::Hash { store, slot } => {
                let mut stores = partition.hash_stores.iter();
                match stores.position(|it| it.entry().number == store) {
                    Some(at) => {
                        let store = partition.hash_stores[at].clone();
                        let scan = hash_store::Scan::new(store, Purpose::Scan);
                        (logs + at, StoreScan::Hash(scan.after_slot(slot)))
                    }
                    None => (logs + hash_stores, StoreScan::Unopened),
                }
            }
            StorePosition::Sorted { key } => {
                let scan = match &partition.sorted {
                    Some(store) => {
                        let (store, hash) = (store.clone(), self.keys.hash(&key));
                        StoreScan::Sorted(sorted_store::Scan::after(store, &hash, Purpose::Scan)?)
                    }
                    None => StoreScan::Unopened,
                };
                (logs + hash_stores, scan)
            }
        };
        Ok(())
    }

    /// Iterates over a LogStore of the partition from a position on; over nothing for `None`.
    fn scan_log(&self, store: usize, from: Option<u32>) -> StoreScan {
        let tables = self.generations[store].1[self.partition].tables();
        let positions = tables.iter().flat_map(|table| table.iter()).map(|(_, position)| position);
        let mut positions: Vec<u32> =
            positions.filter(|position| from.is_some_and(|from| *position >= from)).collect();
        positions.sort_unstable();
        StoreScan::Log { positions: positions.into_iter() }
    }

    /// Moves to the next visible entry.
    fn advance_to_visible(&mut self) -> Result<bool> {
        self.current = None;
        let now = self.clock.now();
        while self.partition < self.version.partitions.len() {
            let Some((mut bytes, at)) = self.next_in_store()? else { continue };
            if let Some((Op::Put { key, .. }, _)) = item::first(&bytes) {
                match self.find_newer(key)? {
                    NewerEntry::None => {}
                    NewerEntry::Returned => continue,
                    NewerEntry::Late(item) => bytes = item.bytes().to_vec(),
                }
            }
            let current = match item::first(&bytes) {
                Some((Op::Put { key, value, expires_at }, _)) => {
                    if expires_at.is_some_and(|at| at <= now) {
                        continue;
                    }
                    let base = bytes.as_ptr().addr();
                    let range = |part: &[u8]| {
                        let start = part.as_ptr().addr() - base;
                        start..start + part.len()
                    };
                    (range(key), range(value), expires_at)
                }
                _ => continue,
            };
            let (key, value, expires_at) = current;
            self.current = Some(Current { bytes, key, value, expires_at, at });
            return Ok(true);
        }
        Ok(false)
    }

    /// The next entry of the current store, and its position or slot. `None` if the store has
    /// ended; the next one is current then.
    fn next_in_store(&mut self) -> Result<Option<(Vec<u8>, u32)>> {
        let next = match &mut self.scan {
            StoreScan::Unopened => {
                self.open_store();
                return Ok(None);
            }
            StoreScan::Log { positions } => match positions.next() {
                Some(position) => {
                    let item = self.generations[self.store].0.read(position, Purpose::Scan)?;
                    Some((item.bytes().to_vec(), position))
                }
                None => None,
            },
            StoreScan::Hash(scan) => scan.next()?.map(|(slot, entry)| (entry.to_vec(), slot)),
            StoreScan::Sorted(scan) => scan.next()?.map(|entry| (entry.to_vec(), 0)),
        };
        if next.is_none() {
            self.store += 1;
            self.open_store();
        }
        Ok(next)
    }

    /// Opens the current store, or moves to the next partition if this one has no more stores.
    fn open_store(&mut self) {
        let stores = &self.version.partitions[self.partition];
        let hash_store = self.store.checked_sub(self.generations.len());
        self.scan = match hash_store {
            None => self.scan_log(self.store, Some(0)),
            Some(at) => match (stores.hash_stores.get(at), &stores.sorted) {
                (Some(store), _) => {
                    StoreScan::Hash(hash_store::Scan::new(store.clone(), Purpose::Scan))
                }
                (None, Some(store)) if at == stores.hash_stores.len() => {
                    StoreScan::Sorted(sorted_store::Scan::new(store.clone(), Purpose::Scan))
                }
                _ => {
                    self.partition += 1;
                    self.store = 0;
                    StoreScan::Unopened
                }
            },
        };
    }

    /// Looks for the key in the stores newer than the current one.
    fn find_newer(&self, key: &[u8]) -> Result<NewerEntry> {
        let hash: HashKey = self.keys.hash(key);
        let bits = cuckoo_bits(&hash);
        let mut newest = None;
        for (generation, stores) in self.generations.iter().take(self.store) {
            let candidates = stores[self.partition].candidates(bits);
            if let Some((position, item)) = generation.among(&candidates, key, Purpose::Scan)? {
                let existed = |start: &ScanStart| start.existed_in_log(generation.name(), position);
                if !self.is_resumed || self.start.as_ref().is_some_and(existed) {
                    return Ok(NewerEntry::Returned);
                }
                newest.get_or_insert(item);
            }
        }
        let newer = self.store.saturating_sub(self.generations.len());
        for store in self.version.partitions[self.partition].hash_stores.iter().take(newer) {
            if let Some(item) = store.get(&hash, key, Purpose::Scan)? {
                let existed = |start: &ScanStart| store.entry().number < start.store;
                if !self.is_resumed || self.start.as_ref().is_some_and(existed) {
                    return Ok(NewerEntry::Returned);
                }
                newest.get_or_insert(item);
            }
        }
        Ok(newest.map_or(NewerEntry::None, NewerEntry::Late))
    }

    fn current(&self) -> &Current {
        self.current.as_ref().expect("the cursor is at an entry: check `valid`")
    }
}

impl ForwardCursor for SiltCursor {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn first(&mut self) -> Result<bool> {
        (self.start, self.is_resumed) = (None, false);
        (self.partition, self.store, self.scan) = (0, 0, StoreScan::Unopened);
        self.advance_to_visible()
    }

    fn advance(&mut self) -> Result<bool> {
        self.advance_to_visible()
    }

    fn position(&self) -> Vec<u8> {
        let (current, logs) = (self.current(), self.generations.len());
        let place = match self.scan {
            StoreScan::Hash(_) => {
                let stores = &self.version.partitions[self.partition].hash_stores;
                StorePosition::Hash {
                    store: stores[self.store - logs].entry().number,
                    slot: current.at,
                }
            }
            StoreScan::Log { .. } => {
                let generation = self.generations[self.store].0.name();
                StorePosition::Log { generation, position: current.at }
            }
            StoreScan::Sorted(_) | StoreScan::Unopened => {
                StorePosition::Sorted { key: self.key().to_vec() }
            }
        };
        let start = self.start.unwrap_or_else(|| self.current_start());
        let (opening, partition) = (self.opening, self.partition as u32);
        Position { opening, start, partition, place }.encode()
    }

    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        self.current = None;
        let position = Position::decode(position);
        let none = || Error::Invalid("the bytes are not a position of a scan".into());
        self.seek_after(position.ok_or_else(none)?)?;
        self.advance_to_visible()
    }

    fn valid(&self) -> bool {
        self.current.is_some()
    }

    fn key(&self) -> &[u8] {
        let current = self.current();
        &current.bytes[current.key.clone()]
    }

    fn value(&self) -> &[u8] {
        let current = self.current();
        &current.bytes[current.value.clone()]
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.current().expires_at
    }
}
