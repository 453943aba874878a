//! Prefetches the values of a CL-SSTable for a compaction, many with one read of the log.
//!
//! ```text
//!   table       a→900  b→40  c→7200  d→300 …  in key order: the next ones, up to the budget
//!   sorted      40  300  900 ┊ 7200           by offset in the log; split at wide gaps
//!   log         [───batch───]                 a batch is one sequential read, gaps included
//!   prefetched  40: …  300: …  900: …         returned in key order
//! ```
//!
//! A lookahead iterator over the run's table precedes the compaction's. Prefetching skips records
//! that are isolated in the log, unreadable or corrupt: the compaction reads them one by one and
//! reports their errors. So it affects only the cost.
//!
//! Memory: the budget, from which each record takes its operation and its bookkeeping; a chunk of
//! the log; and the readahead window of the lookahead iterator.
//!
//! Invariant: a prefetched operation is the one that [`siltstone_table::LogAccess::read`] returns.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::{Purpose, WriteBatch};
use siltstone_table::{BatchReader, IterOptions, Kind, LogAccess, TableIter};

use crate::live_range::LiveRange;
use crate::record::{self, Position};

/// Fewer adjacent records are not read as a batch.
const MIN_BATCH_RECORDS: usize = 4;
/// A batch is read in chunks that fit the CPU cache.
const CHUNK_BYTES: u64 = 128 << 10;
/// As for a compaction, with a smaller readahead window.
const LOOKAHEAD: IterOptions = IterOptions { readahead_bytes: 64 << 10, fill_cache: false };

/// The number of upcoming records that are touched together, so that their cache misses overlap.
const TOUCH_COUNT: usize = 16;

/// The memory that one CL-SSTable of a compaction may use for prefetching.
#[derive(Clone)]
pub(crate) struct PrefetchBudget {
    /// In bytes.
    pub(crate) bytes: u64,
    /// The total use of all runs.
    pub(crate) used: Arc<AtomicU64>,
}

/// Prefetches for a compaction from one CL-SSTable.
pub(super) struct ValuePrefetcher {
    /// Over the run's table, ahead of the compaction's iterator.
    lookahead: TableIter,
    budget: PrefetchBudget,
    /// The bytes that are added to `budget.used`.
    counted: u64,
    /// The collected entries, in key order.
    entries: Vec<PrefetchedOp>,
    /// The index of the next entry; the compaction has passed those before.
    next: usize,
    /// The prefetched operations, each as a record of its own.
    bytes: Vec<u8>,
    /// The mean size of an operation of the run.
    mean_bytes: f64,
    /// Prefetched bytes per record byte in the last fetch. A record of many operations is counted
    /// for each of them.
    extracted_share: Option<f64>,
    // Reused by later fetches for their memory.
    by_offset: Vec<u32>,
    chunk: Vec<u8>,
    scratch: WriteBatch,
}

/// An upcoming operation.
struct PrefetchedOp {
    position: Position,
    sequence: u64,
    /// Its offset in `bytes`.
    start: u32,
    /// Its length; 0 if it was not prefetched.
    len: u32,
}

/// The memory for the bookkeeping of an entry.
const ENTRY_BYTES: u64 = (size_of::<PrefetchedOp>() + size_of::<u32>()) as u64;

impl ValuePrefetcher {
    /// Prefetches for `table`; an operation of its run has `mean_bytes` on average.
    pub(super) fn new(table: &TableIter, mean_bytes: f64, budget: PrefetchBudget) -> Self {
        ValuePrefetcher {
            lookahead: table.table().iter(Purpose::Compaction, LOOKAHEAD),
            budget,
            counted: 0,
            entries: Vec::new(),
            next: 0,
            bytes: Vec::new(),
            mean_bytes,
            extracted_share: None,
            by_offset: Vec::new(),
            chunk: Vec::new(),
            scratch: WriteBatch::new(),
        }
    }

    /// The range in [`bytes`](Self::bytes) of a record with the operation `sequence` of the record
    /// at `position`; `None` if it is not prefetched. If it was not collected yet, this fetches it
    /// and the live entries that follow `key`.
    pub(super) fn find(
        &mut self,
        log: &LogAccess,
        live: &LiveRange,
        position: Position,
        (key, sequence): (&[u8], u64),
    ) -> Option<Range<usize>> {
        if position.expected_bytes() > self.budget.bytes {
            return None;
        }
        if !self.advance_to(sequence) {
            self.collect(live, key, sequence);
            self.fetch(log);
            if !self.advance_to(sequence) {
                return None;
            }
        }
        let op = &self.entries[self.next];
        let start = op.start as usize;
        (op.len > 0 && op.position == position).then_some(start..start + op.len as usize)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Advances to the operation `sequence`; `false`: it was not collected.
    fn advance_to(&mut self, sequence: u64) -> bool {
        while let Some(op) = self.entries.get(self.next) {
            if op.sequence == sequence {
                return true;
            }
            self.next += 1;
            if self.next.is_multiple_of(TOUCH_COUNT) {
                self.touch();
            }
        }
        false
    }

    fn touch(&self) {
        let upcoming = self.entries[self.next..].iter().take(TOUCH_COUNT);
        let first_bytes = upcoming.filter_map(|op| self.bytes.get(op.start as usize));
        std::hint::black_box(first_bytes.fold(0, |sum: u8, byte| sum.wrapping_add(*byte)));
    }

    /// Collects the positions of the entries from (`key`, `sequence`) on, up to the budget.
    fn collect(&mut self, live: &LiveRange, key: &[u8], sequence: u64) {
        self.entries.clear();
        self.next = 0;
        let (mut in_records, mut in_entries) = (0.0, 0.0);
        // Errors are reported by the compaction's own iterator.
        let mut is_valid = self.lookahead.seek(key, sequence).unwrap_or(false);
        while is_valid && live.contains(self.lookahead.key()) {
            if self.lookahead.kind() == Kind::Position
                && let Some((position, _)) = Position::decode(self.lookahead.value())
            {
                let sequence = self.lookahead.sequence();
                self.entries.push(PrefetchedOp { position, sequence, start: 0, len: 0 });
                in_records += position.expected_bytes() as f64;
                in_entries += self.mean_bytes;
                let expected = self.extracted_share.map_or(in_entries, |share| in_records * share);
                let bookkeeping = self.entries.len() as u64 * ENTRY_BYTES;
                if expected.min(in_records) as u64 + bookkeeping > self.budget.bytes {
                    break;
                }
            }
            is_valid = self.lookahead.next().unwrap_or(false);
        }
    }

    /// Reads the collected entries in the order of the log.
    fn fetch(&mut self, log: &LogAccess) {
        let ValuePrefetcher { entries, by_offset, bytes, scratch, .. } = self;
        let capacity =
            self.budget.bytes - self.budget.bytes.min(entries.len() as u64 * ENTRY_BYTES);
        bytes.clear();
        by_offset.clear();
        by_offset.extend(0..entries.len() as u32);
        by_offset.sort_unstable_by_key(|&i| entries[i as usize].position.offset());
        let memory = std::mem::take(&mut self.chunk);
        let mut reader = BatchReader::reusing(log, Purpose::Compaction, CHUNK_BYTES, memory);
        // The largest gap that is cheaper to read than to skip.
        let max_gap = reader.coalesce_gap();
        let end = |op: &PrefetchedOp| op.position.offset() + op.position.expected_bytes();
        let mut in_records = 0;
        let mut rest = &by_offset[..];
        while let Some(&first) = rest.first() {
            let mut batch_end = end(&entries[first as usize]);
            let is_near = |&&i: &&u32| {
                let op = &entries[i as usize];
                let is_near = op.position.offset() <= batch_end + max_gap;
                batch_end = end(op);
                is_near
            };
            let (batch, behind) = rest.split_at(rest.iter().take_while(is_near).count());
            rest = behind;
            if batch.len() < MIN_BATCH_RECORDS {
                continue;
            }
            reader.set_limit(batch.last().map_or(0, |&last| end(&entries[last as usize])));
            for &i in batch {
                let op = &mut entries[i as usize];
                let start = bytes.len();
                let record = reader.get(op.position.offset());
                if record.is_ok_and(|record| record::extract(record, op.sequence, scratch, bytes)) {
                    if bytes.len() as u64 > capacity {
                        bytes.truncate(start);
                        continue;
                    }
                    (op.start, op.len) = (start as u32, (bytes.len() - start) as u32);
                    in_records += op.position.expected_bytes();
                }
            }
        }
        self.chunk = reader.into_memory();
        if in_records > 0 {
            // A margin of 10 %, so that rarely one does not fit.
            self.extracted_share = Some(1.1 * self.bytes.len() as f64 / in_records as f64);
        }
        self.touch();
        self.count_memory();
    }

    fn count_memory(&mut self) {
        let entries = self.entries.capacity() as u64 * ENTRY_BYTES;
        let now = (self.bytes.capacity() + self.chunk.capacity()) as u64 + entries;
        self.budget.used.fetch_add(now.wrapping_sub(self.counted), Relaxed);
        self.counted = now;
    }
}

impl Drop for ValuePrefetcher {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.counted, Relaxed);
    }
}
