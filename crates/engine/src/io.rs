//! The purpose of I/O requests, and counters by purpose.
//!
//! Every request to a file names its [`Purpose`], so write and read amplification are counted in
//! the same way for every engine, below all caches. Requests to files ([`IoCounts`]) and accesses
//! to byte-addressable memory ([`NvmCounts`]) are counted separately, because a byte costs a
//! different amount in each; write amplification is defined by the former.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(feature = "serde")]
use serde::Serialize;

/// The purpose of an I/O request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum Purpose {
    /// The write-ahead log.
    Log,
    /// Writing a memtable or write buffer to its first file.
    Flush,
    /// Merging and moving data that is already in files.
    Compaction,
    /// The manifest: the list of files of a table.
    Manifest,
    /// A point lookup.
    Get,
    /// A range scan or an iteration over the table.
    Scan,
    /// Opening: manifests, indexes, filters, log replay.
    Recovery,
    /// Verifying, copying or repairing on request.
    Maintenance,
}

impl Purpose {
    /// Every purpose, in order.
    pub const ALL: [Purpose; 8] = [
        Purpose::Log,
        Purpose::Flush,
        Purpose::Compaction,
        Purpose::Manifest,
        Purpose::Get,
        Purpose::Scan,
        Purpose::Recovery,
        Purpose::Maintenance,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Log => "log",
            Purpose::Flush => "flush",
            Purpose::Compaction => "compaction",
            Purpose::Manifest => "manifest",
            Purpose::Get => "get",
            Purpose::Scan => "scan",
            Purpose::Recovery => "recovery",
            Purpose::Maintenance => "maintenance",
        }
    }
}

/// Requests and bytes of one purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct IoCounts {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs of a file or a directory.
    pub syncs: u64,
}

/// Accesses to byte-addressable persistent memory for one purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct NvmCounts {
    /// Bytes read, as reported by the readers: loads cannot be observed.
    pub bytes_read: u64,
    /// Bytes stored.
    pub bytes_stored: u64,
    /// Cache lines of 64 bytes written back by persist barriers; 64 times this count wears the
    /// memory.
    pub lines_persisted: u64,
    /// Persist barriers. Each waits until its lines are durable.
    pub barriers: u64,
}

impl NvmCounts {
    /// Whether nothing was counted.
    pub fn is_zero(&self) -> bool {
        *self == NvmCounts::default()
    }
}

/// Live counters by purpose: relaxed atomics, a few nanoseconds per request.
#[derive(Debug, Default)]
pub struct IoCounters {
    cells: [Cell; Purpose::ALL.len()],
    nvm: [NvmCell; Purpose::ALL.len()],
}

#[derive(Debug, Default)]
struct Cell {
    reads: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
    syncs: AtomicU64,
}

#[derive(Debug, Default)]
struct NvmCell {
    bytes_read: AtomicU64,
    bytes_stored: AtomicU64,
    lines_persisted: AtomicU64,
    barriers: AtomicU64,
}

impl IoCounters {
    /// Counts one read of `bytes`.
    pub fn read(&self, purpose: Purpose, bytes: u64) {
        let cell = &self.cells[purpose as usize];
        cell.reads.fetch_add(1, Relaxed);
        cell.bytes_read.fetch_add(bytes, Relaxed);
    }

    /// Counts one write of `bytes`.
    pub fn write(&self, purpose: Purpose, bytes: u64) {
        let cell = &self.cells[purpose as usize];
        cell.writes.fetch_add(1, Relaxed);
        cell.bytes_written.fetch_add(bytes, Relaxed);
    }

    /// Counts one sync.
    pub fn sync(&self, purpose: Purpose) {
        self.cells[purpose as usize].syncs.fetch_add(1, Relaxed);
    }

    /// The counts of one purpose.
    pub fn get(&self, purpose: Purpose) -> IoCounts {
        let cell = &self.cells[purpose as usize];
        IoCounts {
            reads: cell.reads.load(Relaxed),
            bytes_read: cell.bytes_read.load(Relaxed),
            writes: cell.writes.load(Relaxed),
            bytes_written: cell.bytes_written.load(Relaxed),
            syncs: cell.syncs.load(Relaxed),
        }
    }

    /// Counts `bytes` read from persistent memory.
    pub fn nvm_read(&self, purpose: Purpose, bytes: u64) {
        self.nvm[purpose as usize].bytes_read.fetch_add(bytes, Relaxed);
    }

    /// Counts `bytes` stored to persistent memory.
    pub fn nvm_store(&self, purpose: Purpose, bytes: u64) {
        self.nvm[purpose as usize].bytes_stored.fetch_add(bytes, Relaxed);
    }

    /// Counts one persist barrier over `lines` cache lines.
    pub fn nvm_persist(&self, purpose: Purpose, lines: u64) {
        let cell = &self.nvm[purpose as usize];
        cell.lines_persisted.fetch_add(lines, Relaxed);
        cell.barriers.fetch_add(1, Relaxed);
    }

    /// The counts of one purpose in persistent memory.
    pub fn nvm(&self, purpose: Purpose) -> NvmCounts {
        let cell = &self.nvm[purpose as usize];
        NvmCounts {
            bytes_read: cell.bytes_read.load(Relaxed),
            bytes_stored: cell.bytes_stored.load(Relaxed),
            lines_persisted: cell.lines_persisted.load(Relaxed),
            barriers: cell.barriers.load(Relaxed),
        }
    }

    /// The non-zero counts in persistent memory, by the purpose's name. Empty without such memory.
    pub fn nvm_snapshot(&self) -> BTreeMap<&'static str, NvmCounts> {
        let counts = Purpose::ALL.iter().map(|&p| (p.name(), self.nvm(p)));
        counts.filter(|(_, counts)| !counts.is_zero()).collect()
    }

    /// All counts by the purpose's name.
    pub fn snapshot(&self) -> BTreeMap<&'static str, IoCounts> {
        Purpose::ALL.iter().map(|&p| (p.name(), self.get(p))).collect()
    }
}
