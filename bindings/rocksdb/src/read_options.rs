//! Options of reads, snapshots, and the reads that follow them.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use shim::boundary::{Pointer, bytes};
use shim::foreign::{Destructor, Foreign};
use store::{Cursor, KeyRange, Snapshot};

use crate::database::Database;
use crate::exports::exports;
use crate::failure::Failure;
use crate::layout::{self, FIRST_WRITES};
use crate::scalars::{HasScalars, Scalars};
use crate::shell::Shell;
use crate::statistics::Statistics;

/// Options of reads.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    scalars: Scalars,
    /// What reads show; `None`: the present.
    pub snapshot: Option<Snapshot>,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    has_timestamp: bool,
    /// A filter of files, which is not called.
    filter: Option<Arc<Foreign>>,
}

impl HasScalars for ReadOptions {
    fn scalars(&self) -> &Scalars {
        &self.scalars
    }
    fn scalars_mut(&mut self) -> &mut Scalars {
        &mut self.scalars
    }
}

impl ReadOptions {
    /// Refuses what the store cannot do.
    pub fn check(&self) -> Result<(), Failure> {
        match self.has_timestamp {
            true => Err(Failure::NotImplemented("timestamps of the program".to_owned())),
            false => Ok(()),
        }
    }

    /// The keys of a column family within the bounds.
    pub fn range(&self, family: u32) -> KeyRange {
        use std::ops::Bound::{Excluded, Included};
        let mut range = layout::range(family);
        if let Some(lower) = &self.lower {
            range.start = Included(layout::entry_key(family, lower));
        }
        if let Some(upper) = &self.upper {
            let upper = layout::entry_key(family, upper);
            // An inverted range is empty in RocksDB, and an error in the store.
            let is_inverted = matches!(&range.start, Included(start) if *start > upper);
            range.end = Excluded(upper);
            if is_inverted && let Included(start) = &range.start {
                range.end = Excluded(start.clone());
            }
        }
        range
    }

    /// A cursor over a range, at the snapshot if there is one.
    pub fn cursor(&self, database: &Database, range: &KeyRange) -> Result<Cursor, Failure> {
        self.check()?;
        let bounds = (range.start.clone(), range.end.clone());
        Ok(match &self.snapshot {
            None => database.table().cursor_range(bounds)?,
            Some(snapshot) => snapshot.cursor_range(bounds)?,
        })
    }

    /// The result of `read` for the value of a key of the store.
    pub fn get_with<R>(
        &self,
        database: &Database,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Failure> {
        self.check()?;
        let statistics = database.statistics.as_deref();
        let _timer = statistics.map(Statistics::time_get);
        let read = |value: &[u8]| {
            if let Some(statistics) = statistics {
                statistics.count_read(value.len());
            }
            read(value)
        };
        Ok(match &self.snapshot {
            None => database.table().get_with(key, read)?,
            Some(snapshot) => snapshot.get_with(key, read)?,
        })
    }

    /// The value of a key of the store.
    pub fn get(&self, database: &Database, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.get_with(database, key, <[u8]>::to_vec)
    }
}

/// A bound of an iteration.
///
/// # Safety
/// `key` points to `len` bytes, or is NULL.
unsafe fn bound(key: *const c_char, len: usize) -> Option<Vec<u8>> {
    // SAFETY: by the contract of this function.
    (!key.is_null()).then(|| unsafe { bytes(key, len) }.to_vec())
}

exports! {
    /// New options of reads.
    fn rocksdb_readoptions_create() -> Pointer<ReadOptions> {
        Pointer::new(ReadOptions::default())
    }

    /// Frees options of reads.
    fn rocksdb_readoptions_destroy(options: Option<Box<ReadOptions>>) {
        drop(options)
    }

    /// Reads show the snapshot, which they keep even after its release. NULL: the present.
    fn rocksdb_readoptions_set_snapshot(
        options: &mut ReadOptions, snapshot: Option<&Shell<Snapshot>>
    ) {
        options.snapshot = snapshot.map(|snapshot| snapshot.get().clone())
    }

    /// Iterators end before this key. NULL: at the last one.
    fn rocksdb_readoptions_set_iterate_upper_bound(
        options: &mut ReadOptions, key: *const c_char, len: usize
    ) {
        options.upper = unsafe { bound(key, len) }
    }

    /// Iterators begin at this key. NULL: at the first one.
    fn rocksdb_readoptions_set_iterate_lower_bound(
        options: &mut ReadOptions, key: *const c_char, len: usize
    ) {
        options.lower = unsafe { bound(key, len) }
    }

    /// Reads with a timestamp of the program fail.
    fn rocksdb_readoptions_set_timestamp(
        options: &mut ReadOptions, timestamp: *const c_char, _len: usize
    ) {
        options.has_timestamp = !timestamp.is_null()
    }

    /// Reads with a timestamp of the program fail.
    fn rocksdb_readoptions_set_iter_start_ts(
        options: &mut ReadOptions, timestamp: *const c_char, _len: usize
    ) {
        options.has_timestamp = !timestamp.is_null()
    }

    /// Forgets the threshold.
    fn rocksdb_readoptions_clear_merge_operand_count_threshold(options: &mut ReadOptions) {
        options.scalars.forget("merge_operand_count_threshold")
    }

    /// Whether the threshold was set.
    fn rocksdb_readoptions_has_merge_operand_count_threshold(options: &ReadOptions) -> u8 {
        options.scalars.get::<usize>("merge_operand_count_threshold").is_some().into()
    }

    /// Takes a filter of files, which is not called.
    fn rocksdb_readoptions_set_table_filter(
        options: &mut ReadOptions, state: *mut c_void, destructor: Destructor,
        _filter: *const c_void
    ) {
        options.filter = Some(Arc::new(unsafe { Foreign::new(state, destructor) }))
    }

    /// Frees the filter of files.
    fn rocksdb_readoptions_clear_table_filter(options: &mut ReadOptions) {
        options.filter = None
    }

    /// Whether there is a filter of files.
    fn rocksdb_readoptions_has_table_filter(options: &ReadOptions) -> u8 {
        options.filter.is_some().into()
    }

    /// A snapshot of the database: all column families as of now.
    fn rocksdb_create_snapshot(db: &Database) -> Pointer<Shell<Snapshot>> {
        Shell::create(db.table().snapshot())
    }

    /// Releases a snapshot.
    fn rocksdb_release_snapshot(_db: &Database, snapshot: *mut Shell<Snapshot>) {
        unsafe { Shell::destroy(snapshot) }
    }

    /// The number of the last write that a snapshot shows.
    fn rocksdb_snapshot_get_sequence_number(snapshot: &Shell<Snapshot>) -> u64 {
        snapshot.get().sequence().saturating_sub(FIRST_WRITES)
    }

    /// As rocksdb_create_snapshot().
    fn rocksdb_transactiondb_create_snapshot(db: &Database) -> Pointer<Shell<Snapshot>> {
        Shell::create(db.table().snapshot())
    }

    /// As rocksdb_release_snapshot().
    fn rocksdb_transactiondb_release_snapshot(_db: &Database, snapshot: *mut Shell<Snapshot>) {
        unsafe { Shell::destroy(snapshot) }
    }

    /// The number of the last write.
    fn rocksdb_get_latest_sequence_number(db: &Database) -> u64 {
        db.sequence().unwrap_or(0)
    }
}
