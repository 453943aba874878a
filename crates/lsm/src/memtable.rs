//! The memtable: the newest writes, in memory, in key order.
//!
//! One entry a key holds the chain of its versions and counts its updates; each version knows where
//! in the log it stands. TRIAD needs both (TRIAD paper, sections 4.1 and 4.3); the plain tree uses
//! the count to report how much a flush saved.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use siltstone_engine::{Op, Result};
use siltstone_structures::{BLinkTree, ChunkPool, NewVersion};
use siltstone_table::{EntryRef, Kind, SyncHandle};

use crate::compact::Seen;
use crate::record::Position;

/// The writes of one stretch of the log.
pub(crate) struct Memtable {
    /// The oldest log that holds writes of this memtable.
    pub(crate) first_log: u64,
    /// Set when the memtable is full, if one log holds all of it.
    log: OnceLock<FullLog>,
    /// Someone waits for all of it to be in tables. Set while the writer is locked.
    wanted: AtomicBool,
    is_large: bool,
    tree: Arc<BLinkTree>,
}

/// Where a version of a memtable stands.
pub(crate) struct Place {
    /// The number of its key, in key order.
    pub(crate) key: usize,
    /// No newer version of the key is in this memtable.
    pub(crate) is_newest: bool,
    /// In the log.
    pub(crate) position: Position,
}

/// The log of a memtable that takes no more writes.
pub(crate) struct FullLog {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) sync: SyncHandle,
}

impl Memtable {
    pub(crate) fn new(first_log: u64) -> Self {
        Self::of(first_log, BLinkTree::new())
    }

    /// The same, in the memory of memtables that are no more.
    pub(crate) fn with_spares(first_log: u64, spares: &Arc<ChunkPool>) -> Self {
        Self::of(first_log, BLinkTree::with_spares(spares))
    }

    /// One that stands for a mutable memtable in persistent memory.
    pub(crate) fn large(first_log: u64) -> Self {
        Memtable { is_large: true, ..Self::new(first_log) }
    }

    fn of(first_log: u64, tree: BLinkTree) -> Self {
        let (log, wanted, tree) = (OnceLock::new(), AtomicBool::new(false), Arc::new(tree));
        Memtable { first_log, log, wanted, is_large: false, tree }
    }

    pub(crate) fn is_large(&self) -> bool {
        self.is_large
    }

    /// From now on nothing of this memtable may be left to a newer one.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Relaxed);
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// Tells the memtable that it is full and `log` is the last that was written for it.
    pub(crate) fn set_full(&self, log: FullLog) {
        if log.number == self.first_log {
            let _ = self.log.set(log);
        }
    }

    /// The log that holds every write of this memtable, once it is full and if there is one such.
    pub(crate) fn full_log(&self) -> Option<&FullLog> {
        self.log.get()
    }

    /// Adds one operation, whose record stands in the log at `position`.
    pub(crate) fn add(&self, sequence: u64, op: Op<'_>, position: Position) {
        let (kind, expires_at, value) = match op {
            Op::Delete { .. } => (Kind::Delete, 0, &[][..]),
            Op::Put { value, expires_at: None, .. } => (Kind::Put, 0, value),
            Op::Put { value, expires_at: Some(at), .. } => (Kind::PutExpiring, at, value),
        };
        let position = position.bits();
        let version = NewVersion { sequence, kind: kind as u8, expires_at, position, value };
        self.tree.insert(op.key(), version);
    }

    pub(crate) fn tree(&self) -> &Arc<BLinkTree> {
        &self.tree
    }

    /// Every version with its place, in the order of tables.
    pub(crate) fn for_each(
        &self,
        mut visit: impl FnMut(EntryRef<'_>, Place) -> Result<()>,
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
                visit(entry, Place { key, is_newest: age == 0, position })?;
            }
        }
        Ok(())
    }

    /// How many operations it took, for how many keys.
    pub(crate) fn seen(&self) -> Seen {
        Seen { writes: self.tree.versions() as u64, keys: self.tree.keys() as u64 }
    }

    /// The smallest and the largest key; `None` if there are none.
    pub(crate) fn span(&self) -> Option<(&[u8], &[u8])> {
        Some((self.tree.iter().next()?.key(), self.tree.last_entry()?.key()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tree.keys() == 0
    }

    /// Resident memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.tree.memory_bytes() as u64
    }
}

/// The kind of a version in a memtable.
pub(crate) fn kind_of(bits: u8) -> Kind {
    Kind::from_bits(bits).expect("memtables are filled with kinds")
}
