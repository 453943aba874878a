//! A generation: consecutive log segments, and the LogStores of all partitions that index them.
//!
//! ```text
//!   logs      000004.log   000007.log            one, or several after a reopening
//!   base      0            81920                 position = base + offset in its log
//!   stores    [LogStore 0] [LogStore 1] …        each under a lock of its own
//! ```
//!
//! The newest generation takes writes; older ones wait for their conversion and only answer reads.
//! A writer indexes a batch under the locks of all partitions that the batch touches, so no reader
//! sees a part of it. The log is never read under a lock.
//!
//! Invariant: an index entry points to a complete record of a batch that is in the log completely.
//!
//! Source: the LogStore is the thesis's (section 2.2).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::RwLock;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::HashKey;
use siltstone_table::{BatchReader, LogAccess};

use crate::item::Item;
use crate::keys::cuckoo_bits;
use crate::log_store::LogStore;
use crate::names::Kind;
use crate::record::{HEAD, Record};

/// The maximum size of the first read of a record whose length is unknown: a page.
const MAX_EXPECTED_BYTES: u64 = 4 << 10;

/// One log of a generation.
struct GenerationLog {
    base: u64,
    number: u64,
    access: LogAccess,
}

impl GenerationLog {
    /// Checks that the record at `offset` is an operation.
    fn check(&self, offset: u64, record: &[u8]) -> Result<()> {
        let reason = match Record::decode(record) {
            Ok(Record::Operation { .. }) => return Ok(()),
            Ok(Record::Link(_)) => "no operation is here".to_owned(),
            Err(reason) => reason,
        };
        Err(Error::corruption(Kind::Log.name(self.number), offset, reason))
    }
}

/// Reads the operations of a generation in the order of their positions.
pub(crate) struct Sweep<'a> {
    generation: &'a Generation,
    purpose: Purpose,
    /// The log that is swept, by its base.
    log: Option<(u64, BatchReader<'a>)>,
    record: Vec<u8>,
}

impl Sweep<'_> {
    /// The operation at a position from a LogStore. Cost, if positions ascend: one read of the log
    /// for many operations.
    pub(crate) fn read(&mut self, position: u32) -> Result<&[u8]> {
        let generation_log = self.generation.log_at(position)?;
        let offset = u64::from(position) - generation_log.base;
        let held = self.log.take().filter(|(base, _)| *base == generation_log.base);
        let begin =
            || (generation_log.base, BatchReader::new(&generation_log.access, self.purpose));
        let (_, log) = self.log.insert(held.unwrap_or_else(begin));
        self.record.clear();
        log.read(offset, &mut self.record)?;
        generation_log.check(offset, &self.record)?;
        Ok(&self.record[HEAD..])
    }
}

/// The LogStores of all partitions over the same log segments.
pub struct Generation {
    logs: Vec<GenerationLog>,
    stores: Vec<RwLock<LogStore>>,
    /// The longest record so far, up to a page: the size of the first read of a record, in bytes.
    expected: AtomicU64,
}

/// An operation to be indexed.
pub(crate) struct IndexInsert {
    pub(crate) partition: usize,
    pub(crate) bits: u64,
    /// The position of the key's present entry, if it is indexed in this generation.
    pub(crate) old: Option<u32>,
    pub(crate) position: u32,
    /// Bytes of the operation.
    pub(crate) bytes: u32,
}

impl Generation {
    /// Empty LogStores over no log yet.
    pub(crate) fn new(partitions: u32, slots: u32) -> Self {
        let stores = (0..partitions).map(|_| RwLock::new(LogStore::new(slots))).collect();
        Generation { logs: Vec::new(), stores, expected: AtomicU64::new(0) }
    }

    /// Continues in another log. The previous log must be sealed; it has `length_before` bytes.
    pub(crate) fn add_log(&mut self, number: u64, access: LogAccess, length_before: u64) {
        let base = self.logs.last().map_or(0, |last| last.base + length_before);
        self.logs.push(GenerationLog { base, number, access });
    }

    /// The position of the first byte of the newest log; positions count through all logs.
    pub(crate) fn base(&self) -> u64 {
        self.logs.last().map_or(0, |log| log.base)
    }

    /// The number of its first log, which is its name.
    pub(crate) fn name(&self) -> u64 {
        self.logs.first().map_or(0, |log| log.number)
    }

    /// The numbers of its logs, ascending.
    pub(crate) fn log_numbers(&self) -> impl Iterator<Item = u64> {
        self.logs.iter().map(|log| log.number)
    }

    /// The position of a key and its newest entry, if it is in this generation.
    pub(crate) fn find(
        &self,
        partition: usize,
        hash: &HashKey,
        key: &[u8],
        purpose: Purpose,
    ) -> Result<Option<(u32, Item)>> {
        let candidates = self.stores[partition].read().candidates(cuckoo_bits(hash));
        self.among(&candidates, key, purpose)
    }

    /// The one of these positions whose entry has the key `key`, with the entry.
    pub(crate) fn among(
        &self,
        candidates: &[u32],
        key: &[u8],
        purpose: Purpose,
    ) -> Result<Option<(u32, Item)>> {
        for &position in candidates {
            let item = self.read(position, purpose)?;
            if item.op().is_some_and(|op| op.key() == key) {
                return Ok(Some((position, item)));
            }
        }
        Ok(None)
    }

    /// The operation at a position from a LogStore. Cost: one read, two for a long operation.
    pub(crate) fn read(&self, position: u32, purpose: Purpose) -> Result<Item> {
        let log = self.log_at(position)?;
        let offset = u64::from(position) - log.base;
        let mut bytes = Vec::new();
        log.access.read(offset, self.expected.load(Relaxed), &mut bytes, purpose)?;
        log.check(offset, &bytes)?;
        Ok(Item::new(bytes, HEAD))
    }

    /// A reader for operations at ascending positions, which reads each log block at most once.
    pub(crate) fn sweep(&self, purpose: Purpose) -> Sweep<'_> {
        Sweep { generation: self, purpose, log: None, record: Vec::new() }
    }

    /// The log that a position is in.
    fn log_at(&self, position: u32) -> Result<&GenerationLog> {
        let at = self.logs.partition_point(|log| log.base <= u64::from(position));
        let log = at.checked_sub(1).and_then(|at| self.logs.get(at));
        log.ok_or_else(|| Error::Invalid("a position before the log of its LogStore".into()))
    }

    /// Indexes operations, of distinct keys, so that readers see all of them or none.
    pub(crate) fn insert(&self, operations: &[IndexInsert]) {
        let longest = operations.iter().map(|op| u64::from(op.bytes) + HEAD as u64).max();
        self.expected.fetch_max(longest.unwrap_or(0).min(MAX_EXPECTED_BYTES), Relaxed);
        let mut is_touched = vec![false; self.stores.len()];
        operations.iter().for_each(|op| is_touched[op.partition] = true);
        // Locked in the order of partitions, as everywhere, so that there are no deadlocks.
        let mut held: Vec<_> = (self.stores.iter().zip(&is_touched))
            .map(|(store, &is_touched)| is_touched.then(|| store.write()))
            .collect();
        for op in operations {
            if let Some(store) = &mut held[op.partition] {
                store.insert(op.bits, op.old, op.position, op.bytes);
            }
        }
    }

    /// A consistent copy of all stores (copy on write). Cost: a few pointers per store.
    pub(crate) fn stores(&self) -> Vec<LogStore> {
        let held: Vec<_> = self.stores.iter().map(RwLock::read).collect();
        held.iter().map(|store| LogStore::clone(store)).collect()
    }

    /// A copy of the store of a partition (copy on write).
    pub(crate) fn store(&self, partition: usize) -> LogStore {
        self.stores[partition].read().clone()
    }

    /// Whether any store is full at the load factor `load`, from 0 to 1.
    pub(crate) fn is_full(&self, load: f64) -> bool {
        self.stores.iter().any(|store| store.read().is_full(load))
    }

    pub(crate) fn entries(&self) -> u64 {
        self.stores.iter().map(|store| store.read().entries()).sum()
    }

    pub(crate) fn memory(&self) -> u64 {
        self.stores.iter().map(|store| store.read().memory()).sum()
    }
}
