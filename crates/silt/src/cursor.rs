//! Walking a table: partition by partition, store by store, the newest store first.
//!
//! ```text
//!   partition 0   LogStores as they were ─▶ HashStores, newest first ─▶ SortedStore
//!                 an entry is shown unless a newer store of the walk has its key
//! ```
//!
//! Whether a newer store has a key is told by filters in memory in nearly all cases where it has not,
//! so a walk reads every store once, in the order of its file, and one entry more for each that is
//! overwritten.
//!
//! A walk that is taken up again (`position`) shows the moment of its new cursor, and hides less: where
//! only what may have come too late to be shown itself is newer than an entry, that is shown in its place.
//!
//! Invariant: the cursor shows the moment of its making: it holds its view, and LogStores as they were
//! between two batches.
//!
//! Source: ours.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Clock, Error, ForwardCursor, Op, Purpose, Result, Timestamp};
use siltstone_structures::HashKey;

use crate::engine::Inner;
use crate::generation::Generation;
use crate::hash_store::{self, HashStore};
use crate::item::{self, Item};
use crate::keys::{Keys, cuckoo_bits};
use crate::log_store::LogStore;
use crate::position::{Mark, Place, Position};
use crate::sorted_store::{self, SortedStore};
use crate::version::{ENGINE, Version};

/// A cursor over one moment.
pub(crate) struct SiltCursor {
    /// The newest first, each with its LogStores as they were.
    generations: Vec<(Arc<Generation>, Vec<LogStore>)>,
    version: Arc<Version>,
    keys: Keys,
    clock: Arc<dyn Clock>,
    opening: u64,
    /// What was there when the walk was begun; `None` until someone asks, or if that was here.
    mark: Option<Mark>,
    is_resumed: bool,
    partition: usize,
    /// The store of the partition that is walked, the newest being 0.
    store: usize,
    walk: Walk,
    current: Option<Current>,
}

/// A walk over one store.
enum Walk {
    /// The store is yet to be begun.
    Before,
    Log {
        positions: std::vec::IntoIter<u32>,
    },
    Hash(hash_store::Walk<Arc<HashStore>>),
    Sorted(sorted_store::Walk<Arc<SortedStore>>),
}

/// What is newer than an entry that the walk comes to.
enum Newer {
    Nothing,
    /// It was there when the walk was begun, and was shown in its turn.
    Shown,
    /// It came later, and may lie behind the walk: what is newest.
    Late(Item),
}

/// The entry under the cursor.
struct Current {
    bytes: Vec<u8>,
    key: Range<usize>,
    value: Range<usize>,
    expires_at: Option<Timestamp>,
    /// Its position in the log, or its slot.
    at: u32,
}

impl SiltCursor {
    pub(crate) fn new(inner: &Inner) -> Result<Self> {
        let view = inner.pin()?;
        inner.counters.seeks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let generations = view.generations();
        Ok(SiltCursor {
            generations: generations.map(|one| (one.clone(), one.stores())).collect(),
            version: view.version.clone(),
            keys: inner.versions.keys(),
            clock: inner.env.clock.clone(),
            opening: inner.opening,
            mark: None,
            is_resumed: false,
            partition: 0,
            store: 0,
            walk: Walk::Before,
            current: None,
        })
    }

    /// What there is now.
    fn mark_now(&self) -> Mark {
        let last_position = |stores: &Vec<LogStore>| {
            let tables = stores.iter().flat_map(|store| store.tables());
            tables.flat_map(|table| table.iter()).map(|(_, position)| position).max()
        };
        let newest = self.generations.first();
        let newest_store = self.version.hash_stores().map(|store| store.entry().number).max();
        Mark {
            generation: newest.map_or(0, |(generation, _)| generation.name()),
            end: newest.and_then(|(_, stores)| last_position(stores)).map_or(0, |last| last + 1),
            store: newest_store.map_or(0, |number| number + 1),
        }
    }

    /// Begins to walk behind a position, in the first store that may hold what was left.
    fn go_behind(&mut self, position: Position) -> Result<()> {
        let is_ours = position.opening == self.opening;
        self.mark = Some(if is_ours { position.mark } else { Mark::NONE });
        self.is_resumed = true;
        self.partition = position.partition as usize;
        let Some(partition) = self.version.partitions.get(self.partition) else {
            return Err(Error::Invalid("a position of a table with more partitions".into()));
        };
        let (logs, hash_stores) = (self.generations.len(), partition.hash_stores.len());
        (self.store, self.walk) = match position.place {
            Place::Log { .. } if !is_ours => (0, Walk::Before),
            Place::Log { generation, position } => {
                let is_it = |(it, _): &(Arc<Generation>, _)| it.name() == generation;
                match self.generations.iter().position(is_it) {
                    Some(store) => (store, self.walk_log(store, position.checked_add(1))),
                    None => (logs, Walk::Before),
                }
            }
            Place::Hash { store, slot } => {
                let mut stores = partition.hash_stores.iter();
                match stores.position(|it| it.entry().number == store) {
                    Some(at) => {
                        let store = partition.hash_stores[at].clone();
                        let walk = hash_store::Walk::new(store, Purpose::Scan);
                        (logs + at, Walk::Hash(walk.behind_slot(slot)))
                    }
                    None => (logs + hash_stores, Walk::Before),
                }
            }
            Place::Sorted { key } => {
                let walk = match &partition.sorted {
                    Some(store) => {
                        let (store, hash) = (store.clone(), self.keys.hash(&key));
                        Walk::Sorted(sorted_store::Walk::behind(store, &hash, Purpose::Scan)?)
                    }
                    None => Walk::Before,
                };
                (logs + hash_stores, walk)
            }
        };
        Ok(())
    }

    /// A walk over a LogStore of the partition, from a position on; over nothing if there is none.
    fn walk_log(&self, store: usize, from: Option<u32>) -> Walk {
        let tables = self.generations[store].1[self.partition].tables();
        let positions = tables.iter().flat_map(|table| table.iter()).map(|(_, position)| position);
        let mut positions: Vec<u32> =
            positions.filter(|position| from.is_some_and(|from| *position >= from)).collect();
        positions.sort_unstable();
        Walk::Log { positions: positions.into_iter() }
    }

    /// Moves to the next entry that is seen.
    fn go_on(&mut self) -> Result<bool> {
        self.current = None;
        let now = self.clock.now();
        while self.partition < self.version.partitions.len() {
            let Some((mut bytes, at)) = self.next_of_store()? else { continue };
            if let Some((Op::Put { key, .. }, _)) = item::first(&bytes) {
                match self.newer(key)? {
                    Newer::Nothing => {}
                    Newer::Shown => continue,
                    Newer::Late(item) => bytes = item.bytes().to_vec(),
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

    /// The next entry of the store that is walked, and its position or slot; `None` if the store has
    /// ended, and the next was begun.
    fn next_of_store(&mut self) -> Result<Option<(Vec<u8>, u32)>> {
        let next = match &mut self.walk {
            Walk::Before => {
                self.begin();
                return Ok(None);
            }
            Walk::Log { positions } => match positions.next() {
                Some(position) => {
                    let item = self.generations[self.store].0.read(position, Purpose::Scan)?;
                    Some((item.bytes().to_vec(), position))
                }
                None => None,
            },
            Walk::Hash(walk) => walk.next()?.map(|(slot, entry)| (entry.to_vec(), slot)),
            Walk::Sorted(walk) => walk.next()?.map(|entry| (entry.to_vec(), 0)),
        };
        if next.is_none() {
            self.store += 1;
            self.begin();
        }
        Ok(next)
    }

    /// Begins the walk over the store that is due, in the next partition if this one has no more.
    fn begin(&mut self) {
        let stores = &self.version.partitions[self.partition];
        let hash_store = self.store.checked_sub(self.generations.len());
        self.walk = match hash_store {
            None => self.walk_log(self.store, Some(0)),
            Some(at) => match (stores.hash_stores.get(at), &stores.sorted) {
                (Some(store), _) => Walk::Hash(hash_store::Walk::new(store.clone(), Purpose::Scan)),
                (None, Some(store)) if at == stores.hash_stores.len() => {
                    Walk::Sorted(sorted_store::Walk::new(store.clone(), Purpose::Scan))
                }
                _ => {
                    self.partition += 1;
                    self.store = 0;
                    Walk::Before
                }
            },
        };
    }

    /// What stores newer than the one that is walked have of the key.
    fn newer(&self, key: &[u8]) -> Result<Newer> {
        let hash: HashKey = self.keys.hash(key);
        let bits = cuckoo_bits(&hash);
        let mut newest = None;
        for (generation, stores) in self.generations.iter().take(self.store) {
            let candidates = stores[self.partition].candidates(bits);
            if let Some((position, item)) = generation.among(&candidates, key, Purpose::Scan)? {
                let was_there = |mark: &Mark| mark.has_logged(generation.name(), position);
                if !self.is_resumed || self.mark.as_ref().is_some_and(was_there) {
                    return Ok(Newer::Shown);
                }
                newest.get_or_insert(item);
            }
        }
        let newer = self.store.saturating_sub(self.generations.len());
        for store in self.version.partitions[self.partition].hash_stores.iter().take(newer) {
            if let Some(item) = store.get(&hash, key, Purpose::Scan)? {
                let was_there = |mark: &Mark| store.entry().number < mark.store;
                if !self.is_resumed || self.mark.as_ref().is_some_and(was_there) {
                    return Ok(Newer::Shown);
                }
                newest.get_or_insert(item);
            }
        }
        Ok(newest.map_or(Newer::Nothing, Newer::Late))
    }

    fn current(&self) -> &Current {
        self.current.as_ref().expect("the cursor stands on an entry: ask `valid`")
    }
}

impl ForwardCursor for SiltCursor {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn first(&mut self) -> Result<bool> {
        (self.mark, self.is_resumed) = (None, false);
        (self.partition, self.store, self.walk) = (0, 0, Walk::Before);
        self.go_on()
    }

    fn advance(&mut self) -> Result<bool> {
        self.go_on()
    }

    fn position(&self) -> Vec<u8> {
        let (current, logs) = (self.current(), self.generations.len());
        let place = match self.walk {
            Walk::Hash(_) => {
                let stores = &self.version.partitions[self.partition].hash_stores;
                Place::Hash { store: stores[self.store - logs].entry().number, slot: current.at }
            }
            Walk::Log { .. } => {
                let generation = self.generations[self.store].0.name();
                Place::Log { generation, position: current.at }
            }
            Walk::Sorted(_) | Walk::Before => Place::Sorted { key: self.key().to_vec() },
        };
        let mark = self.mark.unwrap_or_else(|| self.mark_now());
        let (opening, partition) = (self.opening, self.partition as u32);
        Position { opening, mark, partition, place }.encode()
    }

    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        self.current = None;
        let position = Position::decode(position);
        let none = || Error::Invalid("these bytes are no position of a walk".into());
        self.go_behind(position.ok_or_else(none)?)?;
        self.go_on()
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
