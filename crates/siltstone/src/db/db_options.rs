//! The options of opening a store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use siltstone_engine::{CompactionFilter, EventListener, MergeOperator};
use siltstone_runtime::Env;
use siltstone_vfs::{Disk, DiskOptions};

use crate::TransactionOptions;
use crate::encryption::Keys;

/// Options of opening a store.
#[derive(Clone)]
pub struct DbOptions {
    /// Clock, seed, scheduler and rate limit, shared by all tables.
    pub env: Env,
    /// Reads with `O_DIRECT`, so that reads bypass the page cache and memory holds only the
    /// engines' own caches. Every read then costs a request to the device.
    pub direct_reads: bool,
    /// Opens the store read-only: no byte changes in its directory or in those of its tables
    /// elsewhere, and read permission is enough. What an engine writes when it opens, e.g. what
    /// recovery flushes, stays in memory; background work is off; writes are refused. Other
    /// processes may have the store open read-only at the same time, none for writing.
    pub read_only: bool,
    /// Limits of transactions and snapshots, for each table.
    pub transactions: TransactionOptions,
    /// The maximum number of files that the store has open: see [`DiskOptions::max_open_files`].
    /// Idle files beyond it are closed and opened again when they are used.
    pub max_open_files: usize,
    /// The size of one block cache for all tables, in place of one per table of the size of its
    /// option `cache`. Tables that exist keep that option without effect; new tables must not have
    /// it.
    pub cache_bytes: Option<u64>,
    /// Compaction filters by the name of the table, which must be on `lsm`. A filter applies from
    /// the table's open on. A renamed table has the filter of its new name. See
    /// [`compaction_filter`](crate::compaction_filter) for what a filter may do.
    pub compaction_filters: BTreeMap<String, Arc<dyn CompactionFilter>>,
    /// Merge operators by the name of the table, which must be on `lsm`. A table's first operator
    /// is recorded in it by name; the built-in ones need to be named here once only, others at
    /// every open. See [`set_merge_operator`](crate::Table::set_merge_operator) for what they
    /// exclude, and [`merge_operator`](crate::merge_operator) for what an operator must keep to.
    pub merge_operators: BTreeMap<String, Arc<dyn MergeOperator>>,
    /// Hear of flushes, compactions, write stalls, failures and damage of all tables, on a thread
    /// of their own. See [`events`](crate::events). `lsm`, `trie` and `silt` report all of these;
    /// `skimpy` and `mica` have no background jobs and do not stall, and report damage and failures
    /// only. [`Db::close`](crate::Db::close) waits until the listeners have heard everything, and
    /// drops them.
    ///
    /// ```
    /// # use std::sync::{Arc, Mutex};
    /// # use siltstone::{Db, DbOptions, Event, EventKind};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// let files = Arc::new(Mutex::new(Vec::new()));
    /// let listener = {
    ///     let files = files.clone();
    ///     move |event: &Event| {
    ///         if let EventKind::FlushCompleted(job) = &event.kind {
    ///             files.lock().unwrap().extend(job.outputs.clone());
    ///         }
    ///     }
    /// };
    /// let options = DbOptions { listeners: vec![Arc::new(listener)], ..DbOptions::default() };
    /// let db = Db::open_or_create(scratch.path().join("s"), options)?;
    /// let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// table.put(b"k", b"v")?;
    /// table.flush()?;
    /// db.close()?;
    /// assert_eq!(files.lock().unwrap().len(), 1);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub listeners: Vec<Arc<dyn EventListener>>,
    /// The keys of an encrypted store: a new store is encrypted with them, and an existing one must
    /// be. By default there are none. See [`encryption`](crate::encryption).
    pub encryption: Keys,
}

impl fmt::Debug for DbOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DbOptions")
            .field("direct_reads", &self.direct_reads)
            .field("read_only", &self.read_only)
            .field("transactions", &self.transactions)
            .field("encryption", &self.encryption)
            .finish_non_exhaustive()
    }
}

impl Default for DbOptions {
    /// The system clock; one thread for flushes, and one per core, up to four, for other jobs.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        DbOptions {
            env: Env::system(cores.min(4)),
            direct_reads: false,
            read_only: false,
            transactions: TransactionOptions::default(),
            max_open_files: Self::DEFAULT_MAX_OPEN_FILES,
            cache_bytes: None,
            compaction_filters: BTreeMap::new(),
            merge_operators: BTreeMap::new(),
            listeners: Vec::new(),
            encryption: Keys::default(),
        }
    }
}

impl DbOptions {
    /// The default of [`max_open_files`](Self::max_open_files).
    pub const DEFAULT_MAX_OPEN_FILES: usize = DiskOptions::DEFAULT_MAX_OPEN_FILES;

    pub(super) fn disk(&self, disk: Disk) -> Disk {
        let (direct, max_open_files) = (self.direct_reads, self.max_open_files);
        disk.with_options(DiskOptions { direct, max_open_files, ..DiskOptions::default() })
    }
}
