//! Values of a CL-SSTable fetched for a compaction, many by one read of the log.
//!
//! ```text
//!   table   a→900  b→40  c→7200  d→300 …      in key order: what comes next, up to a share of memory
//!   sorted  40  300  900 ┊ 7200               by place in the log; parted where a gap is wide
//!   log     [────run─────]                    a run is read at once, gaps and all
//!   held    40: …  300: …  900: …             handed out in key order
//! ```
//!
//! A second iterator over the row's table runs ahead of the compaction's. What lies alone in the log, what
//! cannot be read, and what does not hold is not held: it is read by itself when it is wanted, and a fault
//! is told then, by its place, as of any other record. So this is a hint and changes nothing but the cost.
//!
//! Memory: the share, of which each record takes its operation and some bytes of bookkeeping; a chunk of
//! the log; and a window over the table.
//!
//! Invariant: what is held of a record is what [`siltstone_table::LogAccess::read`] would return for it.
//!
//! Source: ours.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::{Purpose, WriteBatch};
use siltstone_table::{BatchReader, IterOptions, Kind, LogAccess, TableIter};

use crate::live_range::LiveRange;
use crate::record::{self, Position};

/// Fewer records than this are no run.
const LEAST_RUN: usize = 4;
/// A run is read in chunks of this size, so that they stay in the processor's cache.
const CHUNK: u64 = 128 << 10;
/// How the table is read: as by a compaction, with a smaller window.
const SCOUT: IterOptions = IterOptions { readahead_bytes: 64 << 10, fill_cache: false };

/// So many records are looked at before they are handed out: their bytes come into the processor's cache
/// together instead of one after the other.
const TOUCHED: usize = 16;

/// What a row of a compaction may hold.
#[derive(Clone)]
pub(crate) struct AheadShare {
    /// In bytes.
    pub(crate) bytes: u64,
    /// Where what all rows hold is summed up.
    pub(crate) held: Arc<AtomicU64>,
}

/// Runs ahead of a compaction over one row.
pub(super) struct LogAhead {
    /// Over the row's table, ahead of the compaction's.
    scout: TableIter,
    share: AheadShare,
    /// What was counted of `share.held`.
    counted: u64,
    /// What comes up, in key order.
    entries: Vec<Held>,
    /// The entries before were passed.
    next: usize,
    /// The operations that are held, each as a record of its own.
    bytes: Vec<u8>,
    /// Bytes of an operation of the row, on average.
    mean_bytes: f64,
    /// Of the entries before: bytes held for each byte of their records. Of a record of many operations
    /// each entry holds its own.
    held_share: Option<f64>,
    // Kept between fetches for their memory.
    by_place: Vec<u32>,
    chunk: Vec<u8>,
    batch: WriteBatch,
}

/// An operation that comes up.
struct Held {
    position: Position,
    sequence: u64,
    /// Where it is in `bytes`.
    start: u32,
    /// Its length; 0 if it is not held.
    len: u32,
}

/// Bytes of bookkeeping of an entry.
const ENTRY_BYTES: u64 = (size_of::<Held>() + size_of::<u32>()) as u64;

impl LogAhead {
    /// Over the table on which `table` walks; an operation of its row has `mean_bytes` on average.
    pub(super) fn new(table: &TableIter, mean_bytes: f64, share: AheadShare) -> Self {
        LogAhead {
            scout: table.table().iter(Purpose::Compaction, SCOUT),
            share,
            counted: 0,
            entries: Vec::new(),
            next: 0,
            bytes: Vec::new(),
            mean_bytes,
            held_share: None,
            by_place: Vec::new(),
            chunk: Vec::new(),
            batch: WriteBatch::new(),
        }
    }

    /// Where in [`bytes`](Self::bytes) a record with the operation `sequence` of the one at `position` is,
    /// if it is held. The row's table names that for `key`; it and what follows in `live` is fetched first,
    /// if it was not yet.
    pub(super) fn record(
        &mut self,
        log: &LogAccess,
        live: &LiveRange,
        position: Position,
        (key, sequence): (&[u8], u64),
    ) -> Option<Range<usize>> {
        if position.expected_bytes() > self.share.bytes {
            return None;
        }
        if !self.go_to(sequence) {
            self.collect(live, key, sequence);
            self.fetch(log);
            if !self.go_to(sequence) {
                return None;
            }
        }
        let held = &self.entries[self.next];
        let start = held.start as usize;
        (held.len > 0 && held.position == position).then_some(start..start + held.len as usize)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Passes the entries before the operation `sequence`; `false`: it is not among them.
    fn go_to(&mut self, sequence: u64) -> bool {
        while let Some(held) = self.entries.get(self.next) {
            if held.sequence == sequence {
                return true;
            }
            self.next += 1;
            if self.next.is_multiple_of(TOUCHED) {
                self.touch();
            }
        }
        false
    }

    fn touch(&self) {
        let coming = self.entries[self.next..].iter().take(TOUCHED);
        let first_bytes = coming.filter_map(|held| self.bytes.get(held.start as usize));
        std::hint::black_box(first_bytes.fold(0, |sum: u8, byte| sum.wrapping_add(*byte)));
    }

    /// Notes what comes from (`key`, `sequence`) on, as much as the share has room for.
    fn collect(&mut self, live: &LiveRange, key: &[u8], sequence: u64) {
        self.entries.clear();
        self.next = 0;
        let (mut in_records, mut in_entries) = (0.0, 0.0);
        // What is wrong with the table is for the compaction to meet.
        let mut is_there = self.scout.seek(key, sequence).unwrap_or(false);
        while is_there && live.contains(self.scout.key()) {
            if self.scout.kind() == Kind::Position
                && let Some((position, _)) = Position::decode(self.scout.value())
            {
                let sequence = self.scout.sequence();
                self.entries.push(Held { position, sequence, start: 0, len: 0 });
                in_records += position.expected_bytes() as f64;
                in_entries += self.mean_bytes;
                let held = self.held_share.map_or(in_entries, |share| in_records * share);
                let bookkeeping = self.entries.len() as u64 * ENTRY_BYTES;
                if held.min(in_records) as u64 + bookkeeping > self.share.bytes {
                    break;
                }
            }
            is_there = self.scout.next().unwrap_or(false);
        }
    }

    /// Reads what was noted, in the order of the log.
    fn fetch(&mut self, log: &LogAccess) {
        let LogAhead { entries, by_place, bytes, batch, .. } = self;
        let room = self.share.bytes - self.share.bytes.min(entries.len() as u64 * ENTRY_BYTES);
        bytes.clear();
        by_place.clear();
        by_place.extend(0..entries.len() as u32);
        by_place.sort_unstable_by_key(|&i| entries[i as usize].position.offset());
        let memory = std::mem::take(&mut self.chunk);
        let mut sweep = BatchReader::reusing(log, Purpose::Compaction, CHUNK, memory);
        // What the medium takes for a jump.
        let most_gap = sweep.most_gap();
        let end = |held: &Held| held.position.offset() + held.position.expected_bytes();
        let mut in_records = 0;
        let mut rest = &by_place[..];
        while let Some(&first) = rest.first() {
            let mut run_end = end(&entries[first as usize]);
            let is_near = |&&i: &&u32| {
                let held = &entries[i as usize];
                let is_near = held.position.offset() <= run_end + most_gap;
                run_end = end(held);
                is_near
            };
            let (run, behind) = rest.split_at(rest.iter().take_while(is_near).count());
            rest = behind;
            if run.len() < LEAST_RUN {
                continue;
            }
            sweep.go_to(run.last().map_or(0, |&last| end(&entries[last as usize])));
            for &i in run {
                let held = &mut entries[i as usize];
                let start = bytes.len();
                let record = sweep.get(held.position.offset());
                if record.is_ok_and(|it| record::cut_out(it, held.sequence, batch, bytes)) {
                    if bytes.len() as u64 > room {
                        bytes.truncate(start);
                        continue;
                    }
                    (held.start, held.len) = (start as u32, (bytes.len() - start) as u32);
                    in_records += held.position.expected_bytes();
                }
            }
        }
        self.chunk = sweep.into_memory();
        if in_records > 0 {
            // A tenth more, lest some find no room.
            self.held_share = Some(1.1 * self.bytes.len() as f64 / in_records as f64);
        }
        self.touch();
        self.count();
    }

    fn count(&mut self) {
        let entries = self.entries.capacity() as u64 * ENTRY_BYTES;
        let now = (self.bytes.capacity() + self.chunk.capacity()) as u64 + entries;
        self.share.held.fetch_add(now.wrapping_sub(self.counted), Relaxed);
        self.counted = now;
    }
}

impl Drop for LogAhead {
    fn drop(&mut self) {
        self.share.held.fetch_sub(self.counted, Relaxed);
    }
}
