//! Options of databases and column families.
//!
//! A database is one table, so those that apply to column families in RocksDB apply to it as a
//! whole, and are taken from the options of the database; merge operators, compaction filters and
//! prefix extractors are those of each family. README.md has the list of what is honoured.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use shim::boundary::{Pointer, address};
use store::{DbOptions, Env, Error};

use crate::caches::Cache;
use crate::callbacks::{
    Comparator, FilterCallbacks, FilterFactory, MergeCallbacks, PrefixExtractor,
};
use crate::environment::Environment;
use crate::exports::{array, exports, give, owned_text};
use crate::failure::Failure;
use crate::merge::Merge;
use crate::scalars::{HasScalars, Plain, Scalars};
use crate::statistics::Statistics;

/// The most log that is kept, in bytes.
const MAX_RETENTION: u64 = 1 << 40;
/// The longest time for which the log is kept, in seconds: a century.
const MAX_RETENTION_SECONDS: u64 = 100 * 365 * 86_400;
/// The limits of the sizes of dictionaries.
const MIN_DICTIONARY_BYTES: c_int = 256;
const MAX_DICTIONARY_BYTES: c_int = 1 << 20;

/// Options of a database or a column family.
#[derive(Debug, Clone, Default)]
pub struct Options {
    scalars: Scalars,
    /// Options that are texts.
    texts: BTreeMap<&'static str, String>,
    /// The name of a comparator that is not bytewise.
    other_comparator: Option<String>,
    /// The merge operator.
    pub merge: Option<Merge>,
    /// The compaction filter.
    pub filter: Option<Arc<FilterCallbacks>>,
    /// The factory of compaction filters.
    pub filter_factory: Option<Arc<FilterFactory>>,
    /// The prefix extractor.
    pub prefix: Option<Arc<PrefixExtractor>>,
    /// What databases with these options count, if the program wants it.
    pub statistics: Option<Arc<Statistics>>,
    compression: CompressionOptions,
    /// Those of files with nothing below them, if they have their own.
    bottommost_compression: Option<CompressionOptions>,
    table: BlockBasedOptions,
    is_in_memory: bool,
}

/// How a compression is done.
#[derive(Debug, Clone, Copy, Default)]
struct CompressionOptions {
    level: c_int,
    max_dict_bytes: c_int,
}

impl CompressionOptions {
    /// The store's name of a kind of compression.
    fn name(self, kind: c_int) -> String {
        match (kind, self.level) {
            (0, _) => "none".to_owned(),
            // Snappy, LZ4, LZ4HC.
            (1 | 4 | 5, _) => "lz4".to_owned(),
            (7, level @ 1..=19) => format!("zstd:{level}"),
            _ => "zstd".to_owned(),
        }
    }
}

impl HasScalars for Options {
    fn scalars(&self) -> &Scalars {
        &self.scalars
    }
    fn scalars_mut(&mut self) -> &mut Scalars {
        &mut self.scalars
    }
}

impl Options {
    /// The block cache, if the program has set one.
    pub fn cache(&self) -> Option<&Cache> {
        self.table.cache.as_ref()
    }

    /// Refuses what the store cannot do, rather than to do something else.
    pub fn check(&self, path: &str) -> Result<(), Failure> {
        if let Some(name) = &self.other_comparator {
            return Err(Failure::Store(Error::Refused {
                path: path.to_owned(),
                reason: format!(
                    "keys are in bytewise order only: leave out the comparator '{name}', or name it \
                     \"leveldb.BytewiseComparator\" if it has that order"
                ),
            }));
        }
        if self.is_in_memory {
            let text = "databases in an environment in memory".to_owned();
            return Err(Failure::NotImplemented(text));
        }
        Ok(())
    }

    /// The options of opening the store. Snapshots of RocksDB do not expire.
    pub fn to_db_options(&self) -> DbOptions {
        let mut options = DbOptions {
            direct_reads: self.scalars.is_set("use_direct_reads"),
            cache_bytes: self.table.cache.as_ref().map(Cache::capacity),
            ..DbOptions::default()
        };
        if let Some(files @ 1..) = self.scalars.get::<i32>("max_open_files") {
            options.max_open_files = files as usize;
        }
        if let Some(threads @ 1..) = self.scalars.get::<i32>("max_background_jobs") {
            options.env = Env::system((threads as usize).min(64));
        }
        options.transactions.idle = None;
        options
    }

    /// The options of the table, as far as the program has set them, within their limits.
    pub fn to_table_options(&self) -> BTreeMap<String, String> {
        let mut options = BTreeMap::new();
        let mut put = |name: &str, value: Option<u64>, min: u64, max: u64| {
            if let Some(value) = value {
                options.insert(name.to_owned(), value.clamp(min, max).to_string());
            }
        };
        let table = &self.table.scalars;
        put("memtable", self.scalars.get("write_buffer_size"), 64 << 10, 4 << 30);
        put("target_file_size", self.scalars.get("target_file_size_base"), 1 << 20, 1 << 30);
        put("block_size", table.get("block_size"), 256, 4 << 20);
        put(
            "experimental.block_restart_interval",
            table.get::<i32>("block_restart_interval").map(|value| value.max(1) as u64),
            1,
            1024,
        );
        put("cache", self.cache().map(Cache::capacity), 0, u64::MAX);
        put("filter_bits_per_key", self.table.filter_bits.map(|bits| bits as u64), 0, 64);
        self.log_retention(&mut options);
        self.compression_options(&mut options);
        options
    }

    /// How much of the log is kept for `rocksdb_get_updates_since`, and for how long.
    fn log_retention(&self, options: &mut BTreeMap<String, String>) {
        let get = |name| self.scalars.get::<u64>(name).filter(|value| *value > 0);
        if let Some(mebibytes) = get("WAL_size_limit_MB") {
            let bytes = mebibytes.min(MAX_RETENTION >> 20) << 20;
            options.insert("log_retention".to_owned(), bytes.to_string());
        }
        if let Some(seconds) = get("WAL_ttl_seconds") {
            let time = format!("{}s", seconds.min(MAX_RETENTION_SECONDS));
            options.insert("log_retention_time".to_owned(), time);
        }
    }

    fn compression_options(&self, options: &mut BTreeMap<String, String>) {
        let bottommost_options = self.bottommost_compression.unwrap_or(self.compression);
        let get = |name| self.scalars.get::<i32>(name);
        let compression = get("compression").map(|kind| self.compression.name(kind));
        // 255: as other files.
        let own = get("bottommost_compression").filter(|kind| *kind != 255);
        let bottommost = match (own, get("compression")) {
            (Some(kind), _) => Some(bottommost_options.name(kind)),
            (None, Some(kind)) if self.bottommost_compression.is_some() => {
                Some(bottommost_options.name(kind))
            }
            _ => None,
        };
        let effective = bottommost.as_ref().or(compression.as_ref());
        // Only Zstandard has dictionaries.
        let dictionary = bottommost_options.max_dict_bytes.clamp(0, MAX_DICTIONARY_BYTES);
        if dictionary > 0 && effective.is_some_and(|name| name.starts_with("zstd")) {
            let bytes = dictionary.max(MIN_DICTIONARY_BYTES);
            options.insert("compression_dict_size".to_owned(), bytes.to_string());
        }
        let named = [("compression", compression), ("bottommost_compression", bottommost)];
        for (name, value) in named {
            options.extend(value.map(|value| (name.to_owned(), value)));
        }
    }

    /// Remembers a text.
    ///
    /// # Safety
    /// It is a NUL-terminated string, or NULL.
    unsafe fn set_text(&mut self, name: &'static str, value: *const c_char) {
        // SAFETY: by the contract of this function.
        let value = unsafe { owned_text(value) };
        self.texts.insert(name, value.unwrap_or_default());
    }

    /// Lends a text and its length.
    fn text(&self, name: &str, size: *mut usize) -> Pointer<c_char> {
        let text = self.texts.get(name).map_or("", String::as_str);
        // SAFETY: the caller passes a place for the length, or NULL.
        unsafe { give(size, text.len()) };
        Pointer(address(text.as_bytes()).cast_mut())
    }

    /// Remembers another order than the bytewise one, to refuse it.
    pub fn set_comparator(&mut self, comparator: Option<&Comparator>) {
        let other = comparator.filter(|comparator| !comparator.is_bytewise());
        self.other_comparator = other.map(|comparator| comparator.name.clone());
    }

    fn set_merge(&mut self, merge: Option<Merge>) {
        self.merge = merge;
    }
}

/// Options of the format of tables.
#[derive(Debug, Clone, Default)]
pub struct BlockBasedOptions {
    scalars: Scalars,
    filter_bits: Option<f64>,
    cache: Option<Cache>,
}

impl HasScalars for BlockBasedOptions {
    fn scalars(&self) -> &Scalars {
        &self.scalars
    }
    fn scalars_mut(&mut self) -> &mut Scalars {
        &mut self.scalars
    }
}

/// A filter policy: bits per key.
#[derive(Debug)]
pub struct FilterPolicy(f64);

exports! {
    /// New options.
    fn rocksdb_options_create() -> Pointer<Options> {
        Pointer::new(Options::default())
    }

    /// Frees options.
    fn rocksdb_options_destroy(options: Option<Box<Options>>) {
        drop(options)
    }

    /// A copy of options.
    fn rocksdb_options_create_copy(options: &Options) -> Pointer<Options> {
        Pointer::new(options.clone())
    }

    /// The number of background threads.
    fn rocksdb_options_increase_parallelism(options: &mut Options, threads: c_int) {
        options.scalars.set("max_background_jobs", threads)
    }

    /// The size of the block cache, in MiB, and filters.
    fn rocksdb_options_optimize_for_point_lookup(options: &mut Options, cache_mb: u64) {
        options.table.cache = Some(Cache::new(cache_mb.max(1) << 20));
        options.table.filter_bits = Some(10.0)
    }

    /// The memtable gets a quarter of the budget, and a file an eighth, as in RocksDB.
    fn rocksdb_options_optimize_level_style_compaction(options: &mut Options, budget: u64) {
        options.scalars.set("write_buffer_size", budget as usize / 4);
        options.scalars.set("target_file_size_base", budget / 8);
        options.scalars.set("max_bytes_for_level_base", budget);
        options.scalars.set("min_write_buffer_number_to_merge", 2);
        options.scalars.set("max_write_buffer_number", 6);
        options.scalars.set("level0_file_num_compaction_trigger", 2)
    }

    /// As rocksdb_options_optimize_level_style_compaction().
    fn rocksdb_options_optimize_universal_style_compaction(options: &mut Options, budget: u64) {
        options.scalars.set("write_buffer_size", budget as usize / 4)
    }

    /// Another order than the bytewise one is refused when a database is opened.
    fn rocksdb_options_set_comparator(options: &mut Options, comparator: Option<&Comparator>) {
        options.set_comparator(comparator)
    }

    /// Takes the merge operator.
    fn rocksdb_options_set_merge_operator(
        options: &mut Options, operator: Option<Box<Arc<MergeCallbacks>>>
    ) {
        options.set_merge(operator.map(|operator| Merge::Program(*operator)))
    }

    /// Values and operands are 64-bit integers, little-endian, which are added.
    fn rocksdb_options_set_uint64add_merge_operator(options: &mut Options) {
        options.set_merge(Some(Merge::AddU64))
    }

    /// The compaction filter, which stays the program's.
    fn rocksdb_options_set_compaction_filter(
        options: &mut Options, filter: Option<&Arc<FilterCallbacks>>
    ) {
        options.filter = filter.cloned()
    }

    /// Takes the factory of compaction filters.
    fn rocksdb_options_set_compaction_filter_factory(
        options: &mut Options, factory: Option<Box<Arc<FilterFactory>>>
    ) {
        options.filter_factory = factory.map(|factory| *factory)
    }

    /// Takes the prefix extractor.
    fn rocksdb_options_set_prefix_extractor(
        options: &mut Options, extractor: Option<Box<Arc<PrefixExtractor>>>
    ) {
        options.prefix = extractor.map(|extractor| *extractor)
    }

    /// The environment: an environment in memory is refused when a database is opened.
    fn rocksdb_options_set_env(options: &mut Options, environment: Option<&Environment>) {
        options.is_in_memory = environment.is_some_and(|environment| environment.is_in_memory)
    }

    /// The format of tables.
    fn rocksdb_options_set_block_based_table_factory(
        options: &mut Options, table: Option<&BlockBasedOptions>
    ) {
        if let Some(table) = table {
            options.table = table.clone();
        }
    }

    /// The compression of the deepest given level is that of the database.
    fn rocksdb_options_set_compression_per_level(
        options: &mut Options, levels: *const c_int, count: usize
    ) {
        let levels = unsafe { array(levels, count) };
        if let Some(last) = levels.last() {
            options.scalars.set("compression", *last);
        }
    }

    /// Remembered.
    fn rocksdb_options_compaction_readahead_size(options: &mut Options, bytes: usize) {
        options.scalars.set("compaction_readahead_size", bytes)
    }

    /// The level of Zstandard, and the size of the dictionaries of files with nothing below them.
    fn rocksdb_options_set_compression_options(
        options: &mut Options, _window_bits: c_int, level: c_int, _strategy: c_int,
        max_dict_bytes: c_int
    ) {
        options.compression = CompressionOptions { level, max_dict_bytes }
    }

    /// The same for files with nothing below them, if `enabled` is not 0.
    fn rocksdb_options_set_bottommost_compression_options(
        options: &mut Options, _window_bits: c_int, level: c_int, _strategy: c_int,
        max_dict_bytes: c_int, enabled: u8
    ) {
        let given = CompressionOptions { level, max_dict_bytes };
        options.bottommost_compression = (enabled != 0).then_some(given)
    }

    /// Remembered.
    fn rocksdb_options_set_bottommost_compression_options_use_zstd_dict_trainer(
        options: &mut Options, value: u8, _enabled: u8
    ) {
        options.scalars.set("bottommost_compression_options_use_zstd_dict_trainer", value)
    }

    /// Remembered.
    fn rocksdb_options_set_db_log_dir(options: &mut Options, path: *const c_char) {
        unsafe { options.set_text("db_log_dir", path) }
    }

    /// What was set.
    fn rocksdb_options_get_db_log_dir(options: &Options, size: *mut usize) -> Pointer<c_char> {
        options.text("db_log_dir", size)
    }

    /// Remembered: the log is in the directory of the database.
    fn rocksdb_options_set_wal_dir(options: &mut Options, path: *const c_char) {
        unsafe { options.set_text("wal_dir", path) }
    }

    /// What was set.
    fn rocksdb_options_get_wal_dir(options: &Options, size: *mut usize) -> Pointer<c_char> {
        options.text("wal_dir", size)
    }

    /// Remembered.
    fn rocksdb_options_set_db_host_id(options: &mut Options, id: *const c_char) {
        unsafe { options.set_text("db_host_id", id) }
    }

    /// What was set.
    fn rocksdb_options_get_db_host_id(options: &Options, size: *mut usize) -> Pointer<c_char> {
        options.text("db_host_id", size)
    }

    /// Remembered.
    fn rocksdb_options_set_daily_offpeak_time_utc(options: &mut Options, time: *const c_char) {
        unsafe { options.set_text("daily_offpeak_time_utc", time) }
    }

    /// What was set.
    fn rocksdb_options_get_daily_offpeak_time_utc(
        options: &Options, size: *mut usize
    ) -> Pointer<c_char> {
        options.text("daily_offpeak_time_utc", size)
    }

    /// Options of the format of tables.
    fn rocksdb_block_based_options_create() -> Pointer<BlockBasedOptions> {
        Pointer::new(BlockBasedOptions::default())
    }

    /// Frees options.
    fn rocksdb_block_based_options_destroy(options: Option<Box<BlockBasedOptions>>) {
        drop(options)
    }

    /// Takes a filter policy, which sets the bits per key.
    fn rocksdb_block_based_options_set_filter_policy(
        options: &mut BlockBasedOptions, policy: Option<Box<FilterPolicy>>
    ) {
        options.filter_bits = policy.map(|policy| policy.0)
    }

    /// The capacity of the cache is the size of the database's own block cache.
    fn rocksdb_block_based_options_set_block_cache(
        options: &mut BlockBasedOptions, cache: Option<&Cache>
    ) {
        options.cache = cache.cloned()
    }

    /// A Bloom filter.
    fn rocksdb_filterpolicy_create_bloom(bits_per_key: f64) -> Pointer<FilterPolicy> {
        Pointer::new(FilterPolicy(bits_per_key))
    }

    /// A Bloom filter.
    fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: f64) -> Pointer<FilterPolicy> {
        Pointer::new(FilterPolicy(bits_per_key))
    }

    /// A Bloom filter with these bits per key.
    fn rocksdb_filterpolicy_create_ribbon(bits_per_key: f64) -> Pointer<FilterPolicy> {
        Pointer::new(FilterPolicy(bits_per_key))
    }

    /// A Bloom filter with these bits per key.
    fn rocksdb_filterpolicy_create_ribbon_hybrid(
        bits_per_key: f64, _bloom_before_level: c_int
    ) -> Pointer<FilterPolicy> {
        Pointer::new(FilterPolicy(bits_per_key))
    }

    /// Frees a filter policy.
    fn rocksdb_filterpolicy_destroy(policy: Option<Box<FilterPolicy>>) {
        drop(policy)
    }

    /// Remembered: every write is in the log.
    fn rocksdb_writeoptions_disable_WAL(options: &mut Plain, value: c_int) {
        options.scalars_mut().set("disable_WAL", value)
    }

    /// What was set.
    fn rocksdb_writeoptions_get_disable_WAL(options: &Plain) -> u8 {
        options.scalars().is_set("disable_WAL").into()
    }

    /// Frees what other functions return.
    fn rocksdb_free(memory: *mut c_void) {
        unsafe { libc::free(memory) }
    }
}
