//! Where an output table of a compaction ends.
//!
//! ```text
//! output              [ a           e ][ f            m ][ n ...
//! the level after      [a b][c][d   e]  [f  h][i   k][l m] [n ...
//! ```
//!
//! A table that ends where one of the level after ends shares none of these with its neighbour: the
//! compaction that moves it down rewrites about one table less. So a table ends at the last such
//! boundary at which it has at most its size. The mean distance of the boundaries that it has passed
//! predicts the next one. A table may become a quarter larger to reach a boundary. It also ends
//! before it overlaps too much of the level after.
//!
//! RocksDB cuts its output at these boundaries, too, by another rule.

use std::sync::Arc;

use crate::version::TableFile;

/// An output table ends when it overlaps this many tables' worth of the level after.
const MAX_TABLES_BELOW: u64 = 10;

/// The tables of the level after that the open output table overlaps.
pub(super) struct TableEnd<'a> {
    /// The level after, in order.
    tables: &'a [Arc<TableFile>],
    /// The first table that does not end before the open one begins.
    first: usize,
    /// The first table that does not end before the last key.
    next: usize,
    /// Of the tables between.
    bytes: u64,
}

impl<'a> TableEnd<'a> {
    pub(super) fn new(tables: &'a [Arc<TableFile>]) -> Self {
        TableEnd { tables, first: 0, next: 0, bytes: 0 }
    }

    /// An output table begins with `key`.
    pub(super) fn begin(&mut self, key: &[u8]) {
        self.first = self.tables.partition_point(|table| table.largest() < key);
        self.next = self.first;
        self.bytes = 0;
    }

    /// Whether the table, of `written` bytes so far, ends before `key`, its next one. It has at
    /// most `limit` bytes, or a quarter more to end at a boundary.
    pub(super) fn is_before(&mut self, key: &[u8], written: u64, limit: u64) -> bool {
        let last = self.next;
        while let Some(table) = self.tables.get(self.next).filter(|table| table.largest() < key) {
            self.bytes += table.bytes();
            self.next += 1;
        }
        let has_boundary = self.next < self.tables.len();
        let most = if has_boundary { limit + limit / 4 } else { limit };
        if written >= most || self.bytes >= MAX_TABLES_BELOW * limit {
            return true;
        }
        let is_boundary = self.next > last;
        let distance = written / (self.next - self.first).max(1) as u64;
        is_boundary && written >= limit / 2 && written + distance > limit
    }
}

#[cfg(test)]
mod tests {
    use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
    use siltstone_runtime::Env;
    use siltstone_structures::SplitMix64;
    use siltstone_vfs::Ram;

    use super::*;
    use crate::{Lsm, Options};

    const KIB: u64 = 1 << 10;
    const WRITES: u32 = 150_000;

    fn options() -> Options {
        let given = [
            ("memtable", "256KiB"),
            ("target_file_size", "64KiB"),
            ("levels", "256KiB:2MiB:1GiB"),
            ("compression", "none"),
            ("l0_capacity", "0"),
            ("triad.log", "off"),
        ];
        Options::from_map(&given.map(|(k, v)| (k.to_owned(), v.to_owned())).into()).unwrap()
    }

    #[test]
    fn tables_share_few_tables_of_the_level_after_and_are_nearly_full() {
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let lsm = Lsm::open(Arc::new(Ram::new()), env, options()).unwrap();
        let mut rng = SplitMix64::new(1);
        for write in 0..WRITES {
            let mut batch = WriteBatch::new();
            batch.put(&(rng.next_u64() % 40_000).to_be_bytes(), &[7; 500]);
            lsm.write(&batch, Durability::Buffered).unwrap();
            if write % 500 == 0 {
                lsm.maintain().unwrap();
            }
        }
        let version = lsm.table().view.load().version.clone();
        let upper = version.level(2);
        let below = |table: &TableFile| {
            version.overlapping(3, table.smallest(), table.largest()).iter().map(|t| t.number())
        };
        let is_shared = |pair: &&[Arc<TableFile>]| {
            below(&pair[0]).next_back().is_some_and(|last| below(&pair[1]).next() == Some(last))
        };
        let (shared, tables) = (upper.windows(2).filter(is_shared).count(), upper.len());
        let mean = upper.iter().map(|table| table.bytes()).sum::<u64>() / tables as u64;
        let written = lsm.stats().counters["compaction_entries_out"] as f64 / f64::from(WRITES);
        println!("{tables} tables of {mean} bytes, {shared} shared; {written} written per entry");
        assert!(tables > 25 && shared < tables / 3, "{shared} of {tables}");
        assert!(mean > 50 * KIB && mean < 72 * KIB, "{mean}");
        // 6.1 if tables end when they are full.
        assert!(written < 5.5, "{written}");
    }
}
