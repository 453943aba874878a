//! The memtable: the newest writes, in memory, in key order.
//!
//! ```text
//!   BLinkTree   key ─▶ entry: count of updates ─▶ newest version ─▶ older version ─▶ …
//!                                                 (sequence, kind, value, position in the log)
//!   beside it   range deletions, a Bloom filter of the keys
//! ```
//!
//! Unlike LevelDB's, which has one entry per write, it has one per key. TRIAD needs the count of
//! updates to find hot keys, and the positions to flush an index of the log in place of values
//! (TRIAD paper, sections 4.1 and 4.3).
//!
//! Most lookups are for keys that are in an older memtable or in a table. The filter saves them the
//! search: some 700 instructions, and a few cache misses.
//!
//! Invariant: one writer at a time; readers take no lock and see each version whole. The filter has
//! a key before the tree has it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use siltstone_engine::{BatchOp, Op, Result};
use siltstone_structures::{BLinkTree, ChunkPool, GrowingBloom, NewVersion, Version, hash64};
use siltstone_table::{EntryRef, Kind, SyncHandle};

use crate::compact::MemtableStats;
use crate::range_deletes::{GrowingRangeDeletes, RangeDelete, RangeDeletes};
use crate::record::Position;

/// The filter takes this part of the memory of a full memtable: 10 bits per key, if a key with its
/// value takes 160 bytes there.
const FILTER_DIVISOR: usize = 128;

/// The writes of one section of the log.
pub struct Memtable {
    /// The oldest log that holds writes of this memtable.
    pub(crate) first_log: u64,
    /// Set when the memtable is full, if one log contains all of it.
    wal: OnceLock<SealedWal>,
    /// A caller waits until all of it is in tables. Set while the writer is locked.
    flush_forced: AtomicBool,
    is_novelsm: bool,
    tree: Arc<BLinkTree>,
    filter: Option<GrowingBloom>,
    range_deletes: GrowingRangeDeletes,
    /// The sequence numbers of the versions in `tree`; written only by the writer.
    min_sequence: AtomicU64,
    max_sequence: AtomicU64,
    /// The newest sequence number of any operation, also of one without effect, such as the
    /// deletion of an empty range.
    last_sequence: AtomicU64,
}

/// The location of a version of a memtable.
pub(crate) struct VersionLocation {
    /// The index of its key, in key order.
    pub(crate) key_index: usize,
    /// No newer version of the key is in this memtable.
    pub(crate) is_newest: bool,
    /// The position of its record in the log.
    pub(crate) position: Position,
}

/// The complete log of a memtable that takes no more writes.
pub(crate) struct SealedWal {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) sync: SyncHandle,
}

impl Memtable {
    pub(crate) fn new(first_log: u64) -> Self {
        Self::of(first_log, BLinkTree::new(), None)
    }

    /// As [`new`](Self::new), with memory recycled from dropped memtables, and a filter for as much
    /// memory as these may take.
    pub(crate) fn with_chunk_pool(first_log: u64, chunks: &Arc<ChunkPool>) -> Self {
        let filter = GrowingBloom::new(chunks.max_bytes() / FILTER_DIVISOR);
        Self::of(first_log, BLinkTree::with_chunk_pool(chunks), Some(filter))
    }

    /// A memtable that emulates NoveLSM's mutable one in persistent memory.
    pub(crate) fn novelsm(first_log: u64) -> Self {
        Memtable { is_novelsm: true, ..Self::new(first_log) }
    }

    fn of(first_log: u64, tree: BLinkTree, filter: Option<GrowingBloom>) -> Self {
        let (wal, flush_forced, tree) = (OnceLock::new(), AtomicBool::new(false), Arc::new(tree));
        Memtable {
            first_log,
            wal,
            flush_forced,
            is_novelsm: false,
            tree,
            filter,
            range_deletes: GrowingRangeDeletes::default(),
            min_sequence: AtomicU64::new(u64::MAX),
            max_sequence: AtomicU64::new(0),
            last_sequence: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_novelsm(&self) -> bool {
        self.is_novelsm
    }

    /// From now on nothing of this memtable may be retained in a younger one.
    pub(crate) fn force_flush(&self) {
        self.flush_forced.store(true, Relaxed);
    }

    pub(crate) fn is_flush_forced(&self) -> bool {
        self.flush_forced.load(Relaxed)
    }

    /// Marks the memtable as full; `log` is the last log with its writes.
    pub(crate) fn seal(&self, wal: SealedWal) {
        if wal.number == self.first_log {
            let _ = self.wal.set(wal);
        }
    }

    /// The log with every write of this memtable, once it is full and if there is exactly one.
    pub(crate) fn sealed_wal(&self) -> Option<&SealedWal> {
        self.wal.get()
    }

    /// Adds one operation, whose record is at `position` in the log.
    pub(crate) fn add(&self, sequence: u64, op: Op<'_>, position: Position) {
        let (kind, expires_at, value) = match op {
            Op::Delete { .. } => (Kind::Delete, 0, &[][..]),
            Op::Put { value, expires_at: None, .. } => (Kind::Put, 0, value),
            Op::Put { value, expires_at: Some(at), .. } => (Kind::PutExpiring, at, value),
        };
        self.insert(op.key(), sequence, kind, expires_at, position, value);
    }

    /// Adds the merge of an operand.
    pub(crate) fn merge(&self, sequence: u64, key: &[u8], operand: &[u8], position: Position) {
        self.insert(key, sequence, Kind::Merge, 0, position, operand);
    }

    fn insert(
        &self,
        key: &[u8],
        sequence: u64,
        kind: Kind,
        expires_at: u64,
        position: Position,
        value: &[u8],
    ) {
        let position = position.bits();
        let version = NewVersion { sequence, kind: kind as u8, expires_at, position, value };
        // Before the version can be seen, so that readers of both see the bounds.
        if sequence < self.min_sequence.load(Relaxed) {
            self.min_sequence.store(sequence, Relaxed);
        }
        if sequence > self.max_sequence.load(Relaxed) {
            self.max_sequence.store(sequence, Relaxed);
        }
        self.note_sequence(sequence);
        if let Some(filter) = &self.filter {
            filter.insert(hash64(key));
        }
        self.tree.insert(key, version);
    }

    /// The newest version of a key, of the hash `hash`, with a sequence number of at most `at`,
    /// which must be visible. Cost: one word of the filter for most keys that it does not have, a
    /// search for the others.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], hash: u64, at: u64) -> Option<Version<'_>> {
        if self.filter.as_ref().is_some_and(|filter| !filter.may_contain(hash)) {
            return None;
        }
        self.tree.get(key, at)
    }

    /// Adds a range deletion.
    pub(crate) fn delete_range(&self, sequence: u64, start: &[u8], end: Option<&[u8]>) {
        self.note_sequence(sequence);
        let (start, end) = (start.to_vec(), end.map(<[u8]>::to_vec));
        self.range_deletes.push(RangeDelete { start, end, sequence });
    }

    fn note_sequence(&self, sequence: u64) {
        if sequence > self.last_sequence.load(Relaxed) {
            self.last_sequence.store(sequence, Relaxed);
        }
    }

    /// Adds one operation of any kind.
    pub(crate) fn apply(&self, sequence: u64, op: BatchOp<'_>, position: Position) {
        match op {
            BatchOp::Point(op) => self.add(sequence, op, position),
            BatchOp::DeleteRange { start, end } => self.delete_range(sequence, start, end),
            BatchOp::Merge { key, operand } => self.merge(sequence, key, operand, position),
        }
    }

    /// Its range deletions; `None` if there are none.
    pub(crate) fn range_deletes(&self) -> Option<Arc<RangeDeletes>> {
        self.range_deletes.get()
    }

    pub(crate) fn range_delete_count(&self) -> usize {
        self.range_deletes.len()
    }

    /// The oldest version of any key; `u64::MAX` without keys.
    pub(crate) fn min_sequence(&self) -> u64 {
        self.min_sequence.load(Relaxed)
    }

    /// The newest version of any key so far; 0 without keys.
    pub(crate) fn max_sequence(&self) -> u64 {
        self.max_sequence.load(Relaxed)
    }

    /// The newest sequence number of any operation; 0 if there was none.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence.load(Relaxed)
    }

    /// Whether nothing was written to it.
    pub(crate) fn is_empty(&self) -> bool {
        self.last_sequence() == 0
    }

    pub(crate) fn tree(&self) -> &Arc<BLinkTree> {
        &self.tree
    }

    /// Visits every version with its location, in the order of tables.
    pub(crate) fn for_each(
        &self,
        mut visit: impl FnMut(EntryRef<'_>, VersionLocation) -> Result<()>,
    ) -> Result<()> {
        for (key, entry) in self.tree.iter().enumerate() {
            for (age, version) in entry.versions().enumerate() {
                let position = Position::from_bits(version.position);
                let entry = EntryRef {
                    key: entry.key(),
                    sequence: version.sequence,
                    kind: kind_of(version.kind),
                    expires_at: version.expires_at,
                    value: version.value,
                };
                visit(entry, VersionLocation { key_index: key, is_newest: age == 0, position })?;
            }
        }
        Ok(())
    }

    /// The number of operations and of keys.
    pub(crate) fn stats(&self) -> MemtableStats {
        MemtableStats { writes: self.tree.versions() as u64, keys: self.tree.keys() as u64 }
    }

    /// The smallest and the largest key; `None` if there are none.
    pub(crate) fn span(&self) -> Option<(&[u8], &[u8])> {
        Some((self.tree.iter().next()?.key(), self.tree.last_entry()?.key()))
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.tree.keys() > 0
    }

    /// Memory of keys and versions, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.tree.memory_bytes() as u64
    }

    /// Memory of the filter, in bytes.
    pub(crate) fn filter_bytes(&self) -> u64 {
        self.filter.as_ref().map_or(0, GrowingBloom::memory_bytes) as u64
    }
}

/// The kind of a version in a memtable.
pub(crate) fn kind_of(bits: u8) -> Kind {
    Kind::from_bits(bits).expect("memtables contain valid kinds only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memtable_with_a_filter_finds_its_keys_and_searches_for_few_others() {
        const KEYS: u64 = 1000;
        let memtable = Memtable::with_chunk_pool(1, &Arc::new(ChunkPool::new(256 << 10)));
        let filter = memtable.filter.as_ref().unwrap();
        let key = |i: u64| i.to_be_bytes();
        for i in 0..KEYS {
            let op = Op::Put { key: &key(i), value: b"v", expires_at: None };
            memtable.add(i + 1, op, Position::new(0, 0));
        }
        for i in 0..KEYS {
            let hash = hash64(&key(i));
            let found = memtable.get(&key(i), hash, KEYS).unwrap();
            assert_eq!((found.sequence, found.value), (i + 1, &b"v"[..]));
            assert!(memtable.get(&key(i), hash, i).is_none(), "not visible yet");
        }
        let others = KEYS..2 * KEYS;
        assert!(others.clone().all(|i| memtable.get(&key(i), hash64(&key(i)), KEYS).is_none()));
        let searched = others.filter(|i| filter.may_contain(hash64(&key(*i)))).count();
        assert!(searched < KEYS as usize / 20, "{searched} of {KEYS}");
        assert_eq!(memtable.filter_bytes(), 2 << 10);
    }
}
