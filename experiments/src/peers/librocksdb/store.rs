//! A RocksDB database as a [`Store`].
//!
//! Counters are the library's tickers. This version has no call to wait for compactions, so
//! [`wait_until_idle`](Store::wait_until_idle) polls until none is pending.
//!
//! Invariant: a handle is used only between its creation and its destruction in `drop`.
//!
//! Source: RocksDB's `c.h`.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use siltstone_engine::stats::Stalls;
use siltstone_engine::{Durability, Error, IoCounts, Result, Stats, WriteBatch};
use siltstone_lsm::Compression;

use super::ffi::Library;
use crate::peers::leveldb_c_api::IteratorCursor;
use crate::peers::library::Handle;
use crate::peers::peer_settings::PeerSettings;
use crate::peers::store::{Store, StoreCursor};

/// The number of a compression in `c.h`.
fn number_of(compression: Compression) -> c_int {
    match compression {
        Compression::None => 0,
        Compression::Lz4 => 4,
        Compression::Zstd { .. } => 7,
    }
}

/// Settings that differ from RocksDB's defaults, by its names.
pub(super) fn listed(settings: &PeerSettings) -> BTreeMap<String, String> {
    let entries = [
        ("write_buffer_size", settings.memtable.to_string()),
        ("max_write_buffer_number", settings.memtables.to_string()),
        ("target_file_size_base", settings.table.to_string()),
        ("max_bytes_for_level_base", settings.level_1.to_string()),
        ("level0_file_num_compaction_trigger", settings.level0_files.to_string()),
        ("block_size", settings.block.to_string()),
        ("block_cache", settings.cache.to_string()),
        ("bloom_bits", settings.filter_bits.to_string()),
        ("compression", number_of(settings.compression).to_string()),
        ("max_background_jobs", settings.jobs.to_string()),
        ("use_direct_reads", settings.direct.to_string()),
    ];
    entries.map(|(name, value)| (format!("rocksdb.{name}"), value)).into()
}

/// An open database with its read and write options.
pub(super) struct RocksDb {
    library: Library,
    options: Handle,
    database: Handle,
    read: Handle,
    buffered: Handle,
    synced: Handle,
}

// SAFETY: RocksDB's database and its constant options may be used by any number of threads at once.
unsafe impl Send for RocksDb {}
// SAFETY: the same.
unsafe impl Sync for RocksDb {}

impl RocksDb {
    pub(super) fn open(settings: &PeerSettings) -> Result<Self> {
        let library = Library::open()?;
        let l = &library;
        let path = CString::new(settings.directory.as_os_str().as_bytes())
            .map_err(|_| Error::Invalid("a path with a zero byte".to_owned()))?;
        // SAFETY: each object is created before it is used; a table factory owns the filter policy
        // and shares the cache.
        let (options, database) = unsafe {
            let table = (l.block_based_options_create)();
            (l.block_based_options_set_block_size)(table, settings.block);
            if settings.filter_bits > 0.0 {
                let policy = (l.filterpolicy_create_bloom_full)(settings.filter_bits);
                (l.block_based_options_set_filter_policy)(table, policy);
            }
            let cache = (l.cache_create_lru)(settings.cache as usize);
            (l.block_based_options_set_block_cache)(table, cache);
            let options = (l.options_create)();
            (l.options_set_create_if_missing)(options, 1);
            (l.options_set_write_buffer_size)(options, settings.memtable as usize);
            (l.options_set_max_write_buffer_number)(options, settings.memtables as c_int);
            (l.options_set_target_file_size_base)(options, settings.table);
            (l.options_set_max_bytes_for_level_base)(options, settings.level_1);
            let files = settings.level0_files as c_int;
            (l.options_set_level0_file_num_compaction_trigger)(options, files);
            (l.options_set_compression)(options, number_of(settings.compression));
            (l.options_set_max_background_jobs)(options, settings.jobs as c_int);
            (l.options_set_use_direct_reads)(options, settings.direct.into());
            (l.options_enable_statistics)(options);
            (l.options_set_block_based_table_factory)(options, table);
            (l.block_based_options_destroy)(table);
            (l.cache_destroy)(cache);
            let opened = l.checked(|error| (l.open)(options, path.as_ptr(), error));
            (options, opened.inspect_err(|_| (l.options_destroy)(options))?)
        };
        // SAFETY: constructors without arguments.
        let (read, buffered, synced) = unsafe {
            let synced = (l.writeoptions_create)();
            (l.writeoptions_set_sync)(synced, 1);
            ((l.readoptions_create)(), (l.writeoptions_create)(), synced)
        };
        Ok(RocksDb { library, options, database, read, buffered, synced })
    }

    fn property(&self, name: &str) -> u64 {
        let name = CString::new(format!("rocksdb.{name}")).unwrap_or_default();
        let mut value = 0;
        // SAFETY: the name ends with a zero byte, and the value outlives the call.
        let failed =
            unsafe { (self.library.property_int)(self.database, name.as_ptr(), &mut value) };
        if failed == 0 { value } else { 0 }
    }

    /// Tickers, and the counts of histograms, by name.
    fn tickers(&self) -> BTreeMap<String, u64> {
        // SAFETY: a string that the library allocated for us, terminated by a zero byte.
        let text = unsafe {
            let at = (self.library.options_statistics_get_string)(self.options);
            if at.is_null() {
                return BTreeMap::new();
            }
            let text = CStr::from_ptr(at).to_string_lossy().into_owned();
            (self.library.free)(at.cast());
            text
        };
        text.lines().filter_map(crate::peers::db_bench_output::counted).collect()
    }

    fn is_busy(&self) -> bool {
        let pending = [
            "mem-table-flush-pending",
            "num-running-flushes",
            "compaction-pending",
            "num-running-compactions",
        ];
        pending.iter().any(|name| self.property(name) > 0)
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        let l = &self.library;
        // SAFETY: there are no other users, and the database is closed before its options.
        unsafe {
            (l.close)(self.database);
            (l.options_destroy)(self.options);
            (l.readoptions_destroy)(self.read);
            (l.writeoptions_destroy)(self.buffered);
            (l.writeoptions_destroy)(self.synced);
        }
    }
}

impl Store for RocksDb {
    const NAME: &'static str = "rocksdb";

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let l = &self.library;
        // SAFETY: the handles live; the value is copied before its slice is destroyed.
        unsafe {
            let slice = l.checked(|error| {
                (l.get_pinned)(self.database, self.read, key.as_ptr().cast(), key.len(), error)
            })?;
            if slice.is_null() {
                return Ok(None);
            }
            let mut len = 0;
            let at = (l.pinnableslice_value)(slice, &mut len);
            let value = std::slice::from_raw_parts(at.cast::<u8>(), len).to_vec();
            (l.pinnableslice_destroy)(slice);
            Ok(Some(value))
        }
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        let l = &self.library;
        let options = match durability {
            Durability::Buffered => self.buffered,
            Durability::Synced => self.synced,
        };
        l.batches().with(batch, |writes| {
            // SAFETY: the handles live.
            l.checked(|error| unsafe { (l.write)(self.database, options, writes, error) })
        })
    }

    fn sync(&self) -> Result<()> {
        let l = &self.library;
        // SAFETY: the handle lives.
        l.checked(|error| unsafe { (l.flush_wal)(self.database, 1, error) })
    }

    fn cursor(self: &Arc<Self>) -> Result<Box<dyn StoreCursor>> {
        // SAFETY: both handles live as long as the database, to which the cursor owns a reference.
        let iterator = unsafe { (self.library.create_iterator)(self.database, self.read) };
        let calls = self.library.iterators();
        Ok(Box::new(IteratorCursor::new("RocksDB", calls, iterator, self)))
    }

    fn flush(&self) -> Result<()> {
        let l = &self.library;
        // SAFETY: plain handles; by default the call waits.
        unsafe {
            let options = (l.flushoptions_create)();
            let flushed = l.checked(|error| (l.flush)(self.database, options, error));
            (l.flushoptions_destroy)(options);
            flushed
        }
    }

    fn wait_until_idle(&self) -> Result<()> {
        let mut idle_polls = 0;
        // Between a flush and the compaction that it triggers nothing is pending for a moment.
        while idle_polls < 3 {
            idle_polls = if self.is_busy() { 0 } else { idle_polls + 1 };
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn stats(&self) -> Stats {
        let tickers = self.tickers();
        let ticker = |name: &str| tickers.get(&format!("rocksdb.{name}")).copied().unwrap_or(0);
        let written = |name: &str| IoCounts { bytes_written: ticker(name), ..IoCounts::default() };
        let gets = IoCounts { reads: ticker("read.block.get.micros"), ..IoCounts::default() };
        Stats {
            io: BTreeMap::from([
                ("log", written("wal.bytes")),
                ("flush", written("flush.write.bytes")),
                ("compaction", written("compact.write.bytes")),
                ("get", gets),
            ]),
            keys_estimate: Some(self.property("estimate-num-keys")),
            space_bytes: self.property("total-sst-files-size"),
            memory: BTreeMap::from([
                ("memtable", self.property("cur-size-all-mem-tables")),
                ("table_readers", self.property("estimate-table-readers-mem")),
                ("block_cache", self.property("block-cache-usage")),
            ]),
            // One sum over all causes.
            stall: Stalls { slowdown_us: ticker("stall.micros"), ..Stalls::default() },
            ..Stats::default()
        }
    }
}
