//! Options, caches, filter policies, comparators, environments.
//!
//! | LevelDB | Siltstone | when it applies |
//! | --- | --- | --- |
//! | `write_buffer_size` | `memtable` | from each open on |
//! | `block_size` | `block_size` | 〃 |
//! | `block_restart_interval` | `experimental.block_restart_interval` | 〃 |
//! | `max_file_size` | `target_file_size` | 〃 |
//! | `compression` | `compression`: `none`, `lz4` for Snappy, `zstd` | 〃 |
//! | a Bloom filter policy | `filter_bits_per_key` | 〃 |
//! | `cache` | the size of the block cache | 〃 |
//! | `max_open_files` | `max_open_files` | 〃 |
//! | `paranoid_checks`, `verify_checksums` | always on | |
//! | other filter policies, `env`, `info_log`, `fill_cache` | ignored | |

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};

use shim::boundary::copy;
use shim::foreign::Foreign;
use store::{DbOptions, Durability, Error, Snapshot};

use crate::db::leveldb_snapshot_t;

const BYTEWISE: &CStr = c"leveldb.BytewiseComparator";

/// Options of a database.
#[derive(Debug)]
pub struct leveldb_options_t {
    pub(crate) create_if_missing: bool,
    pub(crate) error_if_exists: bool,
    is_bytewise: bool,
    write_buffer_bytes: u64,
    block_bytes: u64,
    restart_interval: i64,
    file_bytes: u64,
    compression: c_int,
    filter_bits: Option<c_int>,
    cache_bytes: Option<u64>,
    max_open_files: usize,
}

impl Default for leveldb_options_t {
    /// LevelDB's defaults.
    fn default() -> Self {
        leveldb_options_t {
            create_if_missing: false,
            error_if_exists: false,
            is_bytewise: true,
            write_buffer_bytes: 4 << 20,
            block_bytes: 4 << 10,
            restart_interval: 16,
            file_bytes: 2 << 20,
            compression: 1,
            filter_bits: None,
            cache_bytes: None,
            max_open_files: 1000,
        }
    }
}

impl leveldb_options_t {
    /// Refuses a comparator of another order, which the store could not follow.
    pub(crate) fn check(&self, path: &str) -> Result<(), Error> {
        if self.is_bytewise {
            return Ok(());
        }
        Err(Error::Refused {
            path: path.to_owned(),
            reason: format!(
                "keys are in bytewise order only: leave out the comparator, or name it {BYTEWISE:?} if it \
                 has that order"
            ),
        })
    }

    /// The options of opening the store. Snapshots of LevelDB do not expire.
    pub(crate) fn to_db_options(&self) -> DbOptions {
        let mut options = DbOptions {
            cache_bytes: self.cache_bytes,
            max_open_files: self.max_open_files,
            ..DbOptions::default()
        };
        options.transactions.idle = None;
        options
    }

    /// The options of a new table, within their limits.
    pub(crate) fn to_table_options(&self) -> BTreeMap<String, String> {
        let compression = match self.compression {
            0 => "none",
            1 => "lz4",
            _ => "zstd",
        };
        let mut options: BTreeMap<_, _> = [
            ("memtable", self.write_buffer_bytes.clamp(64 << 10, 4 << 30).to_string()),
            ("block_size", self.block_bytes.clamp(256, 4 << 20).to_string()),
            (
                "experimental.block_restart_interval",
                self.restart_interval.clamp(1, 1024).to_string(),
            ),
            ("target_file_size", self.file_bytes.clamp(1 << 20, 1 << 30).to_string()),
            ("compression", compression.to_owned()),
        ]
        .into();
        if let Some(bits) = self.filter_bits {
            options.insert("filter_bits_per_key", bits.clamp(0, 64).to_string());
        }
        options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// New options with LevelDB's defaults.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_create() -> Box<leveldb_options_t> {
    Box::default()
}

/// Frees options.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_destroy(options: Option<Box<leveldb_options_t>>) {
    drop(options);
}

/// A comparator of another name than "leveldb.BytewiseComparator" is refused when the database is
/// opened. NULL: bytewise.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_comparator(
    options: &mut leveldb_options_t,
    comparator: Option<&leveldb_comparator_t>,
) {
    options.is_bytewise = comparator.is_none_or(|comparator| comparator.is_bytewise);
}

/// A Bloom filter policy sets the bits per key of new files; others are ignored. NULL: as they
/// were, 10 in a new database.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_filter_policy(
    options: &mut leveldb_options_t,
    policy: Option<&leveldb_filterpolicy_t>,
) {
    options.filter_bits = policy.and_then(|policy| policy.bits_per_key);
}

/// Whether a missing database is created. Default: false.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_create_if_missing(
    options: &mut leveldb_options_t,
    value: u8,
) {
    options.create_if_missing = value != 0;
}

/// Whether an existing database is an error. Default: false.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_error_if_exists(options: &mut leveldb_options_t, value: u8) {
    options.error_if_exists = value != 0;
}

/// Ignored: every byte read is checked.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_paranoid_checks(
    _options: &mut leveldb_options_t,
    _value: u8,
) {
}

/// Ignored: the environment is the operating system.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_env(
    _options: &mut leveldb_options_t,
    _env: Option<&leveldb_env_t>,
) {
}

/// Ignored: there is no log of messages.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_info_log(
    _options: &mut leveldb_options_t,
    _log: *mut leveldb_logger_t,
) {
}

/// The size of the memtable, in bytes. Default: 4 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_write_buffer_size(
    options: &mut leveldb_options_t,
    bytes: usize,
) {
    options.write_buffer_bytes = bytes as u64;
}

/// The maximum number of open files, from 64 to 50000. Default: 1000.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_max_open_files(
    options: &mut leveldb_options_t,
    files: c_int,
) {
    options.max_open_files = files.clamp(64, 50_000) as usize;
}

/// The size of the block cache is the cache's capacity; it is not shared with other databases.
/// NULL: 64 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_cache(
    options: &mut leveldb_options_t,
    cache: Option<&leveldb_cache_t>,
) {
    options.cache_bytes = cache.map(|cache| cache.capacity);
}

/// The block size of new files, in bytes. Default: 4 KiB.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_block_size(options: &mut leveldb_options_t, bytes: usize) {
    options.block_bytes = bytes as u64;
}

/// The restart interval of new files. Default: 16.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_block_restart_interval(
    options: &mut leveldb_options_t,
    interval: c_int,
) {
    options.restart_interval = interval.into();
}

/// The size of new files, in bytes. Default: 2 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_max_file_size(options: &mut leveldb_options_t, bytes: usize) {
    options.file_bytes = bytes as u64;
}

/// The compression of new files: 0 none, 1 fast (lz4 in place of Snappy), 2 zstd. Default: 1.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_compression(
    options: &mut leveldb_options_t,
    compression: c_int,
) {
    options.compression = compression;
}

/// A function that frees the state of a comparator or filter policy.
pub type leveldb_destructor = Option<unsafe extern "C" fn(state: *mut c_void)>;

/// A comparator, of which only the name matters.
#[derive(Debug)]
pub struct leveldb_comparator_t {
    is_bytewise: bool,
    _state: Foreign,
}

/// A comparator. The order of keys is bytewise, so `compare` is never called: see
/// leveldb_options_set_comparator().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: leveldb_destructor,
    _compare: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            a: *const c_char,
            alen: usize,
            b: *const c_char,
            blen: usize,
        ) -> c_int,
    >,
    name: Option<unsafe extern "C" fn(state: *mut c_void) -> *const c_char>,
) -> Box<leveldb_comparator_t> {
    // SAFETY: the program passes a function that returns a NUL-terminated string for this state.
    let is_bytewise = name.is_some_and(|name| unsafe {
        let name = name(state);
        !name.is_null() && CStr::from_ptr(name) == BYTEWISE
    });
    // SAFETY: the program passes a destructor of this state.
    let _state = unsafe { Foreign::new(state, destructor) };
    Box::new(leveldb_comparator_t { is_bytewise, _state })
}

/// Frees a comparator, and calls its destructor.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_comparator_destroy(comparator: Option<Box<leveldb_comparator_t>>) {
    drop(comparator);
}

/// A filter policy: the bits per key of a Bloom filter, or one of the program, which is not used.
#[derive(Debug)]
pub struct leveldb_filterpolicy_t {
    bits_per_key: Option<c_int>,
    _state: Option<Foreign>,
}

/// A filter policy of the program. It is never called: the store has its own filters, with the same
/// results for reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: leveldb_destructor,
    _create_filter: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            key_array: *const *const c_char,
            key_length_array: *const usize,
            num_keys: c_int,
            filter_length: *mut usize,
        ) -> *mut c_char,
    >,
    _key_may_match: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            key: *const c_char,
            length: usize,
            filter: *const c_char,
            filter_length: usize,
        ) -> u8,
    >,
    _name: Option<unsafe extern "C" fn(state: *mut c_void) -> *const c_char>,
) -> Box<leveldb_filterpolicy_t> {
    // SAFETY: the program passes a destructor of this state.
    let _state = Some(unsafe { Foreign::new(state, destructor) });
    Box::new(leveldb_filterpolicy_t { bits_per_key: None, _state })
}

/// A Bloom filter policy.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create_bloom(
    bits_per_key: c_int,
) -> Box<leveldb_filterpolicy_t> {
    Box::new(leveldb_filterpolicy_t { bits_per_key: Some(bits_per_key), _state: None })
}

/// Frees a filter policy, and calls its destructor.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_destroy(policy: Option<Box<leveldb_filterpolicy_t>>) {
    drop(policy);
}

/// A cache: its capacity.
#[derive(Debug)]
pub struct leveldb_cache_t {
    capacity: u64,
}

/// A cache of `capacity` bytes: see leveldb_options_set_cache().
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_create_lru(capacity: usize) -> Box<leveldb_cache_t> {
    Box::new(leveldb_cache_t { capacity: (capacity as u64).max(1) })
}

/// Frees a cache.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_destroy(cache: Option<Box<leveldb_cache_t>>) {
    drop(cache);
}

/// The operating system.
#[derive(Debug)]
pub struct leveldb_env_t {
    _one_byte: u8,
}

/// A log of messages, which no function makes.
#[derive(Debug)]
pub struct leveldb_logger_t {
    _one_byte: u8,
}

/// The operating system as environment.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_default_env() -> Box<leveldb_env_t> {
    Box::new(leveldb_env_t { _one_byte: 0 })
}

/// Frees an environment.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_env_destroy(env: Option<Box<leveldb_env_t>>) {
    drop(env);
}

/// A directory for tests, which exists: TEST_TMPDIR, or /tmp/leveldbtest-UID. Free it with
/// leveldb_free(). NULL if it cannot be created.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_env_get_test_directory(_env: Option<&leveldb_env_t>) -> *mut c_char {
    // SAFETY: geteuid has no requirements.
    let user = unsafe { libc::geteuid() };
    let directory = std::env::var("TEST_TMPDIR");
    let directory = directory.unwrap_or_else(|_| format!("/tmp/leveldbtest-{user}"));
    match std::fs::create_dir_all(&directory) {
        Ok(()) => copy(directory.as_bytes()),
        Err(_) => std::ptr::null_mut(),
    }
}

/// Options of reads.
#[derive(Debug, Default)]
pub struct leveldb_readoptions_t {
    /// The snapshot, or the error of its creation.
    pub(crate) snapshot: Option<Result<Snapshot, Error>>,
}

/// New options of reads.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> Box<leveldb_readoptions_t> {
    Box::default()
}

/// Frees options of reads.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_destroy(options: Option<Box<leveldb_readoptions_t>>) {
    drop(options);
}

/// Ignored: every byte read is checked.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_verify_checksums(
    _options: &mut leveldb_readoptions_t,
    _value: u8,
) {
}

/// Ignored: all blocks read are cached.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_fill_cache(
    _options: &mut leveldb_readoptions_t,
    _value: u8,
) {
}

/// Reads show the snapshot, which they keep even after its release. NULL: the present.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_snapshot(
    options: &mut leveldb_readoptions_t,
    snapshot: Option<&leveldb_snapshot_t>,
) {
    options.snapshot = snapshot.map(|snapshot| snapshot.0.clone());
}

/// Options of writes.
#[derive(Debug, Default)]
pub struct leveldb_writeoptions_t {
    is_synced: bool,
}

impl leveldb_writeoptions_t {
    pub(crate) fn durability(&self) -> Durability {
        if self.is_synced { Durability::Synced } else { Durability::Buffered }
    }
}

/// New options of writes.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_create() -> Box<leveldb_writeoptions_t> {
    Box::default()
}

/// Frees options of writes.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_destroy(options: Option<Box<leveldb_writeoptions_t>>) {
    drop(options);
}

/// Whether a write survives a power cut once it returns. Default: false.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_set_sync(options: &mut leveldb_writeoptions_t, value: u8) {
    options.is_synced = value != 0;
}
