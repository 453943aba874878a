//! Properties, estimated sizes, and the metadata of column families.
//!
//! Numbers of files, levels and memory are those of the whole database, because column families
//! share its files; keys and sizes are estimated for each family, from up to 100,000 entries per
//! range.

use std::ffi::{c_char, c_int, c_void};
use std::fmt::Write;

use shim::boundary::{Pointer, copy, quietly};
use shim::estimate::{Estimate, MAX_ENTRIES, estimate};
use store::Stats;

use crate::batch::count;
use crate::database::Database;
use crate::exports::{List, exports, give, ignored};
use crate::failure::Failure;
use crate::families::{DEFAULT_NAME, Handle};
use crate::layout::{self, entry_key};
use crate::live_files::LiveFiles;
use crate::scalars::Plain;

/// A property that is a number.
fn number(db: &Database, family: u32, name: &str) -> Option<u64> {
    let name = name.strip_prefix("rocksdb.")?;
    let stats = db.table().stats();
    let memory = |part: &str| stats.memory.get(part).copied().unwrap_or(0);
    Some(match name {
        "estimate-num-keys" if db.families.count() == 1 => {
            // The catalogue's own keys do not count.
            let entries = db.table().approximate_len().unwrap_or(0);
            if entries > MAX_ENTRIES { entries } else { of_range(db, family, None).entries }
        }
        "estimate-num-keys" => of_range(db, family, None).entries,
        "estimate-live-data-size" => of_range(db, family, None).bytes,
        "cur-size-active-mem-table" | "cur-size-all-mem-tables" | "size-all-mem-tables" => {
            memory("memtable")
        }
        "total-sst-files-size" | "live-sst-files-size" => {
            stats.levels.iter().map(|level| level.bytes).sum()
        }
        "estimate-table-readers-mem" => memory("index") + memory("filter"),
        "block-cache-usage" => memory("block_cache"),
        "num-entries-active-mem-table" | "num-entries-imm-mem-tables" => 0,
        "num-deletes-active-mem-table" | "num-deletes-imm-mem-tables" => 0,
        "num-immutable-mem-table" | "num-immutable-mem-table-flushed" => 0,
        "mem-table-flush-pending" | "compaction-pending" => 0,
        "num-running-flushes" | "num-running-compactions" => 0,
        "background-errors" => db.table().engine().trouble().is_some().into(),
        "num-snapshots" => db.table().watermark().is_some().into(),
        "num-live-versions" => 1,
        "base-level" => 1,
        "is-file-deletions-enabled" => 1,
        "is-write-stopped" | "actual-delayed-write-rate" => 0,
        "estimate-pending-compaction-bytes" => 0,
        "min-log-number-to-keep" | "min-obsolete-sst-number-to-keep" => 0,
        _ => return None,
    })
}

/// A property as text.
fn property(db: &Database, family: u32, name: &str) -> Option<String> {
    if let Some(value) = number(db, family, name) {
        return Some(value.to_string());
    }
    let stats = db.table().stats();
    let name = name.strip_prefix("rocksdb.")?;
    if let Some(level) = name.strip_prefix("num-files-at-level") {
        let level = format!("L{}", level.parse::<u32>().ok()?);
        let level = stats.levels.iter().find(|known| known.name == level);
        return Some(level.map_or(0, |level| level.files).to_string());
    }
    match name {
        "stats" | "levelstats" | "cfstats" | "cfstats-no-file-histogram" | "dbstats" => {
            Some(levels(&stats))
        }
        "sstables" => {
            let mut text = String::new();
            for level in &stats.levels {
                let (name, files, bytes) = (&level.name, level.files, level.bytes);
                writeln!(text, "--- level {name} --- {files} files, {bytes} bytes").ok()?;
            }
            Some(text)
        }
        _ => None,
    }
}

fn levels(stats: &Stats) -> String {
    let mut text = "Compaction Stats\nLevel    Files   Size(MB)  Written(MB)\n".to_owned();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for level in &stats.levels {
        let (size, written) = (mib(level.bytes), mib(level.bytes_written));
        let row = format!("{:<8}{:>6}{size:>11.1}{written:>13.1}\n", level.name, level.files);
        text.push_str(&row);
    }
    text
}

/// The estimated content of a range of a column family; `None`: all of it.
fn of_range(db: &Database, family: u32, range: Option<(&[u8], &[u8])>) -> Estimate {
    let range = match range {
        None => layout::range(family),
        Some((start, limit)) => {
            store::KeyRange::new(entry_key(family, start)..entry_key(family, limit))
        }
    };
    let cursor = db.table().cursor_range((range.start, range.end));
    quietly(|| cursor.and_then(|cursor| estimate(cursor, MAX_ENTRIES)).unwrap_or_default())
}

/// Estimates the sizes of ranges.
///
/// # Safety
/// `sizes` has a place per range.
unsafe fn sizes_of(
    db: &Database,
    family: u32,
    ranges: c_int,
    starts: List,
    limits: List,
    sizes: *mut u64,
) -> Result<(), Failure> {
    db.families.check(family)?;
    let ranges = count(ranges);
    for (at, (start, limit)) in starts.iter(ranges).zip(limits.iter(ranges)).enumerate() {
        let bytes = of_range(db, family, Some((start, limit))).bytes;
        // SAFETY: by the contract of this function.
        unsafe { sizes.add(at).write(bytes) };
    }
    Ok(())
}

/// What is known about a column family.
#[derive(Debug, Clone)]
pub struct Metadata {
    name: String,
    levels: Vec<Level>,
}

/// A level of the database.
#[derive(Debug, Clone)]
pub struct Level {
    number: c_int,
    files: u64,
    bytes: u64,
}

fn metadata(db: &Database, family: u32, name: &str) -> Pointer<Metadata> {
    let levels = db.table().stats().levels.into_iter().enumerate().map(|(number, level)| Level {
        number: number as c_int,
        files: level.files,
        bytes: level.bytes,
    });
    let known = db.families.name(family);
    let name = if name.is_empty() { known.unwrap_or(DEFAULT_NAME.to_owned()) } else { name.into() };
    Pointer::new(Metadata { name, levels: levels.collect() })
}

fn text_of(value: Option<String>) -> Pointer<c_char> {
    value.map_or(Pointer::null(), |value| Pointer(copy(value.as_bytes())))
}

/// Gives a number to the caller. Returns 0 if there is one, -1 if not.
fn give_number(value: Option<u64>, place: *mut u64) -> c_int {
    let Some(value) = value else { return -1 };
    // SAFETY: the caller passes a place for it, or NULL.
    unsafe { give(place, value) };
    0
}

exports! {
    /// The value of a property, to be freed. NULL for an unknown one.
    fn rocksdb_property_value(db: &Database, name: text) -> Pointer<c_char> {
        text_of(name.ok().and_then(|name| property(db, 0, name)))
    }

    /// The same for a column family.
    fn rocksdb_property_value_cf(
        db: &Database, family: &Handle, name: text
    ) -> Pointer<c_char> {
        text_of(name.ok().and_then(|name| property(db, family.id, name)))
    }

    /// A property that is a number. Returns 0, or -1 for an unknown one.
    fn rocksdb_property_int(db: &Database, name: text, value: *mut u64) -> c_int {
        give_number(name.ok().and_then(|name| number(db, 0, name)), value)
    }

    /// The same for a column family.
    fn rocksdb_property_int_cf(
        db: &Database, family: &Handle, name: text, value: *mut u64
    ) -> c_int {
        give_number(name.ok().and_then(|name| number(db, family.id, name)), value)
    }

    /// As rocksdb_property_value().
    fn rocksdb_transactiondb_property_value(db: &Database, name: text) -> Pointer<c_char> {
        text_of(name.ok().and_then(|name| property(db, 0, name)))
    }

    /// As rocksdb_property_int().
    fn rocksdb_transactiondb_property_int(db: &Database, name: text, value: *mut u64) -> c_int {
        give_number(name.ok().and_then(|name| number(db, 0, name)), value)
    }

    /// As rocksdb_property_value().
    fn rocksdb_optimistictransactiondb_property_value(
        db: &Database, name: text
    ) -> Pointer<c_char> {
        text_of(name.ok().and_then(|name| property(db, 0, name)))
    }

    /// As rocksdb_property_int().
    fn rocksdb_optimistictransactiondb_property_int(
        db: &Database, name: text, value: *mut u64
    ) -> c_int {
        give_number(name.ok().and_then(|name| number(db, 0, name)), value)
    }

    /// Estimates the bytes of keys and values in ranges, also of those in memory.
    fn rocksdb_approximate_sizes | rocksdb_approximate_sizes_cf(
        db: &Database, ?family, ranges: c_int, starts: list, limits: list, sizes: *mut u64; err
    ) {
        unsafe { sizes_of(db, family.id, ranges, starts, limits, sizes) }
    }

    /// The same. The flags are ignored.
    fn rocksdb_approximate_sizes_cf_with_flags(
        db: &Database, family: &Handle, ranges: c_int, starts: list, limits: list, _flags: u8,
        sizes: *mut u64; err
    ) {
        unsafe { sizes_of(db, family.id, ranges, starts, limits, sizes) }
    }

    /// The same. The options are ignored.
    fn rocksdb_approximate_sizes_with_options(
        db: &Database, _options: Option<&Plain>, ranges: c_int, starts: list, limits: list,
        sizes: *mut u64; err
    ) {
        unsafe { sizes_of(db, 0, ranges, starts, limits, sizes) }
    }

    /// The same. The options are ignored.
    fn rocksdb_approximate_sizes_cf_with_options(
        db: &Database, family: &Handle, _options: Option<&Plain>, ranges: c_int, starts: list,
        limits: list, sizes: *mut u64; err
    ) {
        unsafe { sizes_of(db, family.id, ranges, starts, limits, sizes) }
    }

    /// What is known about the default column family. Levels are those of the database.
    fn rocksdb_get_column_family_metadata(db: &Database) -> Pointer<Metadata> {
        metadata(db, 0, DEFAULT_NAME)
    }

    /// What is known about a column family. Levels are those of the database.
    fn rocksdb_get_column_family_metadata_cf(
        db: &Database, family: &Handle
    ) -> Pointer<Metadata> {
        metadata(db, family.id, &family.name)
    }

    /// The same. The options are ignored.
    fn rocksdb_get_column_family_metadata_with_options(
        db: &Database, _options: *const c_void
    ) -> Pointer<Metadata> {
        metadata(db, 0, DEFAULT_NAME)
    }

    /// The same. The options are ignored.
    fn rocksdb_get_column_family_metadata_cf_with_options(
        db: &Database, family: &Handle, _options: *const c_void
    ) -> Pointer<Metadata> {
        metadata(db, family.id, &family.name)
    }

    /// Frees metadata.
    fn rocksdb_column_family_metadata_destroy(metadata: Option<Box<Metadata>>) {
        drop(metadata)
    }

    /// The bytes of all files.
    fn rocksdb_column_family_metadata_get_size(metadata: &Metadata) -> u64 {
        metadata.levels.iter().map(|level| level.bytes).sum()
    }

    /// The number of files.
    fn rocksdb_column_family_metadata_get_file_count(metadata: &Metadata) -> usize {
        metadata.levels.iter().map(|level| level.files as usize).sum()
    }

    /// The name of the column family, to be freed.
    fn rocksdb_column_family_metadata_get_name(metadata: &Metadata) -> Pointer<c_char> {
        Pointer(copy(metadata.name.as_bytes()))
    }

    /// The number of levels.
    fn rocksdb_column_family_metadata_get_level_count(metadata: &Metadata) -> usize {
        metadata.levels.len()
    }

    /// A level, to be freed. NULL if there is none.
    fn rocksdb_column_family_metadata_get_level_metadata(
        metadata: &Metadata, at: usize
    ) -> Pointer<Level> {
        metadata.levels.get(at).map_or(Pointer::null(), |level| Pointer::new(level.clone()))
    }

    /// Frees a level.
    fn rocksdb_level_metadata_destroy(level: Option<Box<Level>>) {
        drop(level)
    }

    /// The number of the level.
    fn rocksdb_level_metadata_get_level(level: &Level) -> c_int {
        level.number
    }

    /// The bytes of the level's files.
    fn rocksdb_level_metadata_get_size(level: &Level) -> u64 {
        level.bytes
    }

    /// The number of the level's files.
    fn rocksdb_level_metadata_get_file_count(level: &Level) -> usize {
        level.files as usize
    }

    /// A file of the level, to be freed: its share of the bytes, without names and keys. NULL if
    /// there is none.
    fn rocksdb_level_metadata_get_sst_file_metadata(level: &Level, at: usize) -> Pointer<File> {
        let file = (at < level.files as usize).then(|| File(level.bytes / level.files));
        file.map_or(Pointer::null(), Pointer::new)
    }

    /// Frees a file.
    fn rocksdb_sst_file_metadata_destroy(file: Option<Box<File>>) {
        drop(file)
    }

    /// The bytes of a file.
    fn rocksdb_sst_file_metadata_get_size(file: &File) -> u64 {
        file.0
    }

    /// An empty text, to be freed.
    fn rocksdb_sst_file_metadata_get_relative_filename(_file: &File) -> Pointer<c_char> {
        Pointer(copy(b""))
    }

    /// An empty text, to be freed.
    fn rocksdb_sst_file_metadata_get_directory(_file: &File) -> Pointer<c_char> {
        Pointer(copy(b""))
    }

    /// An empty text, to be freed.
    fn rocksdb_sst_file_metadata_get_smallestkey(
        _file: &File, len: *mut usize
    ) -> Pointer<c_char> {
        unsafe { give(len, 0) };
        Pointer(copy(b""))
    }

    /// An empty text, to be freed.
    fn rocksdb_sst_file_metadata_get_largestkey(
        _file: &File, len: *mut usize
    ) -> Pointer<c_char> {
        unsafe { give(len, 0) };
        Pointer(copy(b""))
    }

    /// A list of databases, whose memory is to be added up.
    fn rocksdb_memory_consumers_create() -> Pointer<Consumers> {
        Pointer::new(Consumers::default())
    }

    /// Adds a database.
    fn rocksdb_memory_consumers_add_db(consumers: &mut Consumers, db: &Database) {
        consumers.0.push(db.clone())
    }

    /// Frees a list.
    fn rocksdb_memory_consumers_destroy(consumers: Option<Box<Consumers>>) {
        drop(consumers)
    }

    /// The memory of the databases, in bytes.
    fn rocksdb_approximate_memory_usage_create(consumers: &Consumers; err) -> Pointer<Memory> {
        let mut memory = Memory::default();
        for db in &consumers.0 {
            let stats = db.table().stats();
            for (part, bytes) in &stats.memory {
                match *part {
                    "memtable" => memory.memtables += bytes,
                    "block_cache" => memory.cache += bytes,
                    _ => memory.readers += bytes,
                }
            }
        }
        Ok(Pointer::new(memory))
    }

    /// Frees the sums.
    fn rocksdb_approximate_memory_usage_destroy(memory: Option<Box<Memory>>) {
        drop(memory)
    }

    /// The bytes of memtables.
    fn rocksdb_approximate_memory_usage_get_mem_table_total(memory: &Memory) -> u64 {
        memory.memtables
    }

    /// The bytes of memtables.
    fn rocksdb_approximate_memory_usage_get_mem_table_unflushed(memory: &Memory) -> u64 {
        memory.memtables
    }

    /// The bytes of indexes and filters.
    fn rocksdb_approximate_memory_usage_get_mem_table_readers_total(memory: &Memory) -> u64 {
        memory.readers
    }

    /// The bytes of block caches.
    fn rocksdb_approximate_memory_usage_get_cache_total(memory: &Memory) -> u64 {
        memory.cache
    }

    /// Names of the files of a database: an empty list, as column families share their files.
    fn rocksdb_livefiles(_db: &Database) -> Pointer<LiveFiles> {
        Pointer::new(LiveFiles::default())
    }
}

ignored! { rocksdb_memory_consumers_add_cache }

/// A file of a level.
#[derive(Debug)]
pub struct File(u64);

/// Databases.
#[derive(Debug, Default)]
pub struct Consumers(Vec<Database>);

/// Bytes of memory.
#[derive(Debug, Default)]
pub struct Memory {
    memtables: u64,
    readers: u64,
    cache: u64,
}
