//! A RocksDB database as a [`Store`].
//!
//! Counters are the library's own tickers. Without a call to wait for compactions in this version,
//! [`settle`](Store::settle) asks until none is pending.
//!
//! Invariant: a handle is used only between its making and its destruction, which is in `drop`.
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
use crate::peers::asked::Asked;
use crate::peers::descent::IteratorWalk;
use crate::peers::library::Handle;
use crate::peers::store::{Store, Walk};

/// The number of a compression in `c.h`.
fn number_of(compression: Compression) -> c_int {
    match compression {
        Compression::None => 0,
        Compression::Lz4 => 4,
        Compression::Zstd { .. } => 7,
    }
}

/// What differs from RocksDB's defaults, by its names.
pub(super) fn listed(asked: &Asked) -> BTreeMap<String, String> {
    let entries = [
        ("write_buffer_size", asked.memtable.to_string()),
        ("max_write_buffer_number", asked.memtables.to_string()),
        ("target_file_size_base", asked.table.to_string()),
        ("max_bytes_for_level_base", asked.level_1.to_string()),
        ("level0_file_num_compaction_trigger", asked.level0_files.to_string()),
        ("block_size", asked.block.to_string()),
        ("block_cache", asked.cache.to_string()),
        ("bloom_bits", asked.filter_bits.to_string()),
        ("compression", number_of(asked.compression).to_string()),
        ("max_background_jobs", asked.jobs.to_string()),
        ("use_direct_reads", asked.direct.to_string()),
    ];
    entries.map(|(name, value)| (format!("rocksdb.{name}"), value)).into()
}

/// The open database and what reads and writes with it.
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
    pub(super) fn open(asked: &Asked) -> Result<Self> {
        let library = Library::open()?;
        let l = &library;
        let path = CString::new(asked.directory.as_os_str().as_bytes())
            .map_err(|_| Error::Invalid("a path with a zero byte".to_owned()))?;
        // SAFETY: each object is made before it is used; a table factory takes the filter policy for
        // its own and shares the cache.
        let (options, database) = unsafe {
            let table = (l.block_based_options_create)();
            (l.block_based_options_set_block_size)(table, asked.block);
            if asked.filter_bits > 0.0 {
                let policy = (l.filterpolicy_create_bloom_full)(asked.filter_bits);
                (l.block_based_options_set_filter_policy)(table, policy);
            }
            let cache = (l.cache_create_lru)(asked.cache as usize);
            (l.block_based_options_set_block_cache)(table, cache);
            let options = (l.options_create)();
            (l.options_set_create_if_missing)(options, 1);
            (l.options_set_write_buffer_size)(options, asked.memtable as usize);
            (l.options_set_max_write_buffer_number)(options, asked.memtables as c_int);
            (l.options_set_target_file_size_base)(options, asked.table);
            (l.options_set_max_bytes_for_level_base)(options, asked.level_1);
            let files = asked.level0_files as c_int;
            (l.options_set_level0_file_num_compaction_trigger)(options, files);
            (l.options_set_compression)(options, number_of(asked.compression));
            (l.options_set_max_background_jobs)(options, asked.jobs as c_int);
            (l.options_set_use_direct_reads)(options, asked.direct.into());
            (l.options_enable_statistics)(options);
            (l.options_set_block_based_table_factory)(options, table);
            (l.block_based_options_destroy)(table);
            (l.cache_destroy)(cache);
            let opened = l.checked(|error| (l.open)(options, path.as_ptr(), error));
            (options, opened.inspect_err(|_| (l.options_destroy)(options))?)
        };
        // SAFETY: plain makers.
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
        // SAFETY: a string that the library allocated for us, ended by a zero byte.
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
        // SAFETY: the last user is gone, and the database goes before its options.
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

    fn walk(self: &Arc<Self>) -> Result<Box<dyn Walk>> {
        // SAFETY: both handles live as long as the database, which the walk holds.
        let iterator = unsafe { (self.library.create_iterator)(self.database, self.read) };
        let calls = self.library.iterators();
        Ok(Box::new(IteratorWalk::new("RocksDB", calls, iterator, self)))
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

    fn settle(&self) -> Result<()> {
        let mut calm = 0;
        // Between a flush and the compaction that it makes due nothing is pending for a moment.
        while calm < 3 {
            calm = if self.is_busy() { 0 } else { calm + 1 };
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
            stall: Stalls { insert_us: ticker("stall.micros"), ..Stalls::default() },
            ..Stats::default()
        }
    }
}
