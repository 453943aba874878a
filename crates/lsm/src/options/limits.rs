//! Limits computed from the options: sizes of memtables, level 0 and prefetches, the table format.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_table::TableOptions;
use siltstone_table::log::ArchiveLimits;

use super::{L0Policy, Options};

/// The default prefetch memory, in memtables: as much as a slice has, so each log is read once per
/// slice.
const PREFETCH_MEMTABLES: u64 = 2;
/// Prefetched records are addressed by 32 bits.
const MAX_PREFETCH_BYTES: u64 = 2 << 30;

/// The minimum default capacity of level 0.
const MIN_DEFAULT_L0_BYTES: u64 = 512 << 20;
/// The default capacity of level 0 is the bytes of the deeper levels divided by this. Then level 1,
/// twice as large, and one more level hold all of them, so write amplification does not grow with
/// the store. (The TriangleKV paper has a tenth.)
const L0_CAPACITY_DIVISOR: u64 = 6;
/// The minimum size of level 1, in L0 capacities.
const LEVEL_1_CAPACITIES: u64 = 2;
/// The maximum default capacity of level 0, in memtables: one filter query covers that many runs
/// (see `version/l0_filter.rs`).
const MAX_L0_MEMTABLES: u64 = 64;

/// The limits of a memtable in force. Each write compares them, so they are beside the options.
#[derive(Debug)]
pub(crate) struct MemtableLimits {
    log_bytes: AtomicU64,
    memory_bytes: AtomicU64,
}

impl MemtableLimits {
    pub(crate) fn new(options: &Options) -> Self {
        let (log, memory) = options.memtable_limits();
        MemtableLimits { log_bytes: log.into(), memory_bytes: memory.into() }
    }

    /// Puts those of `options` in force.
    pub(crate) fn set(&self, options: &Options) {
        let (log, memory) = options.memtable_limits();
        self.log_bytes.store(log, Relaxed);
        self.memory_bytes.store(memory, Relaxed);
    }

    /// As [`Options::memtable_limits`].
    #[inline]
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.log_bytes.load(Relaxed), self.memory_bytes.load(Relaxed))
    }
}

impl Options {
    /// How much of the log is kept for change feeds.
    pub(crate) fn archive_limits(&self) -> ArchiveLimits {
        ArchiveLimits { max_bytes: self.log_retention_bytes, max_age: self.log_retention_time }
    }

    /// Whether runs of level 0 may be in persistent memory.
    pub fn has_pmem(&self) -> bool {
        self.pmem_bytes > 0
    }

    /// The log bytes and the memory at which a memtable is full. More with TRIAD-MEM, because much
    /// of either may be older versions of hot keys, which are never flushed.
    pub(crate) fn memtable_limits(&self) -> (u64, u64) {
        let (log, memory) = if self.triad.mem { (2, 3) } else { (1, 2) };
        (log * self.memtable(), memory * self.memtable())
    }

    /// The log bytes of one memtable.
    pub(crate) fn memtable(&self) -> u64 {
        self.memtable_bytes
    }

    /// The bytes of keys and values in a NoveLSM memtable.
    pub(crate) fn novelsm_memtable_bytes(&self) -> u64 {
        self.pmem_bytes / 2
    }

    /// The prefetch memory of one compaction.
    pub(crate) fn prefetch_bytes(&self) -> u64 {
        let default = PREFETCH_MEMTABLES * self.memtable();
        self.triad.prefetch_bytes.unwrap_or(default).min(MAX_PREFETCH_BYTES)
    }

    /// Whether flushes make CL-SSTables. A log that two memtables share cannot become part of one.
    pub(crate) fn uses_cl_sstables(&self) -> bool {
        self.triad.log && self.l0_policy() != L0Policy::NoveLsm
    }

    /// The length from which flushes leave values in the log; `None`: they never do.
    pub(crate) fn flush_blob_threshold(&self) -> Option<usize> {
        self.blob_threshold().filter(|_| self.l0_policy() != L0Policy::NoveLsm)
    }

    /// The length from which values are separated from their keys; `None`: they never are.
    pub(crate) fn blob_threshold(&self) -> Option<usize> {
        let threshold = usize::try_from(self.blob_threshold_bytes).unwrap_or(usize::MAX);
        (threshold > 0).then_some(threshold)
    }

    /// The compaction policy of level 0.
    pub(crate) fn l0_policy(&self) -> L0Policy {
        let is_whole = self.level0.capacity_bytes == Some(0);
        self.level0.policy.unwrap_or(if is_whole { L0Policy::Whole } else { L0Policy::Sliced })
    }

    /// The size of the pool of L0 runs in persistent memory; 0 if there is none.
    pub(crate) fn pool_bytes(&self) -> u64 {
        if self.l0_policy() == L0Policy::NoveLsm { 0 } else { self.pmem_bytes }
    }

    /// The capacity of level 0 over deeper levels of `below` bytes; 0 if only the number of runs is
    /// limited. A full pool must have space left for the run of the memtable that is flushed, and
    /// for its metadata.
    pub(crate) fn l0_capacity(&self, below: u64) -> u64 {
        let pool = self.pool_bytes();
        let rest = pool.saturating_sub(self.memtable().saturating_mul(2)).max(pool / 2);
        let given = self.level0.capacity_bytes.filter(|&bytes| bytes > 0);
        match self.l0_policy() {
            L0Policy::NoveLsm => 0,
            L0Policy::Whole => rest,
            L0Policy::Sliced | L0Policy::Columns => {
                let max = self.memtable().saturating_mul(MAX_L0_MEMTABLES);
                let share = (below / L0_CAPACITY_DIVISOR).min(max).max(MIN_DEFAULT_L0_BYTES);
                given.unwrap_or(if pool > 0 { rest } else { share })
            }
        }
    }

    /// The minimum target of level 1 over levels of `below` bytes: it grows with the L0 capacity,
    /// once that has grown; 0 before that, and if the capacity is fixed.
    pub(crate) fn min_level1_bytes(&self, below: u64) -> u64 {
        let now = self.l0_capacity(below);
        if now > self.l0_capacity(0) { now.saturating_mul(LEVEL_1_CAPACITIES) } else { 0 }
    }

    /// Whether level 0 has a capacity and is compacted in slices.
    pub(crate) fn is_l0_sliced(&self) -> bool {
        matches!(self.l0_policy(), L0Policy::Sliced | L0Policy::Columns)
    }

    /// The format of sorted tables with others below them.
    pub(crate) fn table_options(&self) -> TableOptions {
        TableOptions { sketch: self.triad.disk, ..self.file.clone() }
    }

    /// The format of sorted tables with nothing below them.
    pub(crate) fn bottommost_table_options(&self) -> TableOptions {
        TableOptions {
            compression: self.bottommost_compression.unwrap_or(self.file.compression),
            dictionary_bytes: self.compression_dict_bytes as usize,
            ..self.table_options()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_1_grows_with_a_grown_l0_capacity_only() {
        let of = |options: &[(&str, &str)]| {
            let given = options.iter().map(|&(k, v)| (k.to_owned(), v.to_owned()));
            Options::from_map(&given.collect()).unwrap()
        };
        let (small, large) = (2 << 30, 12u64 << 30);
        let grows = of(&[("levels", "64MiB:1GiB")]);
        assert_eq!((grows.l0_capacity(small), grows.min_level1_bytes(small)), (512 << 20, 0));
        assert_eq!((grows.l0_capacity(large), grows.min_level1_bytes(large)), (2 << 30, 4 << 30));
        assert_eq!(grows.l0_capacity(100 * large), 2 << 30);
        for fixed in [
            of(&[("l0_capacity", "1GiB")]),
            of(&[("l0_capacity", "0")]),
            of(&[("pmem.size", "1GiB")]),
        ] {
            assert_eq!(fixed.l0_capacity(large), fixed.l0_capacity(0));
            assert_eq!(fixed.min_level1_bytes(large), 0);
        }
    }
}
