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
//! Invariant: the cursor shows the moment of its making: it holds its view, and LogStores as they were
//! between two batches.
//!
//! Source: ours.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Clock, Cursor, Error, Op, Purpose, Result, Timestamp};
use siltstone_structures::HashKey;

use crate::engine::Inner;
use crate::generation::Generation;
use crate::hash_store::{self, HashStore};
use crate::item;
use crate::keys::{Keys, cuckoo_bits};
use crate::log_store::LogStore;
use crate::sorted_store::{self, SortedStore};
use crate::version::{ENGINE, Version};

/// A cursor over one moment.
pub(crate) struct SiltCursor {
    /// The newest first, each with its LogStores as they were.
    generations: Vec<(Arc<Generation>, Vec<LogStore>)>,
    version: Arc<Version>,
    keys: Keys,
    clock: Arc<dyn Clock>,
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

/// The entry under the cursor.
struct Current {
    bytes: Vec<u8>,
    key: Range<usize>,
    value: Range<usize>,
    expires_at: Option<Timestamp>,
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
            partition: 0,
            store: 0,
            walk: Walk::Before,
            current: None,
        })
    }

    /// Moves to the next entry that is seen.
    fn advance(&mut self) -> Result<bool> {
        self.current = None;
        let now = self.clock.now();
        while self.partition < self.version.partitions.len() {
            let Some(bytes) = self.next_of_store()? else { continue };
            let current = match item::first(&bytes) {
                Some((Op::Put { key, value, expires_at }, _)) => {
                    if expires_at.is_some_and(|at| at <= now) || self.is_overwritten(key)? {
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
            self.current = Some(Current { bytes, key, value, expires_at });
            return Ok(true);
        }
        Ok(false)
    }

    /// The next entry of the store that is walked; `None` if it has ended, and the next was begun.
    fn next_of_store(&mut self) -> Result<Option<Vec<u8>>> {
        let next = match &mut self.walk {
            Walk::Before => {
                self.begin();
                return Ok(None);
            }
            Walk::Log { positions } => match positions.next() {
                Some(position) => {
                    let item = self.generations[self.store].0.read(position, Purpose::Scan)?;
                    Some(item.bytes().to_vec())
                }
                None => None,
            },
            Walk::Hash(walk) => walk.next()?.map(|(_, entry)| entry.to_vec()),
            Walk::Sorted(walk) => walk.next()?.map(<[u8]>::to_vec),
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
            None => {
                let tables = self.generations[self.store].1[self.partition].tables();
                let positions = tables.iter().flat_map(|table| table.iter());
                let mut positions: Vec<u32> = positions.map(|(_, position)| position).collect();
                positions.sort_unstable();
                Walk::Log { positions: positions.into_iter() }
            }
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

    /// Whether a store newer than the one that is walked has the key.
    fn is_overwritten(&self, key: &[u8]) -> Result<bool> {
        let hash: HashKey = self.keys.hash(key);
        let bits = cuckoo_bits(&hash);
        for (generation, stores) in self.generations.iter().take(self.store) {
            let candidates = stores[self.partition].candidates(bits);
            if generation.among(&candidates, key, Purpose::Scan)?.is_some() {
                return Ok(true);
            }
        }
        let newer = self.store.saturating_sub(self.generations.len());
        for store in self.version.partitions[self.partition].hash_stores.iter().take(newer) {
            if store.get(&hash, key, Purpose::Scan)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn current(&self) -> &Current {
        self.current.as_ref().expect("the cursor stands on an entry: ask `valid`")
    }

    fn has_no(operation: &'static str) -> Result<bool> {
        Err(Error::Unsupported { engine: ENGINE, operation })
    }
}

impl Cursor for SiltCursor {
    fn first(&mut self) -> Result<bool> {
        (self.partition, self.store, self.walk) = (0, 0, Walk::Before);
        self.advance()
    }

    fn last(&mut self) -> Result<bool> {
        Self::has_no("walking from the end")
    }

    fn seek(&mut self, _key: &[u8]) -> Result<bool> {
        Self::has_no("seeking by key order")
    }

    fn seek_back(&mut self, _key: &[u8]) -> Result<bool> {
        Self::has_no("seeking by key order")
    }

    fn next(&mut self) -> Result<bool> {
        if self.current.is_none() {
            return Err(Error::Invalid("a cursor must stand on an entry to move on".into()));
        }
        self.advance()
    }

    fn prev(&mut self) -> Result<bool> {
        Self::has_no("walking back")
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
