//! A RocksDB database behind our contract, as far as workloads ask.
//!
//! Counters are the library's own tickers; bytes of the user's are counted here. Without a call to
//! wait for compactions in this version, [`maintain`](Engine::maintain) asks until none is pending.
//!
//! Invariant: a handle is used only between its making and its destruction, which is in `drop`.
//!
//! Source: RocksDB's `c.h`.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use siltstone_engine::stats::Stalls;
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, Error, IoCounts, KeyRange, Op,
    ReadPoint, Result, Stats, VerifyReport, WriteBatch,
};
use siltstone_lsm::{Compression, Options as LsmOptions};

use super::cursor::RocksCursor;
use super::ffi::{Handle, Library};

/// What differs from RocksDB's defaults.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    write_buffer: u64,
    write_buffers: usize,
    table: u64,
    level_1: u64,
    level0_files: usize,
    block: usize,
    cache: u64,
    bloom_bits: f64,
    compression: c_int,
    jobs: usize,
}

impl Settings {
    /// Those of our tree, where RocksDB has them.
    pub(super) fn equal_to(ours: &LsmOptions, background_threads: usize) -> Self {
        Settings {
            write_buffer: ours.memtable_bytes,
            write_buffers: ours.memtables,
            table: ours.table_bytes,
            level_1: ours.level_bytes[0],
            level0_files: ours.level0.compact_at,
            block: ours.file.block_bytes,
            cache: ours.cache_bytes,
            bloom_bits: ours.file.filter_bits,
            // The numbers of `c.h`.
            compression: match ours.file.compression {
                Compression::None => 0,
                Compression::Lz4 => 4,
                Compression::Zstd { .. } => 7,
            },
            jobs: background_threads,
        }
    }

    pub(super) fn listed(&self) -> BTreeMap<String, String> {
        let entries = [
            ("write_buffer_size", self.write_buffer.to_string()),
            ("max_write_buffer_number", self.write_buffers.to_string()),
            ("target_file_size_base", self.table.to_string()),
            ("max_bytes_for_level_base", self.level_1.to_string()),
            ("level0_file_num_compaction_trigger", self.level0_files.to_string()),
            ("block_size", self.block.to_string()),
            ("block_cache", self.cache.to_string()),
            ("bloom_bits", self.bloom_bits.to_string()),
            ("compression", self.compression.to_string()),
            ("max_background_jobs", self.jobs.to_string()),
        ];
        entries.map(|(name, value)| (format!("rocksdb.{name}"), value)).into()
    }
}

/// The open database and what reads and writes with it.
pub(super) struct Database {
    pub(super) library: Library,
    options: Handle,
    database: Handle,
    read: Handle,
    buffered: Handle,
    synced: Handle,
}

// SAFETY: RocksDB's database and its constant options may be used by any number of threads at once.
unsafe impl Send for Database {}
// SAFETY: the same.
unsafe impl Sync for Database {}

impl Database {
    fn open(directory: &Path, settings: &Settings) -> Result<Self> {
        let library = Library::open()?;
        let l = &library;
        let path = CString::new(directory.as_os_str().as_encoded_bytes())
            .map_err(|_| Error::Invalid("a path with a zero byte".to_owned()))?;
        // SAFETY: each object is made before it is used; a table factory takes the filter policy for
        // its own and shares the cache.
        let (options, database) = unsafe {
            let table = (l.block_based_options_create)();
            (l.block_based_options_set_block_size)(table, settings.block);
            if settings.bloom_bits > 0.0 {
                let policy = (l.filterpolicy_create_bloom_full)(settings.bloom_bits);
                (l.block_based_options_set_filter_policy)(table, policy);
            }
            let cache = (l.cache_create_lru)(settings.cache as usize);
            (l.block_based_options_set_block_cache)(table, cache);
            let options = (l.options_create)();
            (l.options_set_create_if_missing)(options, 1);
            (l.options_set_write_buffer_size)(options, settings.write_buffer as usize);
            (l.options_set_max_write_buffer_number)(options, settings.write_buffers as c_int);
            (l.options_set_target_file_size_base)(options, settings.table);
            (l.options_set_max_bytes_for_level_base)(options, settings.level_1);
            let files = settings.level0_files as c_int;
            (l.options_set_level0_file_num_compaction_trigger)(options, files);
            (l.options_set_compression)(options, settings.compression);
            (l.options_set_max_background_jobs)(options, settings.jobs as c_int);
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
        Ok(Database { library, options, database, read, buffered, synced })
    }

    pub(super) fn iterator(&self) -> Handle {
        // SAFETY: both handles live as long as `self`, which whoever holds the iterator holds.
        unsafe { (self.library.create_iterator)(self.database, self.read) }
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
        text.lines().filter_map(super::super::db_bench_output::counted).collect()
    }
}

impl Drop for Database {
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

/// RocksDB as an engine.
pub(super) struct RocksDb {
    database: Arc<Database>,
    user_bytes: AtomicU64,
    writes: AtomicU64,
    gets: AtomicU64,
    gets_found: AtomicU64,
    seeks: AtomicU64,
}

impl RocksDb {
    pub(super) fn open(directory: &Path, settings: &Settings) -> Result<Self> {
        let database = Arc::new(Database::open(directory, settings)?);
        let zero = AtomicU64::default;
        let (user_bytes, writes, gets, gets_found, seeks) =
            (zero(), zero(), zero(), zero(), zero());
        Ok(RocksDb { database, user_bytes, writes, gets, gets_found, seeks })
    }

    fn is_busy(&self) -> bool {
        let pending = [
            "mem-table-flush-pending",
            "num-running-flushes",
            "compaction-pending",
            "num-running-compactions",
        ];
        pending.iter().any(|name| self.database.property(name) > 0)
    }
}

impl Engine for RocksDb {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: true, durable: true, versioned: false, max_value_bytes: 1 << 30 }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.gets.fetch_add(1, Relaxed);
        let (db, l) = (&self.database, &self.database.library);
        // SAFETY: the handles live; the value is copied before its slice is destroyed.
        let value = unsafe {
            let slice = l.checked(|error| {
                (l.get_pinned)(db.database, db.read, key.as_ptr().cast(), key.len(), error)
            })?;
            if slice.is_null() {
                return Ok(None);
            }
            let mut len = 0;
            let at = (l.pinnableslice_value)(slice, &mut len);
            let value = std::slice::from_raw_parts(at.cast::<u8>(), len).to_vec();
            (l.pinnableslice_destroy)(slice);
            value
        };
        self.gets_found.fetch_add(1, Relaxed);
        Ok(Some(Entry { value, expires_at: None }))
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        let (db, l) = (&self.database, &self.database.library);
        let options = match durability {
            Durability::Buffered => db.buffered,
            Durability::Synced => db.synced,
        };
        // SAFETY: the batch copies keys and values, and is destroyed after it was written.
        let written = unsafe {
            let writes = (l.writebatch_create)();
            for op in batch.iter() {
                match op {
                    Op::Put { key, value, .. } => {
                        let (k, v) = (key.as_ptr().cast(), value.as_ptr().cast());
                        (l.writebatch_put)(writes, k, key.len(), v, value.len());
                    }
                    Op::Delete { key } => {
                        (l.writebatch_delete)(writes, key.as_ptr().cast(), key.len());
                    }
                }
            }
            let written = l.checked(|error| (l.write)(db.database, options, writes, error));
            (l.writebatch_destroy)(writes);
            written
        };
        self.user_bytes.fetch_add(batch.user_bytes(), Relaxed);
        self.writes.fetch_add(batch.len() as u64, Relaxed);
        written
    }

    fn sync(&self) -> Result<()> {
        let (db, l) = (&self.database, &self.database.library);
        // SAFETY: the handle lives.
        l.checked(|error| unsafe { (l.flush_wal)(db.database, 1, error) })
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.range(KeyRange::all(), None)
    }

    fn range(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        if at.is_some() {
            return Err(self.unsupported("reads at a snapshot"));
        }
        self.seeks.fetch_add(1, Relaxed);
        Ok(Box::new(RocksCursor::new(&self.database, range)))
    }

    fn flush(&self) -> Result<()> {
        let (db, l) = (&self.database, &self.database.library);
        // SAFETY: plain handles; by default the call waits.
        unsafe {
            let options = (l.flushoptions_create)();
            let flushed = l.checked(|error| (l.flush)(db.database, options, error));
            (l.flushoptions_destroy)(options);
            flushed
        }
    }

    fn maintain(&self) -> Result<()> {
        let mut calm = 0;
        // Between a flush and the compaction that it makes due nothing is pending for a moment.
        while calm < 3 {
            calm = if self.is_busy() { 0 } else { calm + 1 };
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn checkpoint(&self, _: &mut dyn CheckpointSink) -> Result<()> {
        Err(self.unsupported("checkpoints"))
    }

    fn verify(&self, _: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        Err(self.unsupported("verification"))
    }

    fn stats(&self) -> Stats {
        let tickers = self.database.tickers();
        let ticker = |name: &str| tickers.get(&format!("rocksdb.{name}")).copied().unwrap_or(0);
        let written = |name: &str| IoCounts { bytes_written: ticker(name), ..IoCounts::default() };
        let gets = IoCounts { reads: ticker("read.block.get.micros"), ..IoCounts::default() };
        let property = |name: &str| self.database.property(name);
        Stats {
            engine: "rocksdb",
            user_bytes_written: self.user_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            gets: self.gets.load(Relaxed),
            gets_found: self.gets_found.load(Relaxed),
            seeks: self.seeks.load(Relaxed),
            io: BTreeMap::from([
                ("log", written("wal.bytes")),
                ("flush", written("flush.write.bytes")),
                ("compaction", written("compact.write.bytes")),
                ("get", gets),
            ]),
            keys_estimate: property("estimate-num-keys"),
            space_bytes: property("total-sst-files-size"),
            memory: BTreeMap::from([
                ("memtable", property("cur-size-all-mem-tables")),
                ("table_readers", property("estimate-table-readers-mem")),
                ("block_cache", property("block-cache-usage")),
            ]),
            // One sum over all causes.
            stall: Stalls { insert_us: ticker("stall.micros"), ..Stalls::default() },
            ..Stats::default()
        }
    }

    fn close(&self) -> Result<()> {
        self.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `None` where the library is not installed.
    fn open(directory: &Path) -> Option<RocksDb> {
        match RocksDb::open(directory, &Settings::equal_to(&LsmOptions::default(), 2)) {
            Ok(rocksdb) => Some(rocksdb),
            Err(Error::Refused { reason, .. }) => {
                assert!(reason.contains("install"), "{reason}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn does_it_keep_what_it_is_given_and_count_it() {
        let directory = tempfile::tempdir().unwrap();
        let Some(rocksdb) = open(directory.path()) else { return };
        for i in 0..1000u32 {
            let mut batch = WriteBatch::new();
            batch.put(&i.to_be_bytes(), &[i as u8; 100]);
            rocksdb.write(&batch, Durability::Buffered).unwrap();
        }
        let mut batch = WriteBatch::new();
        batch.delete(&7u32.to_be_bytes()).put(b"x", b"");
        rocksdb.write(&batch, Durability::Synced).unwrap();
        rocksdb.flush().unwrap();
        rocksdb.maintain().unwrap();
        assert_eq!(rocksdb.get(&8u32.to_be_bytes()).unwrap().unwrap().value, [8; 100]);
        assert_eq!(rocksdb.get(b"x").unwrap().unwrap().value, b"");
        assert_eq!(rocksdb.get(&7u32.to_be_bytes()).unwrap(), None);
        let mut cursor = rocksdb.iter().unwrap();
        let mut seen = 0;
        let mut valid = cursor.first().unwrap();
        while valid {
            seen += 1;
            valid = cursor.next().unwrap();
        }
        assert_eq!(seen, 1000);
        assert!(cursor.seek(&7u32.to_be_bytes()).unwrap());
        assert_eq!(cursor.key(), 8u32.to_be_bytes());
        let stats = rocksdb.stats();
        assert_eq!(stats.user_bytes_written, 104_000 + 4 + 1);
        assert!(stats.io["log"].bytes_written > 104_000, "{:?}", stats.io);
        assert!(stats.io["flush"].bytes_written > 0);
    }
}
