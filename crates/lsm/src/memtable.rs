//! The memtable: the newest writes, in memory, in key order.
//!
//! One node a key holds the chain of its versions and counts its updates; each version knows where
//! in the log it stands. TRIAD needs both (TRIAD paper, sections 4.1 and 4.3); the plain tree uses
//! the count to report how much a flush saved.

use std::sync::Arc;

use siltstone_engine::{Op, Result};
use siltstone_structures::{NewVersion, SkipList};
use siltstone_table::{EntryRef, Kind};

/// The writes of one stretch of the log.
pub(crate) struct Memtable {
    /// The oldest log that holds writes of this memtable.
    pub(crate) first_log: u64,
    list: Arc<SkipList>,
}

impl Memtable {
    pub(crate) fn new(first_log: u64, seed: u64) -> Self {
        Memtable { first_log, list: Arc::new(SkipList::new(seed)) }
    }

    /// Adds one operation, which stands in the log at `position`.
    pub(crate) fn add(&self, sequence: u64, op: Op<'_>, position: u64) {
        let (kind, expires_at, value) = match op {
            Op::Delete { .. } => (Kind::Delete, 0, &[][..]),
            Op::Put { value, expires_at: None, .. } => (Kind::Put, 0, value),
            Op::Put { value, expires_at: Some(at), .. } => (Kind::PutExpiring, at, value),
        };
        let version = NewVersion { sequence, kind: kind as u8, expires_at, position, value };
        self.list.insert(op.key(), version);
    }

    pub(crate) fn list(&self) -> &Arc<SkipList> {
        &self.list
    }

    /// Every version, in the order of tables.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(EntryRef<'_>) -> Result<()>) -> Result<()> {
        for entry in self.list.iter() {
            for version in entry.versions() {
                visit(EntryRef {
                    key: entry.key(),
                    sequence: version.sequence,
                    kind: kind_of(version.kind),
                    expires_at: version.expires_at,
                    value: version.value,
                })?;
            }
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.keys() == 0
    }

    /// Resident memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.list.memory_bytes() as u64
    }
}

/// The kind of a version in a memtable.
pub(crate) fn kind_of(bits: u8) -> Kind {
    Kind::from_bits(bits).expect("memtables are filled with kinds")
}
